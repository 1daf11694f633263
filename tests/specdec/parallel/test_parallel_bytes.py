"""Two ranks give the bytes of one: logits, state and tokens, with and without drafts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import finish, greedy, random_prompts, start, step
from specdec.contract import RunnerOptions
from specdec.parallel.ranks import Ranks
from specdec.plan import Span, plan_pass
from specdec.request import Phase, SamplingParams
from specdec.runner import Runner
from specdec.state import ModelState, logical_state
from test_specdec_fp8 import fp8_checkpoint
from together import together
from torch import Tensor

FIXTURE = Path(__file__).parents[3] / "fixtures/models/tiny-qwen3.5"
SHORT, MIDDLE, LONG = (random_prompts(1, [n], 256, seed=n)[0] for n in (9, 40, 70))


def options(mode: str, **changes: Any) -> RunnerOptions:
    settings: dict[str, Any] = {
        "mode": mode, "device": "cpu", "threads": 1, "max_total_tokens": 1024,
        "max_running_requests": 3, "draft_steps": 3 if mode == "mtp" else None, **changes,
    }  # fmt: skip
    return RunnerOptions(**settings)  # type: ignore[arg-type]


def alone_and_together(program: Callable[[Ranks | None], Any]) -> tuple[Any, list[Any]]:
    return program(None), together(2, program)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("agreeing", "target-only"),
        ("agreeing", "mtp"),
        ("agreeing", "dflash2"),
        ("agreeing", "dspark"),
        ("fixture", "mtp"),
    ],
)
def test_ids_and_counts_of_a_batch_are_those_of_one_rank(
    agreeing: Path, name: str, mode: str
) -> None:
    folder = agreeing if name == "agreeing" else FIXTURE
    changes: dict[str, Any] = {"draft_model": folder / mode} if mode.startswith("d") else {}

    def program(ranks: Ranks | None) -> list[tuple[list[int], int, int]]:
        runner = Runner.load(folder, options(mode, **changes), ranks)
        seqs = finish(runner, start(runner, [SHORT, MIDDLE, LONG], greedy(12)))
        return [(s.output_ids, s.counters.verify_steps, s.counters.correct_drafts) for s in seqs]

    one, two = alone_and_together(program)
    assert two == [one, one]
    if mode != "target-only":
        assert sum(correct for _, _, correct in one) > 0


def test_logits_and_state_are_those_of_one_rank_bit_for_bit(agreeing: Path) -> None:
    def program(ranks: Ranks | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        runner = Runner.load(agreeing, options("target-only"), ranks)
        core = runner._core
        state = ModelState(core.state.config, 1, 128, (), torch.device("cpu"))
        with torch.inference_mode():
            found = []
            for first, stop in ((0, 60), (60, 61), (61, 66)):  # prefill, decode, verify
                span = Span(0, [0, 1], first, LONG[first:stop])
                plan = plan_pass([span], 64, core.conv_taps, core.device)
                found.append(core.target.rows(plan, state).hidden)
            hidden = torch.cat(found)
            return hidden, core.target.logits(hidden), logical_state(state, 0, [0, 1], 64, 66)

    (hidden, logits, whole), ranks = alone_and_together(program)
    for got_hidden, got_logits, _ in ranks:
        assert torch.equal(got_hidden, hidden)
        assert torch.equal(got_logits, logits)
    shares = [state for _, _, state in ranks]
    for name, tensor in whole.items():
        if not name.endswith("rows"):
            heads = 1 if name.endswith(("keys", "values")) else 0
            assert torch.equal(torch.cat([s[name] for s in shares], heads), tensor), name
            # Sharded, not copied: each rank holds half of the heads.
            assert shares[0][name].shape[heads] * 2 == tensor.shape[heads]


def test_weights_in_fp8_blocks_that_fall_on_no_ranks_edge_give_the_logits_of_one_rank(
    tmp_path: Path,
) -> None:
    stored, _ = fp8_checkpoint(tmp_path)

    def program(ranks: Ranks | None) -> tuple[Tensor, bool | None]:
        runner = Runner.load(stored, options("target-only"), ranks)
        core = runner._core
        state = ModelState(core.state.config, 1, 128, (), torch.device("cpu"))
        with torch.inference_mode():
            plan = plan_pass([Span(0, [0, 1], 0, LONG)], 64, core.conv_taps, core.device)
            logits = core.target.logits(core.target.rows(plan, state).hidden)
        return logits, runner.info.invariance.shares_exact

    (logits, _), ranks = alone_and_together(program)
    for got, exact in ranks:
        assert torch.equal(got, logits)
        assert exact is True


def test_draws_and_log_probabilities_are_those_of_one_rank(agreeing: Path) -> None:
    params = SamplingParams(
        max_new_tokens=12, temperature=0.8, top_p=0.9, seed=7, ignore_eos=True, top_logprobs=3
    )

    def program(ranks: Ranks | None) -> list[Any]:
        runner = Runner.load(agreeing, options("mtp"), ranks)
        seqs, told = start(runner, [SHORT, MIDDLE], params), []
        while any(seq.phase is not Phase.FINISHED for seq in seqs):
            told += [(result.tokens, result.logprobs) for result in step(runner, seqs)]
        return told

    one, two = alone_and_together(program)
    assert two == [one, one]


def test_a_prefix_hit_and_a_retraction_under_ranks_give_the_ids_of_a_cold_rank(
    agreeing: Path,
) -> None:
    first, again = LONG[:60], LONG[:50] + SHORT

    def program(ranks: Ranks | None) -> tuple[list[list[int]], int]:
        runner = Runner.load(agreeing, options("mtp", prefix_cache=True), ranks)
        outputs, reused = [], 0
        for prompt in (first, again, first):
            seq = start(runner, [prompt], greedy(12))[0]
            for _ in range(3):
                step(runner, [seq])
            runner.retract(seq)
            runner.admit(seq)
            while seq.phase is not Phase.FINISHED:
                step(runner, [seq])
            runner.check_integrity()
            outputs.append(seq.output_ids)
            reused += seq.cached_tokens
        return outputs, reused

    def cold(ranks: Ranks | None) -> list[list[int]]:
        runner = Runner.load(agreeing, options("target-only"), ranks)
        prompts = (first, again, first)
        return [finish(runner, start(runner, [p], greedy(12)))[0].output_ids for p in prompts]

    expected = cold(None)
    for outputs, reused in together(2, program):
        assert outputs == expected
        assert reused > 0


def test_a_rank_holds_half_of_the_weights_and_of_the_state(agreeing: Path) -> None:
    one = Runner.load(agreeing, options("mtp")).info
    for two in together(2, lambda ranks: Runner.load(agreeing, options("mtp"), ranks).info):
        assert two.tp_size == 2
        assert two.parameters == one.parameters
        small = 0.02 * one.weight_bytes  # norms, which every rank has whole
        assert abs(two.weight_bytes - one.weight_bytes / 2) < small
        assert two.kv_bytes_per_token * 2 == one.kv_bytes_per_token
        assert two.invariance.shares_exact is True
        assert two.invariance.prefill_exact == one.invariance.prefill_exact
