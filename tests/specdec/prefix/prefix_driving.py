"""Run prompts on a runner with a prefix cache, checking after every step that all is owned once."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch
from driving import greedy
from specdec.block_drafter import BlockDrafter
from specdec.contract import RunnerOptions
from specdec.plan import pool_rows
from specdec.request import Phase, Sequence
from specdec.runner import Runner
from specdec.state import logical_state

MODES: dict[str, dict[str, Any]] = {
    "target-only": {},
    "mtp-fixed": {"mode": "mtp", "draft_steps": 3},
    "mtp-adaptive": {"mode": "mtp", "draft_steps": 7, "adaptive": True},
    "dflash2": {"mode": "dflash2"},
    "dflash2-ring": {"mode": "dflash2", "draft_kv": "ring", "adaptive": True},
    "dspark": {"mode": "dspark"},
}
DRAFTING = [mode for mode in MODES if mode != "target-only"]


def options(folder: Path, mode: str, cache: bool = True, **changes: Any) -> RunnerOptions:
    """``folder``: the target's, with those of its drafters in it."""
    chosen = MODES[mode]
    if chosen.get("mode") in ("dflash2", "dspark"):
        chosen = {**chosen, "draft_model": folder / chosen["mode"]}
    return RunnerOptions(**{**chosen, "prefix_cache": cache, **changes})


def load(folder: Path, mode: str, cache: bool = True, **changes: Any) -> Runner:
    return Runner.load(folder, options(folder, mode, cache, **changes))


def begin(runner: Runner, prompt: Seq[int], new_tokens: int, name: str = "r") -> Sequence:
    seq = runner.new_sequence(name, prompt, greedy(new_tokens))
    assert runner.can_admit(seq)
    runner.admit(seq)
    runner.check_integrity()
    return seq


def advance(runner: Runner, seqs: Seq[Sequence]) -> None:
    """A prefill chunk for the first that needs one, then a decode step of the others."""
    waiting = [seq for seq in seqs if seq.phase is Phase.PREFILL][:1]
    for result in runner.prefill_step(waiting):
        assert result.prefilled_tokens > 0
    runner.check_integrity()
    runner.decode_step([seq for seq in seqs if seq.phase is Phase.DECODE])
    runner.check_integrity()


def finish(runner: Runner, seqs: Seq[Sequence]) -> list[Sequence]:
    while any(seq.phase is not Phase.FINISHED for seq in seqs):
        advance(runner, seqs)
    for seq in seqs:
        assert seq.counters.output_tokens() == len(seq.output_ids)
    return list(seqs)


def run(runner: Runner, prompt: Seq[int], new_tokens: int = 4) -> Sequence:
    """One request from its admission to its end."""
    (seq,) = finish(runner, [begin(runner, prompt, new_tokens)])
    return seq


def assert_empty(runner: Runner) -> None:
    """Nothing is held and nothing is kept."""
    runner.check_integrity()
    size = runner.cache_size
    assert (size.pages, size.idle_pages, size.snapshots, size.snapshot_bytes) == (0, 0, 0, 0)
    assert runner.pool.free_tokens == runner.pool.total_tokens
    assert runner.free_slots == runner.info.max_running_requests


def whole_state(runner: Runner, seq: Sequence) -> dict[str, torch.Tensor]:
    """The target's state behind a sequence, and the drafter's rows but those it still owes."""
    assert seq.slot is not None
    size = runner.info.page_size
    found = logical_state(runner._core.state, seq.slot, seq.pages, size, seq.computed)
    drafter = runner._core.drafter
    if isinstance(drafter, BlockDrafter):
        stop = seq.computed - len(drafter._owed.get(seq, ()))
        first = drafter._backbone.first_seen(stop)
        for layer in range(drafter._backbone.config.layers):
            rows = drafter._memory.read(layer, seq, first, stop)
            found[f"drafter.{layer}.keys"], found[f"drafter.{layer}.values"] = rows
    elif drafter is not None:
        stop = seq.computed - len(drafter._owed[seq])
        rows = torch.tensor(pool_rows(seq.pages, 0, stop, size))
        found["drafter.keys"] = runner._core.state.drafter[0].keys[rows]
        found["drafter.values"] = runner._core.state.drafter[0].values[rows]
        found["drafter.owed"] = drafter._owed[seq]
    return found
