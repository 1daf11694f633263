"""Public faults whose small input is a set of records: what is judged and shown of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qualify.analysis.timing import CellStats, cell_stats
from qualify.checks import prefill
from qualify.checks.all import run_checks
from qualify.checks.outcome import outcome_of
from qualify.checks.select import places
from qualify.checks.settings import Settings
from qualify.records.run import Run
from qualify.records.schema import CacheEvidence, Record, Timing
from qualify.report.assemble import assemble
from qualify.report.html import render_html
from tests.client.streams import public_faults
from tests.factory import Maker, Work, drafting, editing, target, where
from tests.report.test_report import text_of


def rows_of(case: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = public_faults()[case]["repro"]["rows"]
    return rows


def first_cell(run: Run) -> CellStats:
    return cell_stats(places(run)[0])


def test_f041_records_of_a_flushed_and_an_unflushed_side_stand_in_no_comparison() -> None:
    cold, warm = rows_of("F041")

    def as_told(record: Record) -> Record:
        row = cold if record.side == "target-only" else warm
        cache = CacheEvidence("cold", "flush", 200, 0.1, 1)
        if row is warm:
            cache = CacheEvidence("cold", "none")
        timing = dataclasses.replace(record.timing, ttft_s=row["ttft_ms"] / 1e3)
        return dataclasses.replace(record, timing=timing, cache=cache)

    work = Work(tokens=(cold["prompt_tokens"],))
    sides = {"target-only": target(), "mtp": drafting()}
    run = Maker(sides=sides, works=(work,), method="flush", edit=as_told).build()
    report = assemble(run)
    (pair,) = report.analysis.pairs
    assert pair.decode is None
    assert pair.refused == "not like with like: cache"
    flushed = next(r for r in run.measured() if r.side == "target-only")
    assert (flushed.cache.policy, flushed.cache.method) == ("cold", "flush")
    assert (flushed.cache.flush_status, flushed.cache.flush_s) == (200, 0.1)
    assert flushed.usage.cached_tokens == 0


def test_f044_a_ttft_that_is_flat_over_four_times_the_context_withholds_the_mark() -> None:
    ttft = {row["prompt_tokens"]: row["ttft_ms"] / 1e3 for row in rows_of("F044")}
    flat = editing(
        where(), timing__ttft_s=lambda r: ttft[r.tokens], usage__cached_tokens=lambda r: None
    )
    run = Maker(works=(Work(tokens=tuple(ttft)),), edit=flat, self_parity=False).build()
    verdict = prefill.check(run, Settings({}))[0]
    assert verdict.outcome == "fail"
    assert "TTFT does not grow with prompt length in cold cells" in verdict.sentence
    outcome = outcome_of(run, run_checks(run))
    assert outcome.word == "not qualified"
    assert outcome.exit_code == 1


def test_f046_the_opening_burst_is_told_apart_from_the_steady_part() -> None:
    rows = rows_of("F046")
    concurrency = sum(row["start_ms"] == 0 for row in rows)
    assert (len(rows), concurrency) == (48, 8)

    def as_told(record: Record) -> Record:
        row = rows[record.index]
        ttft = row["ttft_ms"] / 1e3
        timing = Timing(
            "first-event", ttft, ttft, ttft + 1.2, ttft + 1.2, 1, 10.0, 10.0, 10.0, ttft, ()
        )
        return dataclasses.replace(record, t_start_s=row["start_ms"] / 1e3, timing=timing)

    work = Work(count=48, concurrency=(concurrency,))
    run = Maker(works=(work,), edit=as_told, self_parity=False).build()
    stats = first_cell(run)
    assert stats.ttft_s.n == 48
    assert stats.ttft_s.max == pytest.approx(1.6)
    assert stats.ttft_steady_s is not None
    assert stats.ttft_steady_s.n == 40
    assert stats.ttft_steady_s.max == pytest.approx(0.21)
    # 48 requests carry no 99th percentile; what the whole set shows says that it has the burst.
    assert stats.ttft_s.p99 is None
    page = text_of(render_html(assemble(run)))
    assert "with first wave" in page
    assert "the TTFT of all requests contains that burst, the steady part leaves it out" in page
    assert "n 48" in page
    assert "n 40" in page


def test_f046_a_99th_percentile_of_the_whole_set_is_that_of_the_burst_and_labelled() -> None:
    def as_told(record: Record) -> Record:
        ttft = 1.6 if record.index < 8 else 0.21
        timing = dataclasses.replace(record.timing, ttft_s=ttft, t_first_s=ttft)
        return dataclasses.replace(record, timing=timing)

    work = Work(count=120, concurrency=(8,))
    run = Maker(works=(work,), edit=as_told, self_parity=False).build()
    stats = first_cell(run)
    assert stats.ttft_s.p99 == pytest.approx(1.6)
    assert stats.ttft_steady_s is not None
    assert stats.ttft_steady_s.p99 == pytest.approx(0.21)
    page = text_of(render_html(assemble(run)))
    assert "p90 0.21 with first wave" in " ".join(page.split())


def test_f061_one_right_draft_in_1023_steps_is_a_dead_drafter_though_parity_passes() -> None:
    (row,) = rows_of("F061")
    seen = [0]

    def right(_: str, __: int, ___: int) -> int:
        seen[0] += 1
        return int(seen[0] % row["verify_steps"] == 1)

    mode = dataclasses.replace(drafting(width=7), accepted=right)
    run = Maker(
        sides={"target-only": target(), "mtp": mode},
        works=(Work(count=1),),
        output_tokens=row["completion_tokens"] + 1,
    ).build()
    report = assemble(run)
    (dead,) = [v for v in report.verdicts if v.check == "acceptance"]
    assert dead.outcome == "fail"
    assert "contributes nothing" in dead.sentence
    parity = [v for v in report.verdicts if v.check == "parity"]
    assert {v.outcome for v in parity} == {"pass"}
    assert report.outcome.exit_code == 1


def test_f094_a_million_tokens_a_second_is_shown_flagged_and_enters_no_mean() -> None:
    rows = rows_of("F094")

    def as_told(record: Record) -> Record:
        row = rows[record.index]
        timing = dataclasses.replace(record.timing, tpot_ms=row["tpot_ms"])
        usage = dataclasses.replace(record.usage, completion_tokens=row["completion_tokens"])
        return dataclasses.replace(record, timing=timing, usage=usage)

    run = Maker(works=(Work(count=3),), edit=as_told, output_tokens=128, self_parity=False).build()
    stats = first_cell(run)
    assert (stats.tpot_ms.n, stats.tpot_ms.median) == (2, pytest.approx(10.1))
    assert stats.per_user_tok_s == pytest.approx(1000 / 10.1)
    assert sum(stats.tpot_left_out.values()) == 1
    (odd,) = [v for v in run_checks(run) if v.check == "implausible"]
    assert odd.outcome == "inconclusive"
    assert odd.evidence["flagged"][0]["tpot_ms"] == 0.001
