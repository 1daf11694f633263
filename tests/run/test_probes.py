"""Probes: extra requests after the cells, written step by step, harmless to everything else."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from qualify.plan import Plan, ProbePlan
from qualify.planning.probes import graphs as planner
from qualify.planning.probes.facts import Facts
from qualify.records.schema import ProbeRecord
from qualify.records.store import load_run
from qualify.run import events as e
from qualify.run.probes import PROBES
from qualify.run.probes.probing import Probing
from tests.run.drive import cell, drive, engine, plan

CONFIG = '{"decode":{"backend":"full","bs":[1,2,4]},"prefill":{"backend":"disabled"}}'


def facts(context: int | None = 512, *named: str) -> Facts:
    return Facts(context, None, None, None, None, {"cuda-graph-config": CONFIG}, frozenset(named))


def probed(*probes: ProbePlan, cells: Sequence[str] = ("one",)) -> Plan:
    made = plan([cell(name) for name in cells])
    launches = tuple(dataclasses.replace(item, probes=probes) for item in made.launches)
    return dataclasses.replace(made, launches=launches)


def graphs_plan(context: int | None = 512) -> ProbePlan:
    made = planner.plan(plan([cell("one")]).launches[0], facts(context), {})
    assert made is not None
    return made


def steps(folder: Path) -> list[ProbeRecord]:
    return [line for line in load_run(folder).probes if line.request is not None]


def test_every_captured_size_another_one_and_the_longest_context_are_sent_after_the_cells(
    tmp_path: Path,
) -> None:
    drive(tmp_path / "run", probed(graphs_plan()), engine(tmp_path, "--context", "512"))
    run = load_run(tmp_path / "run")
    sent = steps(tmp_path / "run")
    sizes = [line.seen["size"] for line in sent if line.step == "batch"]
    assert sizes == [1, 2, 2, 4, 4, 4, 4, 3, 3, 3]
    (longest,) = [line.request for line in sent if line.step == "longest"]
    assert longest is not None
    assert longest.tokens + planner.OUTPUT_TOKENS == 512
    assert all(line.request and line.request.ok for line in sent)
    assert (run.probes[-1].status, run.probes[-1].probe) == ("finished", "graphs")
    # They enter no figure, and came when the cells were done.
    assert {r.phase for r in run.records} == {"probe", "warmup", "measured"}
    assert len(run.measured()) == 3
    assert min(line.at for line in run.probes) >= run.cells[0].started_at


def test_the_members_of_a_batch_are_in_flight_together(tmp_path: Path) -> None:
    drive(tmp_path / "run", probed(graphs_plan()), engine(tmp_path, "--context", "512"))
    four = [line.request for line in steps(tmp_path / "run") if line.seen.get("size") == 4]
    starts = [r.t_start_s for r in four if r is not None]
    ends = [r.t_start_s + (r.timing.t_end_s or 0) for r in four if r is not None]
    assert max(starts) < min(ends)


def test_a_probe_that_breaks_ends_alone_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(probing: Probing) -> None:
        probing.note("first", looked=1)
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(PROBES, "broken", broken)
    other = dataclasses.replace(graphs_plan(), name="broken")
    outcome = drive(
        tmp_path / "run", probed(other, graphs_plan()), engine(tmp_path, "--context", "512")
    )
    assert (outcome.measured, outcome.failed) == (1, 0)
    ends = {p.probe: p for p in load_run(tmp_path / "run").probes if p.status != "step"}
    assert ends["broken"].status == "failed"
    assert "ZeroDivisionError: by nothing" in str(ends["broken"].reason)
    assert ends["graphs"].status == "finished"


def test_an_engine_that_dies_in_a_probe_fails_it_and_starts_again_for_the_next(
    tmp_path: Path,
) -> None:
    # Two requests of the planted prompt, four of the cell: the seventh is the first probe's.
    first = dataclasses.replace(graphs_plan(), name="graphs")
    second = dataclasses.replace(graphs_plan(), name="again")
    PROBES["again"] = PROBES["graphs"]
    try:
        outcome = drive(
            tmp_path / "run",
            probed(first, second),
            engine(tmp_path, "--context", "512", "--fault", "6=exit"),
        )
    finally:
        del PROBES["again"]
    assert (outcome.measured, outcome.failed) == (1, 0)
    ends = {p.probe: p for p in load_run(tmp_path / "run").probes if p.status != "step"}
    assert "the engine ended during the probe: exit code 1" in str(ends["graphs"].reason)
    assert ends["again"].launch == "r1.target-only#2"


def test_a_finished_probe_is_not_sent_again_and_a_killed_one_is_sent_whole(tmp_path: Path) -> None:
    resolver = engine(tmp_path, "--context", "512")
    folder = tmp_path / "run"
    drive(folder, probed(graphs_plan()), resolver)
    before = (folder / "probes.jsonl").read_bytes()
    drive(folder, probed(graphs_plan()), resolver, resume=True)
    assert (folder / "probes.jsonl").read_bytes() == before
    lines = before.splitlines(keepends=True)
    (folder / "probes.jsonl").write_bytes(b"".join(lines[:5]))  # killed in the second batch
    outcome = drive(folder, probed(graphs_plan()), resolver, resume=True)
    assert outcome.measured == 1
    run = load_run(folder)
    assert {line.launch for line in run.probes} == {"r1.target-only#2"}
    assert len(run.probes) == len(lines)
    # What the killed attempt wrote is kept in the file.
    assert (folder / "probes.jsonl").read_bytes().startswith(b"".join(lines[:5]))


def test_a_failed_probe_is_sent_again_by_a_resume(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refusals = [word for _ in range(60) for word in ("--flush-response", "400")]
    the_plan = probed(graphs_plan())
    the_plan = dataclasses.replace(
        the_plan, launches=tuple(dataclasses.replace(i, cells=()) for i in the_plan.launches)
    )
    drive(folder, the_plan, engine(tmp_path, "--context", "512", *refusals))
    (end,) = [p for p in load_run(folder).probes if p.status != "step"]
    assert "could not be flushed" in str(end.reason)
    drive(folder, the_plan, engine(tmp_path, "--context", "512"), resume=True)
    (end,) = [p for p in load_run(folder).probes if p.status != "step"]
    assert (end.status, end.launch) == ("finished", "r1.target-only#2")


def test_the_work_of_probes_is_in_the_progress_from_the_start(tmp_path: Path) -> None:
    seen: list[e.Event] = []
    drive(
        tmp_path / "run", probed(graphs_plan()), engine(tmp_path, "--context", "512"),
        watch=seen.append,
    )  # fmt: skip
    (started,) = [event for event in seen if isinstance(event, e.RunStarted)]
    done = [event for event in seen if isinstance(event, e.RequestDone) and event.cell != "probe"]
    assert started.work_tokens == sum(event.work_tokens for event in done)
