"""A difference between two sides is weighed up by the target-only launch that comes last."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qualify.checks.verdict import Verdict
from qualify.engines.fetch import ensure_model
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.spec import load_engine
from qualify.plan import LaunchPlan, Plan, Side
from qualify.planning.probes.margins import with_margins
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.tokens import Tokenizer
from qualify.records.run import Run
from qualify.records.schema import ProbeRecord, Record
from qualify.records.store import load_run
from qualify.report.assemble import assemble
from qualify.run import events as e
from qualify.run.runner import run_campaign
from tests.run.drive import cell, drive, engine, plan

DIVERGES = ("--accept", "3,0,2", "--diverge-at", "5")


def weighed(checks: dict[str, Any] | None = None, *, again: bool = True) -> Plan:
    """target-only and mtp, then target-only again; or a launch for the margins alone."""
    made = plan([cell("prose")], ("target-only", "mtp"))
    launches = list(made.launches)
    if again:
        first = launches[0]
        launches.append(
            dataclasses.replace(first, id="r1.target-only.again", purpose="self-parity")
        )
    return dataclasses.replace(
        made,
        launches=tuple(with_margins(launches, "target-only", {})),
        checks=checks or {},
    )


def diverging(folder: Path, *options: str) -> Callable[[str], ResolvedLaunch]:
    return engine(folder, *options, spec_options=DIVERGES)


def parity_of(folder: Path) -> Verdict:
    report = assemble(load_run(folder))
    return next(
        v for v in report.verdicts if v.check == "parity" and v.subject.startswith("mtp against")
    )


def steps(folder: Path, step: str) -> list[ProbeRecord]:
    return [p for p in load_run(folder).probes if p.probe == "margins" and p.step == step]


@pytest.mark.parametrize("again", [True, False])
def test_each_place_where_two_sides_part_is_scored_once_and_shown(
    tmp_path: Path, again: bool
) -> None:
    folder = tmp_path / "run"
    drive(folder, weighed(again=again), diverging(tmp_path, "--score-margin", "0.02"))
    verdict = parity_of(folder)
    assert verdict.outcome == "fail"
    assert "token 5" in verdict.sentence
    assert "0.02 nats apart (near tie)" in verdict.sentence
    differences = verdict.evidence["differences"]
    assert [round(d["margin"], 9) for d in differences] == [0.02] * 3
    assert {d["position"] for d in differences} == {5}
    scored = steps(folder, "scored")
    assert len(scored) == 3
    assert {p.launch for p in scored} == {
        "r1.target-only.again#1" if again else "r1.target-only.margins#1"
    }
    assert {p.seen["tokens"] for p in scored} == {48 + 5}


def test_a_stated_margin_waives_what_is_below_it_and_nothing_else(tmp_path: Path) -> None:
    for name, margin, outcome in (("near", "0.02", "waived"), ("far", "0.2", "fail")):
        folder = tmp_path / name
        checks = {"parity": {"waive_below_margin": 0.05}}
        drive(folder, weighed(checks), diverging(tmp_path, "--score-margin", margin))
        assert parity_of(folder).outcome == outcome


def test_where_nothing_differs_nothing_is_asked_and_no_engine_is_started_for_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    outcome = drive(folder, weighed(again=False), engine(tmp_path, "--score-margin", "0.02"))
    assert (outcome.measured, outcome.failed, outcome.exit_code) == (2, 0, None)
    run = load_run(folder)
    assert {x.plan_launch for x in run.launches} == {"r1.target-only", "r1.mtp"}
    (end,) = [p for p in run.probes if p.probe == "margins"]
    assert (end.status, end.seen) == ("finished", {"nothing_to_ask": True})
    assert parity_of(folder).outcome == "pass"


def test_an_engine_without_log_probabilities_leaves_the_margin_unknown_and_says_why(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    drive(folder, weighed({"parity": {"waive_below_margin": 9.0}}), diverging(tmp_path))
    verdict = parity_of(folder)
    assert verdict.outcome == "fail"
    assert verdict.evidence["differences"][0]["closeness"] == "unknown"
    assert "The server gives no log probabilities by token id" in verdict.sentence


def test_what_is_measured_at_last_is_weighed_up_at_last(tmp_path: Path) -> None:
    folder, plan_ = tmp_path / "run", weighed(again=False)
    broken = ("--accept", "3,0,2", "--fault", "-1=http-500")
    drive(folder, plan_, engine(tmp_path, "--score-margin", "0.02", spec_options=broken))
    (end,) = [p for p in load_run(folder).probes if p.probe == "margins"]
    assert end.seen == {"nothing_to_ask": True}
    drive(folder, plan_, diverging(tmp_path, "--score-margin", "0.02"), resume=True)
    assert len(steps(folder, "scored")) == 3
    assert "near tie" in parity_of(folder).sentence


TEXT = (
    "It was late in the year when the letter came, and nobody in the house could say who had sent"
    " it. The old man read it twice, put it back into its cover, and went out into the garden"
)


def _prose(tokenizer: Tokenizer) -> Callable[[PromptSpec], list[Prompt]]:
    def build(spec: PromptSpec) -> list[Prompt]:
        ids = tokenizer.encode(TEXT)
        assert len(ids) > 7 + spec.count + 24
        starts = range(spec.count) if spec.stream == "measured" else range(7, 7 + spec.count)
        return [
            Prompt(
                id=f"{spec.workload}/{spec.stream}/{i}",
                ids=tuple(ids[i : i + spec.tokens]),
                text="",
                text_exact=False,
                sha256=f"{spec.stream}{i}",
                compress_ratio=0.5,
                klass="natural",
                index=i,
            )
            for i in starts
        ]

    return build


@pytest.mark.engine
def test_a_real_engine_scores_a_planted_difference(tmp_path: Path) -> None:
    """One token of a record is changed between two launches of llama.cpp; what the third one
    says of that place must have the token that it generates itself on top."""
    pytest.importorskip("xllamacpp")
    spec = load_engine("llama-cpp")
    ensure_model(spec)
    small = cell("prose", tokens=24, count=2, warmup=0)
    sides = [Side(n, n, None, {}, {}) for n in ("target-only", "ngram")]
    launches = [LaunchPlan(f"r1.{s.name}", 1, s, (small,)) for s in sides]
    launches = with_margins(launches, "target-only", spec.identity())
    assert [x.id for x in launches] == ["r1.target-only", "r1.ngram", "r1.target-only.margins"]
    made = dataclasses.replace(plan([small], ("target-only", "ngram")), launches=tuple(launches))
    folder, planted = tmp_path / "run", 4

    def plant(event: e.Event) -> None:
        if isinstance(event, e.LaunchEnded) and event.launch.startswith("r1.ngram"):
            file = folder / "records.jsonl"
            lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            record = next(r for r in lines if r["side"] == "ngram" and r["phase"] == "measured")
            record["output_ids"][planted] = 28  # a token that nothing here calls for
            with file.open("r+", encoding="utf-8") as same:  # the store has it open
                same.write("".join(json.dumps(r) + "\n" for r in lines))
                same.truncate()

    tokenizer = Tokenizer.load(spec.model.fetch.path)  # type: ignore[union-attr]
    run_campaign(
        made,
        out=folder,
        resume=False,
        resolved={s.name: resolve(spec, s.name) for s in sides},
        build=_prose(tokenizer),
        watch=plant,
        start_timeout_s=60.0,
    )
    run = load_run(folder)
    (scored,) = [p for p in run.probes if p.step == "scored"]
    honest = _honest(run, scored.seen["prompt"])
    assert scored.seen["position"] == planted
    (first, best), (second, next_best), *_ = scored.seen["top"]
    assert first == (honest.output_ids or ())[planted]
    verdict = next(v for v in assemble(run).verdicts if v.subject.startswith("ngram against"))
    assert verdict.outcome == "fail"
    assert verdict.evidence["differences"][0]["closeness"] == "clear"
    # Had it been the second likeliest, the margin would be what lies between the two.
    other = dataclasses.replace(
        run, records=tuple(_taking(r, second, planted) for r in run.records)
    )
    (difference,) = next(
        v for v in assemble(other).verdicts if v.subject.startswith("ngram against")
    ).evidence["differences"]
    assert difference["margin"] == pytest.approx(best - next_best)


def _honest(run: Run, prompt: str) -> Record:
    (found,) = [r for r in run.measured() if r.side == "target-only" and r.prompt_id == prompt]
    return found


def _taking(record: Record, token: int, at: int) -> Record:
    ids = record.output_ids or ()
    if record.side != "ngram" or record.phase != "measured" or ids[at] != 28:
        return record
    return dataclasses.replace(record, output_ids=(*ids[:at], token, *ids[at + 1 :]))
