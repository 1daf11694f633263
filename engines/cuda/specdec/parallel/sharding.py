"""Which part of a checkpoint a rank holds.

Every matrix is cut by its rows (its outputs): heads, MLP channels, vocabulary entries, and for the
second product of a pair the hidden channels (``joined.py``). Norms and other small vectors over
hidden or head channels are whole on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specdec.config import ModelConfig
from specdec.errors import SpecdecError
from specdec.layers.fp8 import Fp8Weight
from specdec.parallel.ranks import Ranks

_WHOLE = (
    "norm.weight",  # final, MTP's, and the gated norm of a recurrent layer
    "layernorm.weight",
    "q_norm.weight",
    "k_norm.weight",
    "pre_fc_norm_embedding.weight",
    "pre_fc_norm_hidden.weight",
)
_QUERY_KEY_VALUE = ("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight")


def check_divisible(config: ModelConfig, size: int) -> None:
    """Raise SpecdecError, naming every size at fault, unless ``size`` ranks can share evenly."""
    sizes = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "linear_num_key_heads": config.linear_key_heads,
        "linear_num_value_heads": config.linear_value_heads,
    }
    odd = [f"{name} is {value}" for name, value in sizes.items() if value % size]
    if odd:
        fitting = [n for n in range(1, size) if not any(value % n for value in sizes.values())]
        raise SpecdecError(
            f"--tp-size {size} does not divide this checkpoint: {', '.join(odd)}.",
            f"Use --tp-size {fitting[-1]}.",
        )


def share_of(config: ModelConfig, size: int) -> ModelConfig:
    """The shapes that one of ``size`` ranks computes with. Hidden size and vocabulary stay: hidden
    rows are whole on every rank, and ids are the model's."""
    return replace(
        config,
        intermediate_size=config.intermediate_size // size,
        num_attention_heads=config.num_attention_heads // size,
        num_key_value_heads=config.num_key_value_heads // size,
        linear_key_heads=config.linear_key_heads // size,
        linear_value_heads=config.linear_value_heads // size,
    )


def cutter(config: ModelConfig, ranks: Ranks) -> Callable[[str, Any], Any]:
    """Gives a rank's part of a whole tensor by canonical name, as memory of its own."""
    key, value = config.key_width, config.value_width

    def cut(name: str, whole: Any) -> Any:
        if name.endswith(_WHOLE):
            return whole
        parts = (key, key, value) if name.endswith(_QUERY_KEY_VALUE) else (whole.shape[0],)
        return cut_rows(whole, parts, ranks)

    return cut


def cut_rows(whole: Tensor | Fp8Weight, parts: tuple[int, ...], ranks: Ranks) -> Any:
    """This rank's even share of each of the consecutive ``parts`` of the rows."""
    assert sum(parts) == whole.shape[0]
    if isinstance(whole, Fp8Weight):
        return whole.rows(cut_rows(torch.arange(whole.shape[0]), parts, ranks))
    return torch.cat([part.chunk(ranks.size)[ranks.rank] for part in whole.split(parts)])
