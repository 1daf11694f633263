"""Needles on the bundled engine, through a whole campaign: found, proven, shown, computed again."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CAMPAIGN = """
campaign: needles
engine: cuda
profile: small
modes: [target-only, mtp]
baseline: target-only
sampling: {temperature: 0, output_tokens: 8}
workloads:
  - name: prose
    prompts: {source: corpora/prose, tokens: 64, count: 1}
    warmup: {count: 0}
    self_parity: false
evals:
  - needles: {tokens: 1024, turns: 2}
  - needles: {tokens: [512, 1024], count: 1, depths: [0.2, 0.8], fresh_tokens: 0}
checks: {retrieval: true, evals: true, parity: false}
ledger: "are codes found?"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the bundled engine needs torch: pip install 'qualify[engine]'")
    place = tmp_path_factory.mktemp("needles")
    (place / "needles.yaml").write_text(CAMPAIGN)
    command = [sys.executable, "-m", "qualify", "run", str(place / "needles.yaml"), "--yes"]
    done = subprocess.run(
        [*command, "--out", str(place / "run")], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr
    return place / "run"


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


pytestmark = pytest.mark.timeout(600)  # two starts of an engine, on a machine that others use


def test_both_modes_find_every_code_and_prove_it(folder: Path) -> None:
    scores = told(folder, "scores.jsonl")
    five = [s for s in scores if s["eval"] == "needles"]
    assert len(five) == 2 * 3  # two turns and the fresh request, in two modes
    assert {s["outcome"] for s in five} == {"pass"}
    verdicts = json.loads((folder / "verdicts.json").read_text())
    proofs = {v["subject"]: v["outcome"] for v in verdicts if v["check"] == "retrieval"}
    for side in ("target-only", "mtp"):
        for proof in (
            "exact size",
            "cold",
            "retractions",
            "natural end",
            "later turns",
            "afterwards",
        ):
            assert proofs[f"needles, {side}: {proof}"] == "pass"
    assert {v["outcome"] for v in verdicts if v["check"] == "evals"} == {"pass"}


def test_later_turns_are_the_conversation_so_far_and_hit_the_cache(folder: Path) -> None:
    answers = {
        a["problem"]: a["record"]
        for a in told(folder, "evals.jsonl")
        if a["record"]["side"] == "mtp" and a["eval"] == "needles"
    }
    first, later = answers["1024/s0/t0"], answers["1024/s0/t1"]
    assert first["usage"]["cached_tokens"] == 0
    grown = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    assert later["usage"]["prompt_tokens"] > grown
    assert later["usage"]["cached_tokens"] > 512


def test_the_page_has_the_heat_map_and_the_proofs(folder: Path) -> None:
    page = (folder / "report.html").read_text("utf-8")
    assert 'class="chart heat"' in page
    assert "What the runs prove" in page
    assert "none of them cached, found every code" in page


def test_the_figures_are_reached_again(folder: Path) -> None:
    script = ROOT / "scripts" / "recompute.py"
    again = subprocess.run(
        [sys.executable, "-S", str(script), str(folder)], capture_output=True, text=True
    )
    assert again.returncode == 0, again.stdout
    recall = json.loads((folder / "summary.json").read_text())["evals"]["recall"]
    assert {(c["tokens"], c["depth"]) for c in recall if c["eval"] == "needles-2"} == {
        (512, 0.2), (512, 0.8), (1024, 0.2), (1024, 0.8),
    }  # fmt: skip
