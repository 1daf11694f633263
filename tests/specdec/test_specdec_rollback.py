"""After any pattern of accepted and rejected drafts the state is that of sequential decode."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from driving import (
    ScriptedDrafter,
    finish,
    generate,
    greedy,
    random_prompts,
    start,
    target_rows,
)
from specdec.contract import RunnerOptions
from specdec.request import Phase, Sequence
from specdec.runner import Runner
from specdec.state import logical_state
from torch import Tensor

NEW_TOKENS = 48


def snapshot(runner: Runner, seq: Sequence) -> dict[str, Tensor]:
    assert seq.slot is not None
    return logical_state(
        runner._core.state, seq.slot, seq.pages, runner.info.page_size, seq.computed
    )


def sequential(
    folder: Path, prompts: list[list[int]]
) -> tuple[dict[str, list[int]], dict[tuple[str, int], dict[str, Tensor]]]:
    """Target-only decode of each prompt alone: output ids, and the state at every position."""
    runner = Runner.load(folder, RunnerOptions(max_running_requests=2))
    outputs: dict[str, list[int]] = {}
    states: dict[tuple[str, int], dict[str, Tensor]] = {}
    for index, prompt in enumerate(prompts):
        seq = runner.new_sequence(str(index), prompt, greedy(NEW_TOKENS))
        runner.admit(seq)
        runner.prefill_step([seq])
        while seq.phase is Phase.DECODE:
            states[seq.request_id, seq.computed] = snapshot(runner, seq)
            runner.decode_step([seq])
        outputs[seq.request_id] = seq.output_ids
    return outputs, states


def random_rights(seed: int) -> Callable[[], int]:
    rng = random.Random(seed)
    return lambda: rng.choice((0, 0, 1, 2, 3, 5, 7))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("draft_steps", [3, 7])
def test_random_accept_patterns_leave_the_state_of_sequential_decode(
    draft_steps: int, batch: int, random_checkpoint: Path
) -> None:
    prompts = random_prompts(3, (1, 5, 8, 61, 100), 255, seed=draft_steps)
    outputs, states = sequential(random_checkpoint, prompts)
    options = RunnerOptions(mode="mtp", draft_steps=draft_steps, max_running_requests=4)
    runner = Runner.load(random_checkpoint, options)
    scripted = ScriptedDrafter(outputs, random_rights(batch))
    runner._core.drafter = scripted  # type: ignore[assignment]
    compared = 0
    for first in range(0, len(prompts), batch):
        seqs = [
            runner.new_sequence(str(i), prompts[i], greedy(NEW_TOKENS))
            for i in range(first, min(first + batch, len(prompts)))
        ]
        for seq in seqs:
            runner.admit(seq)

        def compare(seqs: list[Sequence] = seqs) -> None:
            nonlocal compared
            for seq in seqs:
                if seq.phase is not Phase.DECODE:
                    continue
                expected = states[seq.request_id, seq.computed]
                for name, tensor in snapshot(runner, seq).items():
                    assert torch.equal(tensor, expected[name]), (name, seq.computed)
                    compared += 1

        finish(runner, seqs, compare)
        for seq in seqs:
            assert seq.output_ids == outputs[seq.request_id]
    assert compared > 100
    assert any(0 < right < width for right, width in scripted.rights)
    assert any(right == width for right, width in scripted.rights)


def test_f058_a_step_without_drafts_after_full_acceptance_reads_no_stale_state(
    random_checkpoint: Path,
) -> None:
    """F058: draft lengths 3, 0, 2, 0, 7, 1, 0, accepted whole and not at all by turns."""
    prompt = random_prompts(1, (29,), 255, seed=1)
    outputs, states = sequential(random_checkpoint, prompt)
    options = RunnerOptions(mode="mtp", draft_steps=7, max_running_requests=1)
    runner = Runner.load(random_checkpoint, options)
    turns = itertools.cycle((7, 0))
    runner._core.drafter = ScriptedDrafter(outputs, lambda: next(turns))  # type: ignore[assignment]
    seq = runner.new_sequence("0", prompt[0], greedy(NEW_TOKENS))
    runner.admit(seq)
    runner.prefill_step([seq])
    for width in itertools.cycle((3, 0, 2, 0, 7, 1, 0)):
        seq.draft_width = width
        runner.decode_step([seq])
        if seq.phase is Phase.FINISHED:
            break
        expected = states["0", seq.computed]
        for name, tensor in snapshot(runner, seq).items():
            assert torch.equal(tensor, expected[name]), (name, seq.computed)
    assert seq.output_ids == outputs["0"]


def test_the_drafters_rows_after_rejections_are_those_of_a_fresh_computation(
    agreeing: Path,
) -> None:
    options = RunnerOptions(mode="mtp", draft_steps=4, max_running_requests=4)
    runner = Runner.load(agreeing, options)
    fresh = Runner.load(agreeing, RunnerOptions(mode="mtp"))
    seqs = start(runner, random_prompts(3, (20, 61, 90), 255, seed=8), greedy(60))
    while any(seq.phase is Phase.PREFILL for seq in seqs):
        runner.prefill_step([next(seq for seq in seqs if seq.phase is Phase.PREFILL)])
    for _ in range(12):
        runner.decode_step(seqs)
    assert sum(seq.counters.rollbacks for seq in seqs) > 3
    assert runner._core.drafter is not None
    for seq in seqs:
        again = fresh.new_sequence(seq.request_id, seq.tokens(0, seq.total_tokens), greedy(4))
        fresh.admit(again)
        while again.phase is Phase.PREFILL:
            fresh.prefill_step([again])
        rows = seq.computed - len(runner._core.drafter._owed[seq])
        assert rows > 20
        for name in ("keys", "values"):
            kept, anew = (
                getattr(r._core.state.drafter[0], name)
                .view(-1, 64, 2, 32)[s.pages]
                .flatten(0, 1)[:rows]
                for r, s in ((runner, seq), (fresh, again))
            )
            assert torch.equal(kept, anew), name
        owed = runner._core.drafter._owed[seq]
        assert torch.equal(owed[-1:], fresh_hidden(fresh, again, seq.computed - 1))


def fresh_hidden(runner: Runner, seq: Sequence, position: int) -> Tensor:
    """The target's hidden row at a position, computed by one prefill pass elsewhere."""
    other = runner.new_sequence("hidden", seq.tokens(0, position + 1), greedy(2))
    runner.admit(other)
    with torch.inference_mode():
        hidden = target_rows(runner, other, other.tokens(0, position + 1)).hidden
    return hidden[-1:]


def test_fixed_and_adaptive_widths_agree_with_the_target_alone(agreeing: Path) -> None:
    prompts = random_prompts(4, (3, 40, 70), 255, seed=2)
    plain = generate(Runner.load(agreeing), prompts, greedy(40), 1)
    for adaptive in (False, True):
        options = RunnerOptions(mode="mtp", draft_steps=4, adaptive=adaptive)
        spec = generate(Runner.load(agreeing, options), prompts, greedy(40), 4)
        assert [s.output_ids for s in spec] == [s.output_ids for s in plain]
