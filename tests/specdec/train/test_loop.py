"""The training loop: it learns, stops at its deadline, and continues as if it had not."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from specdec.train.batches import write_stream
from specdec.train.loop import Place, rate_factor, train_mtp, train_target
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead, MtpStages
from specdec.train.optim import orthogonalise
from specdec.train.recipe import MtpPhase, Phase, Recipe
from specdec.train.shape import ModelShape
from specdec.train.stages import stages
from specdec.train.vocabulary import Encoder

CHECKPOINT = Path(__file__).parents[3] / "fixtures" / "models" / "tiny-qwen3.5"
RECIPE = Recipe(
    shape=ModelShape(
        hidden=32,
        layers=4,
        mlp=48,
        heads=2,
        kv_heads=1,
        head_dim=16,
        linear_key_heads=1,
        linear_value_heads=2,
        linear_head_dim=16,
    ),
    phases=(Phase("a", 8, 2, 128), Phase("b", 6, 1, 192, spread=1.0)),
    mtp_phases=(MtpPhase("m", 3, 2, 128, first=64, depths=3),),
    lr=5e-3,
    warmup_steps=2,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    encode = Encoder(CHECKPOINT / "tokenizer.json")
    ids = encode("one two three four five six seven eight nine ten\n" * 300)
    for name in ("code", "prose"):
        write_stream(tmp_path / f"{name}.u16.xz", ids)
    (tmp_path / "tokenizer.json").write_bytes((CHECKPOINT / "tokenizer.json").read_bytes())
    return tmp_path


def place(data: Path, name: str, deadline: float = math.inf) -> Place:
    return Place(data, data / name, data / f"{name}.jsonl", torch.device("cpu"), 0, deadline)


def fresh() -> HybridModel:
    torch.manual_seed(0)
    return HybridModel(RECIPE.shape)


def test_a_stopped_and_continued_run_ends_with_the_weights_of_an_unbroken_one(data: Path) -> None:
    whole = fresh()
    assert train_target(place(data, "whole"), RECIPE, whole, stages(False), False)
    late = time.monotonic() - 1
    broken = fresh()
    assert not train_target(place(data, "broken", late), RECIPE, broken, stages(False), False)
    resumed = fresh()
    assert train_target(place(data, "broken"), RECIPE, resumed, stages(False), False)
    for (name, a), (_, b) in zip(
        whole.state_dict().items(), resumed.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
    assert any(
        not torch.equal(a, b)
        for a, b in zip(whole.state_dict().values(), broken.state_dict().values(), strict=True)
    )


def test_training_lowers_the_loss_and_mtp_leaves_the_target_alone(data: Path) -> None:
    model, here = fresh(), place(data, "run")
    longer = replace(RECIPE, phases=(Phase("a", 25, 2, 128),))
    assert train_target(here, longer, model, stages(False), False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    head = MtpHead(RECIPE.shape)
    start = {name: value.clone() for name, value in head.state_dict().items()}
    assert train_mtp(here, RECIPE, model, head, stages(False), MtpStages.make(False))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(not torch.equal(start[name], value) for name, value in head.state_dict().items())
    rows = [json.loads(line) for line in here.log.read_text().splitlines()]
    losses = [row["plain_loss"] for row in rows if row["kind"] == "target"]
    assert losses[-1] < losses[0] - 0.5


def test_the_rate_rises_holds_and_falls_to_almost_nothing() -> None:
    factors = [rate_factor(step, 100, 10, 0.4) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[30] == 1.0
    assert 0 < factors[99] < 0.03
    assert factors == sorted(factors[:10]) + factors[10:]


def test_an_orthogonalised_update_has_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 32, 64), (2, 64, 32)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert float(values.min()) > 0.5
        assert float(values.max()) < 1.4
