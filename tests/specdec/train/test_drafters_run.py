"""A training run of drafters: its data, that it learns and goes on, and what it writes."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from drafter_models import CHECKPOINT, DRAFTERS, drafter, target
from safetensors.torch import load_file
from specdec.train import drafters
from specdec.train.batches import Mixture, write_stream
from specdec.train.continuations import Plan, PromptPlan, Round, take_over
from specdec.train.drafter_loop import DraftRecipe, Learner, Timetable, batches, train_drafters
from specdec.train.loop import Place
from specdec.train.stages import stages


def test_the_target_takes_over_at_an_answer_or_near_the_prompts_end() -> None:
    import random

    weights = np.ones(200, np.uint8)
    ends = {take_over(random.Random(seed), weights) for seed in range(50)}
    assert min(ends) >= 137
    assert max(ends) <= 200
    weights[60:70] = weights[90:95] = 5
    weights[3:6] = 5
    answers = [take_over(random.Random(seed), weights) for seed in range(50)]
    assert {60, 90} < set(answers)
    assert 3 not in answers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    from specdec.train.vocabulary import Encoder

    encode = Encoder(CHECKPOINT / "tokenizer.json")
    ids = encode("one two three four five six seven eight nine ten\n" * 300)
    for name in ("code", "prose"):
        write_stream(tmp_path / f"{name}.u16.xz", ids)
    (tmp_path / "tokenizer.json").write_bytes((CHECKPOINT / "tokenizer.json").read_bytes())
    return tmp_path


def test_prompts_are_a_function_of_seed_and_round(data: Path) -> None:
    plans = (Plan(96, 3, fresh=32), Plan(128, 2, fresh=64, mixture=Mixture(code=1.0)))
    first, again = (PromptPlan(data, plans, 3, "s", 4096)[2] for _ in range(2))
    other = PromptPlan(data, plans, 3, "t", 4096)[2]
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)
    assert first.ids.shape == (3, 96)
    assert bool((first.starts <= 64).all())
    assert bool((first.ids[:, 64:] == 0).all())


def test_drafters_learn_stop_at_the_deadline_and_go_on_as_if_they_had_not(
    data: Path, tmp_path: Path
) -> None:
    model = target()
    ids = torch.arange(10).repeat(4, 13)[:, :128] * 3 + 5
    made = Round(ids.int(), torch.arange(128).repeat(4, 1).int(), torch.full((4,), 40))
    made.save(tmp_path / "round-000.pt")
    rounds = [tmp_path / "round-000.pt"]
    recipe = DraftRecipe(steps=30, tokens=256, blocks=16, warmup=2, lr=1e-2)

    def go(name: str, steps: int, deadline: float = math.inf) -> tuple[bool, list]:  # type: ignore[type-arg]
        learning = [drafter(shape) for shape in DRAFTERS]
        log = tmp_path / f"{name}.jsonl"
        place = Place(data, tmp_path / name, log, torch.device("cpu"), 0, deadline)
        part = replace(recipe, steps=steps)
        return train_drafters(place, part, model, learning, rounds, stages(False)), learning

    finished, whole = go("whole", 30)
    assert finished
    stopped, broken = go("broken", 30, deadline=0.0)
    assert not stopped
    assert not torch.equal(broken[0].fc.weight, whole[0].fc.weight)
    finished, resumed = go("broken", 30)
    assert finished
    for one, two in zip(whole, resumed, strict=True):
        for (name, a), (_, b) in zip(
            one.state_dict().items(), two.state_dict().items(), strict=True
        ):
            assert torch.equal(a, b), name
    first = [json.loads(line) for line in (tmp_path / "broken.jsonl").read_text().splitlines()]
    last = [json.loads(line) for line in (tmp_path / "whole.jsonl").read_text().splitlines()]
    for kind in ("dflash2", "dspark"):
        early = next(row for row in first if row["kind"] == kind)
        late = [row for row in last if row["kind"] == kind][-1]
        assert late["loss"] < early["loss"]


def test_batches_go_on_from_any_step(tmp_path: Path) -> None:
    for number, length in enumerate((64, 128)):
        ids = torch.arange(6).unsqueeze(1).expand(-1, length).int() + 100 * number
        made = Round(ids, torch.zeros_like(ids), torch.full((6,), 20))
        made.save(tmp_path / f"round-{number:03d}.pt")
    rounds = sorted(tmp_path.glob("round-*.pt"))
    recipe = DraftRecipe(tokens=256)
    stream = batches(rounds, recipe, 0)
    kept = [next(stream).ids for _ in range(8)]
    assert {part.shape for part in kept} == {(4, 64), (2, 128)}
    later = batches(rounds, recipe, 5)
    assert all(torch.equal(next(later).ids, part) for part in kept[5:])


def test_a_learner_refuses_figures_that_are_not_finite() -> None:
    learner = Learner(drafter(DRAFTERS[0]), DraftRecipe())
    learner.totals = {"loss": torch.tensor(math.nan)}
    with pytest.raises(FloatingPointError, match="dflash2"):
        learner.figures(1)


def test_the_number_of_steps_is_fitted_to_the_time_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    place = Place(tmp_path, tmp_path, tmp_path / "log", torch.device("cpu"), 0, math.inf)
    timetable, recipe = Timetable(place, 100.0, 500), DraftRecipe(steps=10**6)
    taken = 0
    for step in range(500, 10**6):
        recipe = timetable.fit(recipe, step)
        if step >= recipe.steps:
            break
        taken += 1
        now[0] += 20.0 if step == 500 else 0.1  # the first step compiles
    assert taken == pytest.approx(1 + 800, abs=2)
    assert now[0] == pytest.approx(200.0, abs=0.3)
    unbounded = Timetable(place, math.inf, 0)
    assert unbounded.fit(recipe, 60) is recipe


def test_rounds_that_lie_there_are_kept_and_the_missing_ones_made(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = (Plan(96, 2, fresh=32), Plan(128, 2, fresh=32))
    monkeypatch.setitem(drafters.PLANS, "smoke", plans)
    model = target()
    place = Place(data, tmp_path / "w", tmp_path / "log", torch.device("cpu"), 0, math.inf)

    def go(rounds: int, **changes: float) -> list[Round]:
        options = argparse.Namespace(
            rounds=rounds, recipe="smoke", seed=None, generate_seconds=math.inf
        )
        vars(options).update(changes)
        drafters.generate(place, options, model, DraftRecipe())
        return [Round.load(path) for path in sorted(place.state.glob("round-*.pt"))]

    (first,) = go(3, generate_seconds=0.0)
    assert first.ids.shape == (2, 96)
    again = go(3)
    assert [made.ids.shape[1] for made in again] == [96, 128, 96]
    assert torch.equal(again[0].ids, first.ids)
    assert not torch.equal(again[2].ids, first.ids)


def test_a_written_checkpoint_reads_back_rounded_to_bf16(tmp_path: Path) -> None:
    made = drafter(DRAFTERS[1])
    drafters.write(tmp_path, made)
    stored = load_file(tmp_path / "model.safetensors")
    assert made.state_dict().keys() == stored.keys()
    for name, value in made.state_dict().items():
        assert torch.equal(stored[name], value.to(torch.bfloat16)), name
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["DSparkDraftModel"]
    assert config["block_size"] == 7


def test_measure_takes_the_mode_from_the_checkpoint_and_whole_blocks_unless_told(
    tmp_path: Path,
) -> None:
    from specdec.train.measure import launches

    def asked(draft_model: Path | None, widths: str | None) -> list[tuple[str, int | None]]:
        options = argparse.Namespace(draft_model=draft_model, widths=widths, device="cpu")
        return [(launch.mode, launch.draft_steps) for launch in launches(options)]

    drafters.write(tmp_path, drafter(DRAFTERS[0]))
    assert asked(None, None) == [("mtp", 1), ("mtp", 3), ("mtp", 5), ("mtp", 7)]
    assert asked(None, "2") == [("mtp", 2)]
    assert asked(tmp_path, None) == [("dflash2", None)]
    assert asked(tmp_path, "3,7") == [("dflash2", 3), ("dflash2", 7)]
