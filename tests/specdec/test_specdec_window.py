"""A sliding window through the whole model: one answer in every mode, and what it may not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from driving import generate, greedy, random_prompts
from specdec.contract import RunnerOptions
from specdec.errors import SpecdecError
from specdec.runner import Runner
from specdec.solo import answer
from test_specdec_reference import engine_logits

WINDOW: dict[str, Any] = {"attention_window": 70, "attention_sink_tokens": 5}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return random_prompts(4, [40, 190, 260], 256, 12)


@pytest.fixture(scope="module")
def expected(agreeing: Path, prompts: list[list[int]]) -> list[list[int]]:
    runner = Runner.load(agreeing, RunnerOptions(**WINDOW))
    assert runner.info.invariance.prefill_exact
    return [s.output_ids for s in generate(runner, prompts, greedy(20), 1)]


@pytest.mark.parametrize(
    ("options", "batch"),
    [
        ({"prefill_chunk_tokens": 13}, 4),
        ({"mode": "mtp"}, 1),
        ({"mode": "mtp", "draft_steps": 7, "prefill_chunk_tokens": 64}, 4),
        ({"mode": "dflash2"}, 4),
        ({"mode": "dspark"}, 4),
    ],
)
def test_drafts_batches_and_chunks_change_nothing_within_a_window(
    options: dict[str, Any],
    batch: int,
    agreeing: Path,
    prompts: list[list[int]],
    expected: list[list[int]],
) -> None:
    if options.get("mode") in ("dflash2", "dspark"):
        options = {**options, "draft_model": agreeing / options["mode"]}
    runner = Runner.load(agreeing, RunnerOptions(**WINDOW, **options))
    seqs = generate(runner, prompts, greedy(20), batch)
    assert [s.output_ids for s in seqs] == expected
    if "mode" in options:
        assert sum(s.counters.rollbacks for s in seqs) > 0


@pytest.mark.parametrize("mode", ["target-only", "mtp"])
def test_the_prefix_cache_is_exact_within_a_window(
    mode: Any, agreeing: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    runner = Runner.load(agreeing, RunnerOptions(mode=mode, prefix_cache=True, **WINDOW))
    for prompt, ids in zip(prompts, expected, strict=True):
        for reused in (0, len(prompt) - 1):
            done = answer(runner, "x", prompt, greedy(20)).sequence
            assert (done.output_ids, done.cached_tokens) == (ids, reused)
    runner.check_integrity()


def test_a_window_that_covers_the_context_gives_the_same_bits(random_checkpoint: Path) -> None:
    ids = random_prompts(1, [180], 256, 4)[0]
    full = engine_logits(random_checkpoint, ids, [180])
    covering = engine_logits(random_checkpoint, ids, [180], attention_window=192)
    assert torch.equal(covering, full)
    short = engine_logits(random_checkpoint, ids, [180], attention_window=64)
    assert torch.equal(short[:64], full[:64])  # rows that it covers
    assert not torch.equal(short[64:], full[64:])
    sunk = engine_logits(
        random_checkpoint, ids, [180], attention_window=64, attention_sink_tokens=4
    )
    assert not torch.equal(sunk, short)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**WINDOW, "kv_cache_dtype": "fp8"}, "does not go with --kv-cache-dtype fp8"),
        ({"attention_sink_tokens": 4}, "needs an --attention-window"),
        ({"attention_window": -1}, "0 or more"),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_the_start(
    options: dict[str, Any], said: str, random_checkpoint: Path
) -> None:
    with pytest.raises(SpecdecError, match=said):
        Runner.load(random_checkpoint, RunnerOptions(**options))
