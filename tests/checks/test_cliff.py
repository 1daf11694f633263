"""A mode that breaks away from the target's own growth is named, with the shapes between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualify.checks.cliff import check
from qualify.checks.settings import Settings
from qualify.records.run import Run
from tests.factory import Maker, Mode, Work, drafting, editing, target, where

S = Settings()
SHAPES = (1024, 8192, 65536, 262144)


def grows(tokens: int) -> float:
    """The target's own: its step doubles at 65,536."""
    return 1 + tokens / 65536


def breaks(tokens: int) -> float:
    """As the target until 8,192; from there a verify of eight rows costs eight times one row."""
    return grows(tokens) if tokens <= 8192 else 1 + 8 * tokens / 65536


def made(side: Mode, *, works: tuple[Work, ...] = (Work("code", SHAPES),), **more: object) -> Run:
    sides = {"target-only": target(growth=grows), side.name: side}
    return Maker(sides=sides, works=works, **more).build()  # type: ignore[arg-type]


def test_a_step_that_grows_as_the_targets_passes_and_one_that_breaks_away_is_named() -> None:
    sound = replace(drafting(cycle_ms=20.0), growth=grows)
    (verdict,) = check(made(sound), S)
    assert verdict.outcome == "pass"
    assert verdict.evidence["growth_over_target_pct"] == pytest.approx(0, abs=1e-6)
    (verdict,) = check(made(replace(sound, growth=breaks)), S)
    assert verdict.outcome == "fail"
    assert verdict.subject == "mtp, code"
    assert "between 8,192 and 65,536 tokens" in verdict.sentence
    assert verdict.evidence["between"] == [8192, 65536]
    played = breaks(262144) / breaks(1024) / (grows(262144) / grows(1024))
    assert verdict.evidence["growth_over_target_pct"] == pytest.approx((played - 1) * 100, rel=0.01)


def test_what_is_accepted_changes_no_cycle_and_so_no_verdict() -> None:
    # TPOT more than doubles here because nothing is accepted at the longest shape.
    side = Mode("mtp", 20.0, 3, lambda w, p, s: 0 if w == "prose" else 3, growth=grows)
    works = (Work("code", (1024, 8192)), Work("prose", (65536, 262144)))
    assert {v.outcome for v in check(made(side, works=works), S)} == {"pass"}


def test_workloads_that_each_hold_a_part_of_the_range_are_joined() -> None:
    works = (Work("code", (1024, 8192)), Work("prose", (65536, 262144)))
    side = replace(drafting(cycle_ms=20.0), growth=breaks)
    found = {v.subject: v for v in check(made(side, works=works), S)}
    assert found["mtp, code"].outcome == "pass"
    assert found["mtp, all workloads"].outcome == "fail"
    assert found["mtp, all workloads"].evidence["between"] == [8192, 65536]


def test_a_lookup_drafter_is_held_against_one_text_at_a_time() -> None:
    works = (Work("code", (1024,)), Work("copy", (65536,)))
    side = replace(drafting("ngram", cycle_ms=20.0), growth=breaks)
    (verdict,) = check(made(side, works=works), S)
    assert (verdict.outcome, verdict.demanded) == ("not-run", False)


def test_the_campaign_says_how_much_is_allowed() -> None:
    run = made(replace(drafting(cycle_ms=20.0), growth=breaks))
    assert check(run, Settings({"cliff": {"growth_pct": 1000}}))[0].outcome == "pass"
    mild = made(replace(drafting(cycle_ms=20.0), growth=lambda n: grows(n) ** 1.08))
    assert check(mild, S)[0].outcome == "pass"
    strict = check(mild, Settings({"cliff": {"growth_pct": 1}}))[0]
    assert strict.outcome == "inconclusive"  # 4 requests a shape: noise alone could do that
    assert "too few" in strict.sentence


def test_one_request_a_shape_shows_a_cliff_only_where_it_is_steep() -> None:
    works = (Work("code", SHAPES, count=1),)
    steep = replace(drafting(cycle_ms=20.0), growth=breaks)
    assert check(made(steep, works=works), S)[0].outcome == "fail"
    gentle = replace(steep, growth=lambda n: grows(n) * (1.6 if n > 8192 else 1))
    assert check(made(gentle, works=works), S)[0].outcome == "inconclusive"


def test_without_a_plain_side_or_a_second_shape_nothing_is_judged() -> None:
    alone = Maker(sides={"mtp": drafting(), "dflash2": drafting("dflash2")}).build()
    short = made(drafting(), works=(Work("code", (1024,)),))
    for run in (alone, short):
        (verdict,) = check(run, S)
        assert (verdict.outcome, verdict.demanded) == ("not-run", False)
        (verdict,) = check(run, Settings({"cliff": True}))
        assert (verdict.outcome, verdict.demanded) == ("not-run", True)


def test_an_engine_that_reports_no_steps_has_no_cycle_to_judge() -> None:
    run = made(drafting(), edit=editing(where(side="mtp"), speculation=None))
    (verdict,) = check(run, Settings({"cliff": True}))
    assert verdict.outcome == "not-run"
