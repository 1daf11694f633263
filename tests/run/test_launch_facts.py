"""What a launch says of itself reaches the records and decides what may be compared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from qualify.records.store import load_run
from qualify.report.assemble import assemble
from tests.run.drive import cell, drive, engine, plan


def test_instrumented_and_plain_launches_never_pair(tmp_path: Path) -> None:
    resolver = engine(tmp_path)
    watched = {"mtp": {"SGLANG_TORCH_PROFILER_DIR": str(tmp_path)}, "target-only": {}}
    the_plan = plan([cell("prose")], ("target-only", "mtp"))
    drive(
        tmp_path / "run",
        the_plan,
        lambda side: dataclasses.replace(resolver(side), env=watched[side]),
    )
    run = load_run(tmp_path / "run")
    told = {e.side: e.origin["instrumentation"] for e in run.launches if e.status == "started"}
    assert told == {"target-only": [], "mtp": ["SGLANG_TORCH_PROFILER_DIR"]}
    report = assemble(run)
    (pair,) = report.analysis.pairs
    assert pair.decode is None
    assert pair.refused == "not like with like: instrumentation"
    (verdict,) = [v for v in report.verdicts if v.check == "protocol"]
    assert verdict.outcome == "fail"
    assert "instrumentation" in verdict.sentence


def test_two_launches_with_the_same_instruments_pair(tmp_path: Path) -> None:
    resolver = engine(tmp_path)
    env = {"SGLANG_TORCH_PROFILER_DIR": str(tmp_path)}
    the_plan = plan([cell("prose")], ("target-only", "mtp"))
    drive(
        tmp_path / "run", the_plan, lambda side: dataclasses.replace(resolver(side), env=dict(env))
    )
    (pair,) = assemble(load_run(tmp_path / "run")).analysis.pairs
    assert pair.refused is None
    assert pair.decode is not None


def test_f070_an_output_forced_past_its_natural_end_is_marked_with_the_place(
    tmp_path: Path,
) -> None:
    drive(tmp_path / "first", plan([cell("prose")]), engine(tmp_path))
    seen = [r for r in load_run(tmp_path / "first").measured() if r.index == 1]
    end = (seen[0].output_ids or ())[4]  # the model would have stopped here, at 5 of 8 tokens
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    resolver = engine(tmp_path)
    drive(
        tmp_path / "run",
        plan([cell("prose")]),
        lambda side: dataclasses.replace(resolver(side), tokenizer=str(checkpoint)),
    )
    run = load_run(tmp_path / "run")
    started = next(e for e in run.launches if e.status == "started")
    assert started.origin["end_tokens"] == {"ids": [end], "source": "generation_config.json"}
    assert all(r.request["eos_ids"] == [end] for r in run.measured())
    report = assemble(run)
    (length,) = [v for v in report.verdicts if v.check == "length"]
    assert length.evidence["forced_past_end"] == 1
    assert length.evidence["natural_ends"] == [
        {"launch": "r1.target-only#1", "prompt": "prose@48/measured/1.0", "tokens": 5}
    ]
    assert "1 of them ran past their natural end" in length.sentence
    assert [s.forced_past_end for s in report.analysis.sides] == [1]


def test_where_no_end_token_is_known_nothing_is_claimed(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("prose")]), engine(tmp_path))
    run = load_run(tmp_path / "run")
    assert {r.request["eos_ids"] for r in run.measured()} == {None}
    report = assemble(run)
    (length,) = [v for v in report.verdicts if v.check == "length"]
    assert length.evidence["forced_past_end"] is None
