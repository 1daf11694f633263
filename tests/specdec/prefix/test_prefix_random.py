"""Random mixes of requests, aborts, retractions and flushes: cold ids, and nothing left behind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from driving import generate, greedy
from prefix_driving import MODES, assert_empty, options
from specdec.contract import RunnerOptions
from specdec.request import Finish, Phase, Sequence
from specdec.runner import Runner

NEW_TOKENS = 10
POOL = 16 * 64  # three of the longest requests do not fit
STEPS = 160


def family(seed: int) -> list[list[int]]:
    """Prompts that share beginnings of many lengths."""
    rng = random.Random(seed)
    trunk = [rng.randrange(255) for _ in range(400)]
    cuts = (1, 63, 64, 65, 128, 200, 256, 257, 300, 320, 399)
    return [
        [*trunk[:cut], *(rng.randrange(255) for _ in range(extra))]
        for cut in cuts
        for extra in (0, 1, 40)
    ]


@pytest.fixture(scope="module")
def cold(agreeing: Path) -> list[list[int]]:
    done = generate(Runner.load(agreeing, RunnerOptions()), family(0), greedy(NEW_TOKENS), 8)
    return [seq.output_ids for seq in done]


class Mix:
    """Up to three requests at once, driven by dice."""

    def __init__(self, runner: Runner, seed: int) -> None:
        self.runner = runner
        self.rng = random.Random(seed)
        self.prompts = family(0)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.done: list[Sequence] = []
        self.retracted = self.aborted = self.flushed = self.reused = 0

    def turn(self, more: bool) -> None:
        if more and len(self.waiting) < 2:
            index = self.rng.randrange(len(self.prompts))
            params = greedy(NEW_TOKENS)
            self.waiting.append(self.runner.new_sequence(str(index), self.prompts[index], params))
        while self.waiting and len(self.running) < 3 and self.runner.can_admit(self.waiting[0]):
            seq = self.waiting.pop(0)
            self.runner.admit(seq)
            self.reused += seq.resumed_at
            self.running.append(seq)
        self._meddle()
        self.runner.prefill_step([seq for seq in self.running if seq.phase is Phase.PREFILL][:1])
        decoding = [seq for seq in self.running if seq.phase is Phase.DECODE]
        while self.runner.pages_short(decoding):
            self._retract(decoding.pop())
        self.runner.decode_step(decoding)
        self.runner.check_integrity()
        self.done += [seq for seq in self.running if seq.phase is Phase.FINISHED]
        self.running = [seq for seq in self.running if seq.phase is not Phase.FINISHED]

    def _meddle(self) -> None:
        dice = self.rng.random()
        if self.running and dice < 0.05:
            self.aborted += 1
            seq = self.running.pop(self.rng.randrange(len(self.running)))
            self.runner.release(seq, Finish("abort"))
        elif self.running and dice < 0.12:
            self._retract(self.rng.choice(self.running))
        elif dice < 0.17:
            self.flushed += 1
            self.runner.flush_cache()
        self.runner.check_integrity()

    def _retract(self, seq: Sequence) -> None:
        self.retracted += 1
        self.running.remove(seq)
        self.runner.retract(seq)
        self.waiting.insert(0, seq)


@pytest.mark.parametrize(
    ("mode", "snapshots"),
    [*((mode, 256) for mode in MODES), ("mtp-fixed", 4), ("dflash2-ring", 4)],
)
def test_a_random_mix_gives_cold_ids_and_leaves_nothing(
    mode: str, snapshots: int, agreeing: Path, cold: list[list[int]]
) -> None:
    chosen = options(
        agreeing, mode, max_total_tokens=POOL, max_running_requests=3, max_snapshots=snapshots,
        prefill_chunk_tokens=96,
    )  # fmt: skip
    mix = Mix(Runner.load(agreeing, chosen), seed=snapshots)
    for _ in range(STEPS):
        mix.turn(more=True)
    while mix.waiting or mix.running:
        mix.turn(more=False)
    assert len(mix.done) > 20
    assert min(mix.retracted, mix.aborted, mix.flushed, mix.reused) > 0
    assert mix.runner.cache_size.evicted_tokens > 0
    for seq in mix.done:
        assert seq.output_ids == cold[int(seq.request_id)], seq.request_id
        assert seq.counters.output_tokens() == NEW_TOKENS
    mix.runner.flush_cache()
    assert_empty(mix.runner)
