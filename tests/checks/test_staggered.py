"""Requests that join others under way: the batch that changes must change no answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from qualify.checks import parity
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.planning.probes import with_probes
from qualify.records.store import load_run
from tests.run.drive import cell, drive, engine, plan
from tests.run.flawed import Threaded
from tests.scripted_engine.engine import ScriptedEngine
from tests.scripted_engine.generation import Ask
from tests.scripted_engine.server import Answer, Seen

CHECKS = {"parity": {"staggered": True}}


class Sound(ScriptedEngine):
    def __init__(self, **more: Any) -> None:
        super().__init__("sglang", step_ms=8, ttft_ms=10, **more)


class WrongWhenJoined(Sound):
    """Who joins a running batch gets its neighbour's rows."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        self.diverge_at = 2 if self.running else None
        return super().generate(seen, ask, shape, too_long)


def verdicts(folder: Path, served: ScriptedEngine) -> dict[str, Verdict]:
    made = plan([cell("prose", count=4, warmup=0)], ("mtp",))
    launches = tuple(with_probes(made.launches, CHECKS, {}))
    assert launches[0].probes[0].options["count"] == 4
    with Threaded(served) as url:
        folder.mkdir()
        the_plan = dataclasses.replace(made, launches=launches, checks=CHECKS)
        drive(folder / "run", the_plan, engine(folder, url=url))
    run = load_run(folder / "run")
    return {v.subject: v for v in parity.check(run, Settings(run.plan.checks))}


NAME = "mtp against itself, staggered arrivals"


def test_who_joins_a_running_batch_is_answered_as_alone_and_a_neighbours_rows_are_found(
    tmp_path: Path,
) -> None:
    verdict = verdicts(tmp_path / "sound", Sound())[NAME]
    assert verdict.outcome == "pass", verdict.sentence
    assert verdict.evidence["as_alone"] == 4
    assert verdict.evidence["joined_others"] >= 2
    verdict = verdicts(tmp_path / "flawed", WrongWhenJoined())[NAME]
    assert verdict.outcome == "fail"
    assert "differ from" in verdict.sentence
    assert "token 2" in verdict.sentence


def test_requests_that_never_met_prove_nothing(tmp_path: Path) -> None:
    # The records as they came, but one after another.
    served = Sound()
    found = verdicts(tmp_path / "apart", served)
    run = load_run(tmp_path / "apart" / "run")
    apart = [
        dataclasses.replace(
            line, request=dataclasses.replace(line.request, t_start_s=1000.0 * number)
        )
        if line.request is not None
        else line
        for number, line in enumerate(run.probes)
    ]
    again = dataclasses.replace(run, probes=tuple(apart))
    verdict = {v.subject: v for v in parity.check(again, Settings(run.plan.checks))}[NAME]
    assert found[NAME].outcome == "pass"
    assert verdict.outcome == "inconclusive"
    assert "No two of the requests" in verdict.sentence


def test_without_being_asked_for_nothing_is_sent_or_said() -> None:
    made = plan([cell("prose", count=4)], ("mtp",))
    for checks in ({"parity": True}, {"parity": {"pairs": "all"}}, {}):
        assert not with_probes(made.launches, checks, {})[0].probes


def test_two_sides_that_part_only_when_batched_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "pair"
    folder.mkdir()
    made = plan([cell("prose", count=3, warmup=0)], ("target-only", "mtp"))
    launches = tuple(with_probes(made.launches, CHECKS, {}))
    the_plan = dataclasses.replace(made, launches=launches, checks=CHECKS)
    drive(folder / "run", the_plan, engine(folder, "--step-ms", "8"))
    run = load_run(folder / "run")
    found = {v.subject: v for v in parity.check(run, Settings(run.plan.checks))}
    assert found["mtp against target-only, staggered arrivals"].outcome == "pass"
    changed = [
        dataclasses.replace(
            line,
            request=dataclasses.replace(line.request, output_ids=(1, *line.request.output_ids[1:])),
        )
        if line.side == "mtp" and line.request is not None and line.request.output_ids
        else line
        for line in run.probes
    ]
    again = dataclasses.replace(
        run,
        probes=tuple(changed),
        records=tuple(r for r in run.records if r.side != "mtp"),
    )
    found = {v.subject: v for v in parity.check(again, Settings(run.plan.checks))}
    pair = found["mtp against target-only, staggered arrivals"]
    assert pair.outcome == "fail"
    assert "3 of 3 prompts differ" in pair.sentence
