"""The continuous requests of the reference article: what each of them reuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from checkpoints import agreeing_checkpoint
from draft_checkpoints import agreeing_draft, agreeing_dspark
from driving import generate, greedy
from prefix_driving import MODES, load, run
from specdec.contract import RunnerOptions
from specdec.request import Sequence
from specdec.runner import Runner

NEW_TOKENS = 4


def continuous(runner: Runner, start: int, common: int) -> list[Sequence]:
    """A start, two appends of 512 tokens each, and a prompt that keeps ``common`` tokens."""
    rng = random.Random(start)

    def fresh(count: int) -> list[int]:
        return [rng.randrange(255) for _ in range(count)]

    done = [run(runner, fresh(start), NEW_TOKENS)]
    for _ in range(2):
        done.append(run(runner, [*done[-1].all_tokens(), *fresh(512)], NEW_TOKENS))
    prompt = [*done[0].prompt_ids[:common], *fresh(512)]
    return [*done, run(runner, prompt, NEW_TOKENS)]


@pytest.mark.parametrize("mode", MODES)
def test_the_continuous_requests_reuse_what_the_table_says(mode: str, agreeing: Path) -> None:
    runner = load(agreeing, mode, max_running_requests=1, context_length=2048)
    done = continuous(runner, 512, 256)
    assert [len(seq.prompt_ids) for seq in done] == [512, 1028, 1544, 768]
    assert [seq.cached_tokens for seq in done] == [0, 515, 1031, 256]
    assert [seq.resume_source for seq in done] == ["empty", "live", "live", "snapshot"]
    cold = Runner.load(agreeing, RunnerOptions(max_running_requests=1))
    plain = generate(cold, [seq.prompt_ids for seq in done], greedy(NEW_TOKENS), 1)
    assert [seq.output_ids for seq in done] == [seq.output_ids for seq in plain]
    assert (cold.cache_size.snapshots, cold.cache_size.snapshot_bytes) == (0, 0)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES)
def test_after_a_long_start_a_compressed_prompt_reuses_4096(mode: str, tmp_path: Path) -> None:
    folder = agreeing_checkpoint(tmp_path, max_position_embeddings=40_960)
    agreeing_draft(folder / "dflash2", folder)
    agreeing_dspark(folder / "dspark", folder)
    size = {"max_running_requests": 1, "max_total_tokens": 65_536, "prefill_chunk_tokens": 4096}
    done = continuous(load(folder, mode, **size), 32_768, 4096)
    assert [len(seq.prompt_ids) for seq in done] == [32_768, 33_284, 33_800, 4608]
    assert [seq.cached_tokens for seq in done] == [0, 32_771, 33_287, 4096]
    assert [seq.resume_source for seq in done] == ["empty", "live", "live", "snapshot"]
    plain = run(Runner.load(folder, RunnerOptions(**size)), done[3].prompt_ids, NEW_TOKENS)
    assert done[3].output_ids == plain.output_ids
