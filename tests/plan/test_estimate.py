"""What a plan sends, counted by hand, and how long that should take."""

from __future__ import annotations

import pytest

from qualify.campaign.schema import Campaign
from qualify.plan import Side
from qualify.planning.build import make_plan
from qualify.planning.estimate import History, Rates, estimate
from qualify.planning.identity import digest_of_cell
from tests.plan.test_build import Engine

CAMPAIGN = Campaign.model_validate(
    {
        "campaign": "t",
        "engine": "e",
        "modes": ["target-only"],
        "sampling": {"output_tokens": 10},
        "workloads": [
            {
                "name": "cold",
                "prompts": {"source": "s", "tokens": 100, "count": 3},
                "warmup": {"count": 2},
            },
            {
                "name": "warm",
                "prompts": {"source": "s", "tokens": 200, "count": 4},
                "warmup": {"count": 0},
                "cache": "warm",
            },
            {
                "name": "talk",
                "prompts": {"source": "s", "tokens": 300, "count": 2, "turns": 5, "growth": 50},
                "warmup": {"count": 1},
                "cache": "session",
            },
        ],
    }
)
PLAN = make_plan(CAMPAIGN, Engine())


def rates(side: Side) -> Rates:
    return Rates(prefill_tps=100.0, decode_tps=10.0, start_s=3.0, source="a test")


def test_every_token_that_is_sent_is_counted_warm_up_and_priming_included() -> None:
    load = estimate(PLAN, rates).load
    # cold: 3 + 2 requests; warm: 4 primed, 4 measured; talk: (2 + 1) conversations of 5 turns
    assert load.requests == 5 + 8 + 15
    turns = 300 + 350 + 400 + 450 + 500
    assert load.prompt_tokens == 5 * 100 + 8 * 200 + 3 * turns
    assert load.output_tokens == 28 * 10


def test_the_time_is_prefill_and_decode_at_the_stated_rates_and_the_start() -> None:
    found = estimate(PLAN, rates)
    assert found.seconds == pytest.approx(3.0 + 8100 / 100 + 280 / 10)
    assert found.basis == ("a test",)
    assert found.launches[0].cells[0] == pytest.approx(500 / 100 + 50 / 10)


def test_without_a_rate_the_time_is_unknown_and_the_tokens_are_not() -> None:
    found = estimate(PLAN, lambda side: None)
    assert found.seconds is None
    assert found.load.requests == 28


def test_what_the_same_cell_took_before_wins_over_rates() -> None:
    cell = PLAN.launches[0].cells[0]
    history = History({("target-only", digest_of_cell(cell)): 42.0}, {})
    found = estimate(PLAN, rates, history)
    assert found.launches[0].cells[0] == 42.0
    assert "the same cells in an earlier run" in found.basis


def test_measured_rates_win_over_stated_ones_of_the_same_side_and_profile() -> None:
    measured = Rates(200.0, 20.0, 1.0, "the run r")
    found = estimate(PLAN, rates, History({}, {("target-only", "small"): measured}))
    assert found.seconds == pytest.approx(1.0 + 8100 / 200 + 280 / 20)
    other = estimate(PLAN, rates, History({}, {("target-only", "large"): measured}))
    assert other.basis == ("a test",)


def test_evaluations_are_part_of_the_sums_and_of_the_time() -> None:
    from qualify.engines.protocol import Sampling
    from qualify.plan import EvalPlan

    asked = EvalPlan(
        "needles", "needles", ("codes",), "chat", Sampling(20), 1, "cold", 9.0,
        ("8192/s0/t0", "fresh/1024/s0/t0"), "f" * 64, prompt_tokens=8192 + 1024,
    )  # fmt: skip
    found = estimate(make_plan(CAMPAIGN, Engine(), evals=(asked,)), rates)
    assert found.load.requests == 28 + 2
    assert found.load.prompt_tokens == 8100 + 9216
    assert found.load.output_tokens == 280 + 40
    assert found.launches[0].evals == (pytest.approx(9216 / 100 + 40 / 10),)
    assert found.seconds == pytest.approx(3.0 + 17316 / 100 + 320 / 10)
