"""plan, engines and doctor on this machine, and the rates an earlier run gives an estimate."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from qualify.cli.app import run
from qualify.cli.output import duration
from qualify.cli.prepare import prepare
from qualify.cli.rates import estimate_for, history
from qualify.doctor.engines import engine_findings
from qualify.doctor.leftovers import leftover_findings, sweep_all
from qualify.engines.owned import MARKER, Owned, owned_path
from qualify.paths import campaigns_dir
from qualify.planning.identity import digest_of_cell
from qualify.records.codec import to_dict

LLAMA_CPP = campaigns_dir() / "llama-cpp.yaml"


def test_a_plan_says_what_it_sends_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["plan", str(LLAMA_CPP)]) == 0
    shown = capsys.readouterr().out
    assert "prompt tokens to prefill" in shown
    assert "Time: about" in shown
    assert "the rates that engines/llama-cpp states" in shown


def test_a_plan_for_machines_counts_the_same_tokens_as_its_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", str(LLAMA_CPP), "--json", "--only", "mode=ngram", "workload=copy"]) == 0
    told = json.loads(capsys.readouterr().out)
    tokens = 0
    for launch in told["plan"]["launches"]:
        for cell in launch["cells"]:
            requests = cell["prompts"]["count"] + cell["warmup"]["count"]
            tokens += requests * cell["prompts"]["tokens"]
    assert told["estimate"]["load"]["prompt_tokens"] == tokens > 0
    assert told["plan"]["identity"]["only"] == "mode=ngram workload=copy"


def test_what_keeps_a_campaign_from_being_planned_is_told_to_machines_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(LLAMA_CPP.read_text().replace("modes: [", "modes: [mpt, ") + "oops: 1e6\n")
    assert run(["plan", str(file), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert len(told["faults"]) >= 2
    assert all(f["line"] and f["sentence"] and f["remedy"] for f in told["faults"])
    assert run(["campaign", "check", str(file), "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == told


def test_a_filter_that_leaves_nothing_is_told_to_machines_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", str(LLAMA_CPP), "--json", "--only", "workload=nothing"]) == 2
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert "nothing" in fault["sentence"]


def test_a_plan_knows_its_corpora_and_its_checkpoint_before_anything_is_fetched() -> None:
    identity = prepare(LLAMA_CPP).plan.identity
    assert identity["checkpoint"] == prepare(LLAMA_CPP).engine.model.fetch.sha256  # type: ignore[union-attr]
    assert {k for k in identity if k.startswith("corpus:")} >= {"corpus:corpora/prose"}


def _earlier_run(folder: Path) -> None:
    """A run of that plan whose first cell took 12.5 s at known rates."""
    plan = prepare(LLAMA_CPP).plan
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(to_dict(plan)))
    launch = plan.launches[0]
    cell = launch.cells[0]
    end = {"launch": f"{launch.id}#1", "cell": cell.id, "status": "finished", "duration_s": 12.5}
    (folder / "cells.jsonl").write_text(json.dumps(end) + "\n" + '{"launch": "cut')
    record = {
        "side": launch.side.name,
        "ok": True,
        "concurrency": 1,
        "phase": "measured",
        "usage": {"prompt_tokens": 1000, "completion_tokens": 41, "cached_tokens": 0},
        "timing": {"t_first_s": 4.0, "t_last_s": 6.0, "n_first": 1},
    }
    wrong = {**record, "timing": {"t_first_s": 0.1, "t_last_s": 0.2, "n_first": 1}}
    spoilt = [
        {**wrong, "ok": False},
        {**wrong, "phase": "probe"},
        {**wrong, "concurrency": 2},
        {**wrong, "usage": {"prompt_tokens": 9, "completion_tokens": 41, "cached_tokens": 900}},
        {**wrong, "usage": {"prompt_tokens": 9, "completion_tokens": None}},
    ]
    lines = [json.dumps(r) for r in (record, *spoilt)]
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")


def test_an_earlier_run_on_this_machine_decides_the_estimate(tmp_path: Path) -> None:
    _earlier_run(tmp_path / "reports" / "r1")
    prepared = prepare(LLAMA_CPP)
    launch = prepared.plan.launches[0]
    found = history(tmp_path / "reports", "llama-cpp")
    rates = found.rates[launch.side.name, launch.side.profile]
    assert (rates.prefill_tps, rates.decode_tps) == (250.0, 20.0)
    assert found.cells[launch.side.name, digest_of_cell(launch.cells[0])] == 12.5
    guess = estimate_for(prepared, tmp_path / "reports")
    assert guess.launches[0].cells[0] == 12.5
    assert any("earlier run" in basis for basis in guess.basis)


def test_runs_of_another_engine_and_broken_ones_say_nothing(tmp_path: Path) -> None:
    _earlier_run(tmp_path / "r1")
    (tmp_path / "r2").mkdir()
    (tmp_path / "r2" / "plan.json").write_text("{")
    assert history(tmp_path, "sglang").rates == {}
    assert history(tmp_path, "llama-cpp").rates


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "unknown"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (90, "1 min 30 s"),
        (3599.6, "1 h 00 min"),
        (7260, "2 h 01 min"),
    ],
)
def test_a_duration_is_shown_in_the_units_that_matter(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_engines_are_listed_shown_and_printed_as_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["engines", "list", "--json"]) == 0
    assert "llama-cpp" in {e["name"] for e in json.loads(capsys.readouterr().out)}
    assert run(["engines", "show", "llama-cpp", "--json"]) == 0
    assert "ngram" in json.loads(capsys.readouterr().out)["modes"]
    assert run(["engines", "list"]) == run(["engines", "show", "llama-cpp"]) == 0
    capsys.readouterr()
    words = ["engines", "command", "llama-cpp", "--mode", "ngram", "--arg", "threads=1"]
    assert run(words) == 0
    assert "--threads 1" in capsys.readouterr().out
    assert run([*words, "--arg", "threads"]) == 2
    assert run(["engines", "command", "llama-cpp", "--mode", "ngrm"]) == 2
    assert "ngram" in capsys.readouterr().err


def test_doctor_states_facts_and_finds_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    by_name = {f["name"]: f for f in told["findings"]}
    assert code == (0 if told["ready"] else 1)
    assert by_name["python"]["level"] == "ok"
    assert by_name["leftovers"]["level"] == "ok"
    assert {"memory", "ports", "engine llama-cpp"} <= set(by_name)
    assert all(f["remedy"] for f in told["findings"] if f["level"] != "ok")


def test_doctor_finds_and_sweeps_what_a_killed_run_left_running(tmp_path: Path) -> None:
    marker = "r1.ngram-1.0123456789abcdef"
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={MARKER: marker}
    )
    try:
        started = psutil.Process(child.pid).create_time()
        dead = Owned("r1.ngram#1", marker, started - 1, 2**22 - 1, 1.0)  # no such harness
        path = owned_path(tmp_path / "run", dead)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(asdict(dead)))
        (found,) = leftover_findings(tmp_path)
        assert found.level == "warn"
        assert str(child.pid) in found.says
        assert "--sweep" in found.remedy
        (swept,) = sweep_all(tmp_path)
        assert str(child.pid) in swept.says
        child.wait(timeout=10)
        assert [f.says for f in leftover_findings(tmp_path)] == ["no run left anything behind"]
    finally:
        child.kill()
        child.wait()


def test_doctor_notices_a_module_that_is_there_and_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a bare Debian, where llama.cpp's wheel misses a library of the system."""
    (tmp_path / "gone_library.py").write_text(
        "raise ImportError('libgomp.so.1: cannot open shared object file')"
    )
    engine = tmp_path / "engines" / "e"
    engine.mkdir(parents=True)
    (engine / "engine.yaml").write_text(
        "name: e\nprotocol: openai\n"
        "launch: {process: {argv: ['{python}'], module: gone_library}}\n"
        "modes: {target-only: {drafter: none}}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("qualify.doctor.engines.engine_names", lambda: [str(engine)])
    (found,) = engine_findings()
    assert found.level == "warn"
    assert "libgomp.so.1" in found.says
    assert found.remedy == "Run: apt-get install libgomp1"
