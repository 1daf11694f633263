"""Two ranks draft as one does with the trained block drafters: same ids, same counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import finish, greedy, random_prompts, start
from specdec.contract import Mode, RunnerOptions
from specdec.parallel.ranks import Ranks
from specdec.runner import Runner
from together import together

MODELS = Path(__file__).parents[3] / "fixtures/models"


@pytest.mark.parametrize("mode", ["dflash2", "dspark"])
def test_ids_drafts_and_confidence_are_those_of_one_rank(mode: Mode) -> None:
    options = RunnerOptions(
        mode=mode, draft_model=MODELS / f"tiny-qwen3.5-{mode}", device="cpu", threads=1,
        max_total_tokens=512, max_running_requests=2,
    )  # fmt: skip
    prompts = [random_prompts(1, [n], 4000, seed=n)[0] for n in (12, 40)]

    def program(ranks: Ranks | None) -> list[tuple[object, ...]]:
        runner = Runner.load(MODELS / "tiny-qwen3.5", options, ranks)
        seqs = finish(runner, start(runner, prompts, greedy(18)))
        return [
            (s.output_ids, s.counters.correct_histogram, s.counters.confidence_mean) for s in seqs
        ]

    one, two = program(None), together(2, program)
    assert two == [one, one]
