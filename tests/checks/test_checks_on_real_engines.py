"""The checks on engines that are not scripted: the bundled one, sound and misconfigured, and
llama.cpp's own server."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from qualify.checks import capacity, graphs, integrity, kernels, retractions, telemetry
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.engines.fetch import ensure_model
from qualify.engines.protocol import Sampling
from qualify.engines.resolve import resolve
from qualify.engines.spec import load_engine
from qualify.plan import Plan
from qualify.records.run import Run
from qualify.records.store import load_run
from qualify.run.runner import run_campaign
from tests.checks.defects import with_checks
from tests.run.drive import build, cell

NAMED = {"capacity": True, "graphs": {"target": False}, "kernels": True, "retractions": True}
CHECKS = (capacity, graphs, integrity, kernels, retractions, telemetry)


def small(checks: dict[str, Any], profile: dict[str, Any], **cells: Any) -> Plan:
    """One cell of two prompts at most two at once, and what the checks have sent besides."""
    made = with_checks(checks, profile)
    cells = {"tokens": 64, "count": 2, "warmup": 0, "concurrency": 2, **cells}
    output = cells.pop("output", 8)
    one = dataclasses.replace(cell("prose", **cells), sampling=Sampling(output))
    one = dataclasses.replace(one, first_token_timeout_s=100.0)
    launches = tuple(dataclasses.replace(item, cells=(one,)) for item in made.launches)
    return dataclasses.replace(made, launches=launches)


def run_on(folder: Path, engine: str, the_plan: Plan, args: dict[str, Any]) -> Run:
    definition = load_engine(engine)
    if definition.model is not None and definition.model.fetch is not None:
        ensure_model(definition)
    run_campaign(
        the_plan,
        out=folder,
        resume=False,
        resolved={"target-only": resolve(definition, "target-only", args=args)},
        build=build,
        start_timeout_s=100.0,
    )
    return load_run(folder)


def judged(run: Run) -> dict[str, Verdict]:
    settings = Settings(run.plan.checks)
    return {v.check: v for module in CHECKS for v in module.check(run, settings)}


@pytest.mark.timeout(400)
def test_the_bundled_engine_passes_and_its_misconfigured_twin_fails_by_name(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    profile = {"context_tokens": 512, "pool_tokens": 1024, "max_running": 2}
    sound = {
        "context-length": 512,
        "max-total-tokens": 1024,
        "max-running-requests": 2,
        "threads": 1,
    }
    the_plan = small(NAMED, profile)
    good = judged(run_on(tmp_path / "good", "cuda", the_plan, sound))
    assert {c: v.outcome for c, v in good.items() if c != "telemetry"} == {
        "capacity": "pass",
        "graphs": "not-run",  # it says that it captures none
        "integrity": "pass",
        "kernels": "pass",
        "retractions": "pass",
    }
    assert "the pool is the 1,024 tokens asked for" in good["capacity"].sentence
    assert "one more is refused" in good["capacity"].sentence
    assert "2 of 4 requests ran together" in good["capacity"].sentence
    assert "says that it captures no graph" in good["graphs"].sentence
    assert "target (mtp) with 123 tensors" in good["integrity"].sentence
    assert "every request says 0, the server's counter did not move" in good["retractions"].sentence
    assert good["telemetry"].evidence["host_rss_peak_bytes"] > 50 << 20

    # Half the pool: two requests of 300 + 200 tokens cannot both stay.
    tight = {**sound, "max-total-tokens": 640}
    crowded = small(NAMED, profile, tokens=300, output=200)
    bad = judged(run_on(tmp_path / "bad", "cuda", crowded, tight))
    assert bad["capacity"].outcome == "fail"
    assert "holds 640 tokens; 1,024 were asked for" in bad["capacity"].sentence
    assert bad["retractions"].outcome == "fail"
    assert "retracted, first prose@300/measured/" in bad["retractions"].sentence


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_llama_cpps_own_server_is_judged_by_the_same_checks(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    profile = {"context_tokens": 512, "pool_tokens": 1024, "max_running": 2}
    args = {"ctx-size": 1024, "parallel": 2, "threads": 1}
    found = judged(run_on(tmp_path / "run", "llama-cpp", small(NAMED, profile), args))
    assert {c: v.outcome for c, v in found.items() if c != "telemetry"} == {
        "capacity": "fail",
        "graphs": "not-run",
        "integrity": "pass",
        "kernels": "pass",
        "retractions": "not-run",
    }
    # It serves the limit, and cuts one token more short where others refuse.
    assert "were not refused but truncated to 16" in found["capacity"].sentence
    assert found["capacity"].evidence["at_limit"]["got_output"] == 16
    assert found["capacity"].evidence["pool_tokens"]["after_prefill"] == 1024
    assert "No log line shows a graph" in found["graphs"].sentence
    assert "272 tensors" in found["integrity"].sentence
    assert found["kernels"].evidence["lines_read"] > 10
    assert "unknown is not 0" in found["retractions"].sentence
    assert found["telemetry"].evidence["host_rss_peak_bytes"] > 50 << 20
