"""What holds in every mode: ids of the target alone whatever is proposed, rejected or retracted."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path

import pytest
import torch
from driving import finish, generate, greedy, random_prompts, start, step
from specdec.block_drafter import BlockDrafter
from specdec.contract import RunnerOptions
from specdec.draft_facts import DraftFacts
from specdec.drafter import Drafter, Drafts
from specdec.request import Phase, Sequence
from specdec.rows import Rows
from specdec.runner import Runner
from specdec.speculate import next_average, width_of
from specdec.state import logical_state

MODES: dict[str, dict[str, object]] = {
    "mtp": {"mode": "mtp", "draft_steps": 4},
    "mtp-adaptive": {"mode": "mtp", "draft_steps": 7, "adaptive": True},
    "dflash2": {"mode": "dflash2"},
    "dflash2-adaptive": {"mode": "dflash2", "adaptive": True},
    "dflash2-ring": {"mode": "dflash2", "draft_kv": "ring"},
    "dspark": {"mode": "dspark"},
}
NEW_TOKENS = 40


def load(folder: Path, mode: str, **changes: object) -> Runner:
    settings = {**MODES[mode], **changes}
    if settings["mode"] != "mtp":
        settings["draft_model"] = folder / str(settings["mode"])
    return Runner.load(folder, RunnerOptions(**settings))  # type: ignore[arg-type]


class Meddled(Drafter):
    """A drafter whose proposals are replaced: so many right ones as ``script()`` says, then wrong
    ones. Everything else is the drafter's own."""

    def __init__(
        self, inner: Drafter, outputs: dict[str, list[int]], script: Callable[[], int]
    ) -> None:
        self.inner, self._outputs, self._script = inner, outputs, script

    @property
    def facts(self) -> DraftFacts:
        return self.inner.facts

    def first_width(self) -> int:
        return self.inner.first_width()

    def begin(self, seq: Sequence, kept: torch.Tensor | None, stop: int, rewrite: bool) -> None:
        self.inner.begin(seq, kept, stop, rewrite)

    def remember(self, seq: Sequence, rows: Rows) -> None:
        self.inner.remember(seq, rows)

    def prime(self, seq: Sequence) -> None:
        self.inner.prime(seq)

    def wanted(self, seq: Sequence) -> int:
        return self.inner.wanted(seq)

    def learn(self, seq: Sequence, proposed: int, correct: int) -> None:
        self.inner.learn(seq, proposed, correct)

    def forget(self, seq: Sequence) -> None:
        self.inner.forget(seq)

    def propose(self, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
        drafts = self.inner.propose(seqs, widths)
        for seq, mine in zip(seqs, drafts, strict=True):
            at, count = len(seq.output_ids), len(mine.tokens)
            true = self._outputs[seq.request_id][at : at + count]
            right = min(self._script(), count)
            mine.tokens = [*true[:right], *((token + 1) % 250 for token in true[right:])]
        return drafts


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return random_prompts(3, (1, 8, 61, 100), 250, seed=21)


@pytest.fixture(scope="module")
def plain(agreeing: Path, prompts: list[list[int]]) -> dict[str, list[int]]:
    """Target-only, alone."""
    done = generate(Runner.load(agreeing), prompts, greedy(NEW_TOKENS), 1)
    return {str(i): seq.output_ids for i, seq in enumerate(done)}


@pytest.mark.parametrize("mode", MODES)
def test_ids_are_the_targets_alone_and_in_a_batch_and_drafts_are_the_same_in_both(
    mode: str, agreeing: Path, prompts: list[list[int]], plain: dict[str, list[int]]
) -> None:
    alone, together = (
        generate(load(agreeing, mode), prompts, greedy(NEW_TOKENS), batch) for batch in (1, 3)
    )
    assert [seq.output_ids for seq in alone] == list(plain.values())
    assert [seq.output_ids for seq in together] == list(plain.values())
    for one, other in zip(alone, together, strict=True):
        assert one.counters.correct_histogram == other.counters.correct_histogram
        assert one.counters.proposed_drafts == other.counters.proposed_drafts
    assert sum(seq.counters.correct_drafts for seq in alone) > 0
    assert sum(seq.counters.rollbacks for seq in alone) > 0


@pytest.mark.parametrize("mode", MODES)
def test_random_reject_patterns_leave_the_state_of_a_fresh_computation(
    mode: str, agreeing: Path, prompts: list[list[int]], plain: dict[str, list[int]]
) -> None:
    runner = load(agreeing, mode)
    rng = random.Random(mode)
    inner = runner._core.drafter
    assert inner is not None
    runner._core.drafter = Meddled(inner, plain, lambda: rng.randrange(8))
    seqs = start(runner, prompts, greedy(NEW_TOKENS))
    for _ in range(200):
        step(runner, seqs)
        if any(seq.remaining < 3 for seq in seqs) or all(s.remaining < 12 for s in seqs):
            break
    assert sum(seq.counters.rollbacks for seq in seqs) > 3
    runner._core.drafter = inner
    fresh = load(agreeing, mode)
    for seq in [seq for seq in seqs if seq.phase is Phase.DECODE]:
        again = fresh.new_sequence("again", seq.tokens(0, seq.computed), greedy(4))
        fresh.admit(again)
        while again.phase is Phase.PREFILL:
            fresh.prefill_step([again])
        states = [context(runner, seq), context(fresh, again)]
        assert states[0].keys() == states[1].keys()
        for name, tensor in states[0].items():
            assert torch.equal(tensor, states[1][name]), name
        fresh.retract(again)
    finish(runner, [seq for seq in seqs if seq.phase is not Phase.FINISHED])
    assert {seq.request_id: seq.output_ids for seq in seqs} == plain
    runner.check_integrity()


def context(runner: Runner, seq: Sequence) -> dict[str, torch.Tensor]:
    """The target's state behind a sequence, and what a block drafter sees of it."""
    assert seq.slot is not None
    size = runner.info.page_size
    found = logical_state(runner._core.state, seq.slot, seq.pages, size, seq.computed)
    drafter = runner._core.drafter
    if isinstance(drafter, BlockDrafter):
        with torch.inference_mode():
            drafter.prime(seq)
        first = drafter._backbone.first_seen(seq.computed)
        for layer in range(drafter._backbone.config.layers):
            keys, values = drafter._memory.read(layer, seq, first, seq.computed)
            found |= {f"draft.{layer}.keys": keys, f"draft.{layer}.values": values}
    return found


@pytest.mark.parametrize("cache", [False, True], ids=["no-cache", "cache"])
@pytest.mark.parametrize("mode", MODES)
def test_a_retraction_in_the_middle_changes_nothing(
    mode: str,
    cache: bool,
    agreeing: Path,
    prompts: list[list[int]],
    plain: dict[str, list[int]],
) -> None:
    runner = load(agreeing, mode, prefix_cache=cache, prefill_chunk_tokens=48)
    seqs = start(runner, prompts, greedy(NEW_TOKENS))
    rng = random.Random(5)
    for _ in range(300):
        step(runner, seqs)
        runner.check_integrity()
        going = [seq for seq in seqs if seq.phase in (Phase.PREFILL, Phase.DECODE)]
        if not going:
            break
        if rng.random() < 0.2:
            back = rng.choice(going)
            runner.retract(back)
            runner.check_integrity()
            runner.admit(back)
    assert {seq.request_id: seq.output_ids for seq in seqs} == plain
    assert sum(seq.counters.retractions for seq in seqs) > 2
    for seq in seqs:
        assert seq.counters.output_tokens() == len(seq.output_ids)
    runner.flush_cache()
    runner.check_integrity()
    assert runner.pool.free_tokens == runner.pool.total_tokens


@pytest.mark.parametrize("mode", MODES)
def test_a_pool_without_room_for_drafts_still_gives_the_targets_ids(
    mode: str, agreeing: Path, prompts: list[list[int]], plain: dict[str, list[int]]
) -> None:
    """One page each to begin with, so that steps propose fewer drafts than they want to."""
    index = max(range(3), key=lambda i: len(prompts[i]))
    runner = load(agreeing, mode, max_total_tokens=192, max_running_requests=1)
    (seq,) = generate(runner, [prompts[index]], greedy(NEW_TOKENS), 1)
    assert seq.output_ids == plain[str(index)]


def test_the_adaptive_width_follows_the_average_of_correct_drafts() -> None:
    assert [width_of(average, 7) for average in (0.0, 0.5, 0.51, 1.5, 2.0, 5.5, 5.6, 7.0)] == [
        1, 1, 2, 2, 3, 6, 7, 7,
    ]  # fmt: skip
    assert width_of(0.0, 1) == 1
    average, widths = 7.0, []
    for _ in range(12):
        average = next_average(average, 0)
        widths.append(width_of(average, 7))
    assert widths[0] == 6
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 1
    for _ in range(40):  # all right: it grows back, though few are proposed at first
        average = next_average(average, width_of(average, 7))
    assert width_of(average, 7) == 7


def test_the_adaptive_width_narrows_what_is_verified(agreeing: Path) -> None:
    prompts = random_prompts(2, (30,), 250, seed=3)
    fixed, adaptive = (
        generate(load(agreeing, mode), prompts, greedy(60), 1)
        for mode in ("dflash2", "dflash2-adaptive")
    )
    assert [s.output_ids for s in fixed] == [s.output_ids for s in adaptive]

    def rows_a_step(done: list[Sequence]) -> float:
        steps = sum(seq.counters.verify_steps for seq in done)
        return sum(seq.counters.proposed_drafts for seq in done) / steps

    assert rows_a_step(adaptive) < rows_a_step(fixed) - 1
