"""A small target and small drafters for the tests of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from specdec.train.drafter_heads import make
from specdec.train.drafter_shape import DFLASH2, DSPARK, DrafterShape
from specdec.train.model import HybridModel
from specdec.train.shape import ModelShape
from torch import Tensor

CHECKPOINT = Path(__file__).parents[3] / "fixtures" / "models" / "tiny-qwen3.5"
TARGET = ModelShape(
    hidden=32, layers=4, mlp=48, heads=2, kv_heads=1, head_dim=16,
    linear_key_heads=1, linear_value_heads=2, linear_head_dim=16,
)  # fmt: skip
SMALL = {
    "hidden": 32, "target_layers": 4, "taps": (0, 2), "layers": 2, "mlp": 48, "heads": 2,
    "kv_heads": 1, "head_dim": 16, "rank": 8,
}  # fmt: skip
DRAFTERS = (replace(DFLASH2, **SMALL, window=40), replace(DSPARK, **SMALL))


def target() -> HybridModel:
    torch.manual_seed(0)
    return HybridModel(TARGET).requires_grad_(False)


def drafter(shape: DrafterShape):  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    made = make(shape)
    for parameter in made.parameters():  # what begins at zero must show in comparisons
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    return made


def text(batch: int, length: int) -> Tensor:
    return torch.randint(0, 4000, (batch, length), generator=torch.Generator().manual_seed(2))
