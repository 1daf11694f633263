"""Recommendations follow the numbers and never contradict the verdicts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qualify.analysis import words
from qualify.analysis.analyse import analyse
from qualify.analysis.recommend import MIXED, Row
from qualify.checks.all import run_checks
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from tests.factory import Maker, Mode, Work, drafting, editing, target, where


def rows_of(run: Run) -> tuple[dict[str, Row], tuple[Verdict, ...]]:
    verdicts = run_checks(run)
    rows = analyse(run, verdicts).recommendation
    return {r.cell or r.workload: r for r in rows}, verdicts


def copying(cycle_ms: float = 11.0) -> Mode:
    """Proposes on the copy workload only, like an n-gram lookup."""
    return Mode("ngram", cycle_ms, 4, lambda w, p, s: 3 if w == "copy" else 0)


WORKS = (Work("prose", (256, 1024)), Work("copy", (256,)))


def test_each_workload_gets_the_mode_that_leads_there() -> None:
    rows, _ = rows_of(
        Maker(sides={"target-only": target(), "ngram": copying()}, works=WORKS).build()
    )
    assert rows["copy@256/c1"].mode == "ngram"
    assert rows["prose@256/c1"].mode == "target-only"
    assert rows["prose@1024/c1"].mode == "target-only"
    assert "3.5" in rows["copy@256/c1"].why
    assert "ngram would pay from 1.10 tokens a step (here 1.00)" in rows["prose@256/c1"].reverse
    assert "within these launches only" in rows["copy@256/c1"].sure


def test_a_near_tie_is_called_effectively_tied_and_keeps_the_baseline() -> None:
    rows, _ = rows_of(
        Maker(sides={"target-only": target(), "ngram": copying(10.05)}, works=WORKS).build()
    )
    row = rows["prose@256/c1"]
    assert row.mode == "target-only"
    assert row.also == ("ngram",)
    assert "effectively tied" in row.why


def test_f064_a_net_slowdown_is_told_with_its_reason() -> None:
    # 20 ms against 24 ms a token, at an accept length near 3 of 16.
    mode = drafting("dflash2", cycle_ms=72.0, width=15, right=2)
    rows, _ = rows_of(
        Maker(sides={"target-only": target(20.0), "dflash2": mode}, output_tokens=31).build()
    )
    row = rows["prose@256/c1"]
    assert row.mode == "target-only"
    assert "0.83\u00d7" in row.why
    assert "accept length 3.00 of 16" in row.why
    assert "dflash2 would pay from 3.60 tokens a step (here 3.00)" in row.reverse


def test_a_mode_that_fails_a_check_is_not_recommended_and_the_row_says_why() -> None:
    edit = editing(where(side="mtp", index=0), output_ids=(1, 2, 3))
    rows, verdicts = rows_of(
        Maker(sides={"target-only": target(), "mtp": drafting()}, edit=edit).build()
    )
    row = rows["prose@256/c1"]
    assert any(v.outcome == "fail" for v in verdicts)
    assert row.mode == "target-only"
    assert "mtp is not recommended here: it fails parity" in row.why
    assert row.refused == {"mtp": ["parity"]}


def test_when_two_modes_differ_the_one_that_agrees_with_the_baseline_is_not_blamed() -> None:
    edit = editing(where(side="dflash2", index=0), output_ids=(1, 2, 3))
    sides = {"target-only": target(), "mtp": drafting(), "dflash2": drafting("dflash2", 9.0)}
    rows, _ = rows_of(Maker(sides=sides, edit=edit, checks={"parity": {"pairs": "all"}}).build())
    assert rows["prose@256/c1"].mode == "mtp"
    assert rows["prose@256/c1"].refused == {"dflash2": ["parity"]}


def test_nothing_is_recommended_where_the_baseline_itself_fails() -> None:
    edit = editing(where(side="target-only"), usage__cached_tokens=64)
    rows, _ = rows_of(Maker(sides={"target-only": target(), "mtp": drafting()}, edit=edit).build())
    assert rows["prose@256/c1"].mode is None
    assert "target-only fails cold here" in rows["prose@256/c1"].why


def test_a_lead_without_a_proposal_is_never_recommended() -> None:
    lucky = Mode("ngram", 8.0, 0, lambda w, p, s: 0)
    rows, _ = rows_of(
        Maker(sides={"target-only": target(), "ngram": lucky}, works=WORKS, rounds=3).build()
    )
    assert {r.mode for r in rows.values()} == {"target-only"}
    assert "no merit of it" in rows["prose@256/c1"].why


def test_mixed_work_gets_the_mode_with_the_least_regret() -> None:
    rows, _ = rows_of(
        Maker(sides={"target-only": target(), "ngram": copying()}, works=WORKS).build()
    )
    assert rows[MIXED].mode == "ngram"
    assert "1.10\u00d7 the time of the best in" in rows[MIXED].why
    slow, _ = rows_of(
        Maker(sides={"target-only": target(), "ngram": copying(36.0)}, works=WORKS).build()
    )
    assert slow[MIXED].mode == "target-only"


def test_the_loss_of_a_mode_that_no_comparison_decides_is_said_of_the_baseline() -> None:
    why = words.why_regret(
        "mtp",
        {"target-only": (2.0, "a"), "mtp": (1.0, "a"), "dspark": (2.0, "a"), "slow": (3.0, "b")},
        {},
        "target-only",
        {("mtp", "a"), ("slow", "b")},
    )
    assert "target-only takes 2.00\u00d7 the time of the best in a." in why
    assert "slow takes 3.00\u00d7 the time of the best in b." in why
    assert "dspark takes" not in why
    told = "dspark cannot be told from target-only in a, where target-only takes 2.00\u00d7"
    assert told in why


def test_a_mode_that_failed_anywhere_is_out_for_mixed_work() -> None:
    edit = editing(where(side="ngram", cell="prose@1024/c1", index=0), output_ids=(1,))
    rows, _ = rows_of(
        Maker(sides={"target-only": target(), "ngram": copying()}, works=WORKS, edit=edit).build()
    )
    assert rows["copy@256/c1"].mode == "ngram"
    assert rows[MIXED].mode == "target-only"
    assert "ngram is out: it fails parity" in rows[MIXED].why


@pytest.mark.parametrize("seed", range(12))
def test_no_row_contradicts_the_verdicts_on_any_run(seed: int) -> None:
    rng = random.Random(seed)
    modes = {"target-only": target()}
    for name in ("mtp", "dflash2", "ngram"):
        modes[name] = drafting(name, rng.uniform(8, 40), 4, [rng.randrange(4) for _ in range(3)])
    faults: list[Any] = [
        {"output_ids": (1, 2)},
        {"usage__cached_tokens": 9},
        {"usage__prompt_tokens": 3},
        {"usage__completion_tokens": 5},
        {"ok": False},
        {"speculation": None},
    ]
    edits = [
        editing(where(side=rng.choice(list(modes)), index=rng.randrange(4)), **rng.choice(faults))
        for _ in range(rng.randrange(4))
    ]

    def edit(record):  # type: ignore[no-untyped-def]
        for one in edits:
            record = one(record)
        return record

    rows, verdicts = rows_of(Maker(sides=modes, works=WORKS, edit=edit).build())
    for row in rows.values():
        assert "lossless" not in f"{row.why} {row.sure} {row.reverse}".lower()
        assert row.why
        assert row.sure
        assert row.reverse
        for side in filter(None, (row.mode, *row.also)):
            failing = [
                v
                for v in verdicts
                if v.outcome == "fail"
                and v.demanded
                and v.evidence.get("side") == side
                and (row.cell is None or v.evidence.get("cell") in (None, row.cell))
            ]
            assert not failing, (row, failing)
