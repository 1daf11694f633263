"""Pairs, their factors and outcomes, against runs whose truth is known."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from qualify.analysis.analyse import Analysis, analyse
from qualify.analysis.crossover import crossovers
from qualify.analysis.outcomes import Finding, judge
from qualify.analysis.pairs import PairResult
from qualify.checks.all import run_checks
from qualify.records.run import Run
from qualify.records.schema import CacheEvidence, Record
from tests.factory import Maker, Mode, Work, drafting, editing, target, where


def analysed(run: Run) -> Analysis:
    return analyse(run, run_checks(run))


def pair_of(run: Run) -> PairResult:
    (pair,) = analysed(run).pairs
    return pair


def both(mode: Mode, **more: object) -> Maker:
    more.setdefault("output_tokens", 31)
    sides = {"target-only": target(10.0), mode.name: mode}
    return Maker(sides=sides, **more)  # type: ignore[arg-type]


def test_the_ratio_splits_into_a_step_and_a_token_factor_that_multiply_to_it() -> None:
    pair = pair_of(both(drafting(cycle_ms=12.0, right=2)).build())
    assert pair.decode is not None
    assert pair.decode.ratio == pytest.approx(2.5)  # 10 ms against 12 ms for three tokens
    assert pair.cycle_factor == pytest.approx(10 / 12)
    assert pair.tokens_factor == pytest.approx(3.0)
    assert pair.cycle_factor * pair.tokens_factor == pytest.approx(pair.decode.ratio)


def test_break_even_is_what_a_step_must_commit_at_this_cycle_time() -> None:
    pair = pair_of(both(drafting(cycle_ms=14.0, right=2)).build())
    assert pair.break_even is not None
    assert pair.break_even.needed_tokens_per_step == pytest.approx(1.4)
    assert pair.break_even.reached_tokens_per_step == pytest.approx(3.0)
    assert pair.break_even.needed_accept_length == pytest.approx(1.4)
    assert pair.break_even.reached_accept_length == pytest.approx(3.0)
    # Played again with exactly that much accepted on average, the two tie.
    even = drafting(cycle_ms=14.0, width=3, right=[0, 0, 0, 1, 1])
    tie = pair_of(both(even, output_tokens=71).build())
    assert tie.decode is not None
    assert tie.decode.ratio == pytest.approx(1.0, abs=0.01)


def test_a_break_even_below_one_is_no_accept_length() -> None:
    from qualify.analysis.speculation import break_even_accept_length

    assert break_even_accept_length(1.4, 10, 0) == pytest.approx(1.4)
    # 140 plain steps and one verify step: 141 * 1.1 - 140 tokens must come from that one.
    assert break_even_accept_length(1.1, 1, 140) == pytest.approx(15.1)
    assert break_even_accept_length(0.6, 1, 140) is None
    assert break_even_accept_length(1.1, 0, 140) is None


def test_wall_and_decode_speed_up_differ_where_prefill_dominates() -> None:
    pair = pair_of(both(drafting(cycle_ms=15.0, right=2), works=(Work(tokens=(32768,)),)).build())
    assert pair.decode is not None
    assert pair.wall is not None
    assert pair.decode.ratio == pytest.approx(2.0)
    assert pair.wall.ratio == pytest.approx((32.768 + 0.3) / (32.768 + 0.15))


def test_a_ttft_difference_is_not_credited_to_a_mode() -> None:
    def slower_prefill(record: Record) -> Record:
        if record.side != "mtp":
            return record
        timing = record.timing
        shifted = {
            name: (getattr(timing, name) or 0.0) + 1.0
            for name in ("ttft_s", "t_first_s", "t_last_s", "t_end_s")
        }
        return dataclasses.replace(record, timing=dataclasses.replace(timing, **shifted))

    pair = pair_of(both(drafting(cycle_ms=15.0, right=2), edit=slower_prefill).build())
    assert pair.wall is not None
    assert pair.wall.ratio == pytest.approx((0.256 + 0.3) / (1.256 + 0.15))
    assert pair.wall_same_prefill == pytest.approx((0.256 + 0.3) / (0.256 + 0.15))


def test_unequal_output_lengths_are_not_compared() -> None:
    edit = editing(where(side="mtp", index=0), usage__completion_tokens=20)
    pair = pair_of(both(drafting(), edit=edit).build())
    assert pair.prompts == 3
    assert pair.left_out == {"unequal output lengths": 1}


def test_sides_under_different_cache_protocols_are_refused() -> None:
    edit = editing(where(side="mtp"), cache=CacheEvidence("warm", "none"))
    pair = pair_of(both(drafting(), edit=edit).build())
    assert pair.decode is None
    assert pair.refused == "not like with like: cache"


def test_one_prompt_gives_a_direction_and_no_interval() -> None:
    pair = pair_of(both(drafting(), works=(Work(count=1),)).build())
    assert pair.decode is not None
    assert (pair.decode.basis, pair.decode.low) == ("one", None)
    assert pair.decode.outcome == "not enough data"
    assert pair.decode.direction == "faster"


def test_fewer_than_three_rounds_hold_within_these_launches_only() -> None:
    finding = pair_of(both(drafting(right=[1, 2, 3]), rounds=2).build()).decode
    assert finding is not None
    assert (finding.basis, finding.scope) == ("prompts", "within these launches only")


def test_from_three_rounds_the_interval_is_over_rounds() -> None:
    factors = {1: 1.0, 2: 1.02, 3: 0.98}
    maker = both(drafting(cycle_ms=12.0, right=2), rounds=3, self_parity=False)
    maker.clock_noise = lambda launch, round_, prompt: factors[round_] if "mtp" in launch else 1.0
    finding = pair_of(maker.build()).decode
    assert finding is not None
    assert (finding.basis, finding.n, finding.scope) == ("rounds", 3, "across launches, few rounds")
    logs = [math.log(2.5 / f) for f in factors.values()]
    centre = sum(logs) / 3
    spread = math.sqrt(sum((x - centre) ** 2 for x in logs) / 2)
    half = 4.302653 * spread / math.sqrt(3)  # t(2) at 95%, from a table
    assert finding.ratio == pytest.approx(math.exp(centre))
    assert finding.low == pytest.approx(math.exp(centre - half), rel=1e-5)
    assert finding.high == pytest.approx(math.exp(centre + half), rel=1e-5)


def values(*rounds: list[float]) -> dict[int, dict[tuple[str, int], float]]:
    return {
        n: {(str(i), 0): math.log(v) for i, v in enumerate(row)} for n, row in enumerate(rounds)
    }


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ([1.2, 1.21, 1.19, 1.2], "ahead"),
        ([0.8, 0.81, 0.79, 0.8], "behind"),
        ([1.0, 1.01, 0.99, 1.0], "tied"),
        ([1.3, 0.8, 1.1, 0.9], "not enough data"),
        ([1.02, 1.021, 1.019, 1.02], "tied"),  # real, and too small to matter
        ([1.2], "not enough data"),
    ],
)
def test_an_interval_decides_between_four_words(ratios: list[float], outcome: str) -> None:
    finding = judge(values(ratios), 0.03)
    assert finding is not None
    assert finding.outcome == outcome


def test_a_true_tie_is_rarely_called_ahead_and_a_true_lead_is_called() -> None:
    rng = random.Random(7)

    def campaign(truth: float) -> str:
        rounds = []
        for _ in range(5):
            launch = rng.gauss(0, 0.028)
            rounds.append(
                [math.exp(math.log(truth) + launch + rng.gauss(0, 0.02)) for _ in range(10)]
            )
        finding = judge(values(*rounds), 0.03)
        assert finding is not None
        return finding.outcome

    ties = [campaign(1.0) for _ in range(400)]
    leads = [campaign(1.1) for _ in range(400)]
    assert sum(t in ("ahead", "behind") for t in ties) <= 0.05 * 400
    assert leads.count("ahead") >= 0.8 * 400


def test_a_noisy_relaunch_of_the_baseline_widens_what_counts_as_tied() -> None:
    slow_again = target(10.0, launch_factor=lambda n: 1.06 if n == 2 else 1.0)
    maker = Maker(
        sides={"target-only": slow_again, "mtp": drafting(cycle_ms=31 * 10 / 32, width=0, right=0)},
        output_tokens=31,
    )
    found = analysed(maker.build())
    assert found.margin.value == pytest.approx(0.06)
    assert "relaunching target-only alone" in found.margin.source
    (pair,) = found.pairs
    assert pair.decode is not None
    assert pair.decode.outcome == "tied"  # 1.03x: less than a restart does
    assert found.self_pairs[0].decode is not None
    assert found.self_pairs[0].decode.ratio == pytest.approx(1 / 1.06)


def test_a_gain_without_a_single_proposal_shows_what_chance_can_do() -> None:
    lucky = Mode("ngram", 8.0, 0, lambda w, p, s: 0)
    found = analysed(both(lucky, works=(Work("prose"), Work("code"))).build())
    assert found.margin.value == pytest.approx(0.25)
    assert "proposed nothing" in found.margin.source
    assert {p.decode.outcome for p in found.pairs if p.decode} <= {"tied", "not enough data"}


def test_throughput_is_compared_by_rounds_and_apart_from_decode() -> None:
    pair = pair_of(both(drafting(cycle_ms=15.0, right=2), works=(Work(concurrency=(2,)),)).build())
    window = {"target": 2 * (0.256 + 0.3 + 0.001), "mtp": 2 * (0.256 + 0.15 + 0.001)}
    assert pair.throughput_ratio == pytest.approx(window["target"] / window["mtp"], rel=1e-6)


def point(tokens: int, outcome: str) -> PairResult:
    pair = pair_of(both(drafting()).build())
    ratio = {"ahead": 1.2, "behind": 0.8, "tied": 1.0, "not enough data": 1.1}[outcome]
    finding = Finding(ratio, ratio, ratio, "prompts", 4, "", 0.03, outcome, "")
    return dataclasses.replace(pair, tokens=tokens, cell=f"prose@{tokens}/c1", decode=finding)


def test_a_crossover_is_bracketed_between_the_shapes_that_decide_it() -> None:
    pairs = [point(256, "ahead"), point(1024, "tied"), point(4096, "behind")]
    (found,) = crossovers(pairs)
    assert found.bracket == (256, 4096)
    assert found.leads_before == "mtp"


def test_no_change_of_lead_is_said_and_never_extrapolated() -> None:
    (found,) = crossovers([point(256, "behind"), point(1024, "behind")])
    assert found.bracket is None
    assert "No crossover in the measured range (256 to 1,024 tokens)" in found.sentence
    (found,) = crossovers([point(256, "tied"), point(1024, "not enough data")])
    assert "neither leads anywhere" in found.sentence


def test_requests_that_failed_on_either_side_stay_out_of_the_pair() -> None:
    def edit(record: Record) -> Record:
        failing = record.side == "mtp" and record.index == 1
        return dataclasses.replace(record, ok=False) if failing else record

    assert pair_of(both(drafting(), edit=edit).build()).prompts == 3
