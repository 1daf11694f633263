"""scripts/recompute.py reaches the same figures by another way, and sees a changed one."""

from __future__ import annotations

import ast
import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from qualify.records.run import Run
from qualify.report.build import build_report
from tests.factory import Maker, Mode, Work, drafting, editing, target, where
from tests.report.folder import write_run

SCRIPT = Path(__file__).parents[2] / "scripts" / "recompute.py"


def recompute(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-S", str(SCRIPT), str(folder)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


lose_one = editing(where(side="mtp", index=1), ok=False)
# JSON keeps U+2028 as it is, and half of all line splitters cut there.
strange = editing(where(index=0), output_text="a\u2028b\x85c")


def noisy(rounds: int) -> Run:
    rng = random.Random(rounds)
    ngram = Mode("ngram", 11.0, 4, lambda w, p, s: (s + p) % 4 if w == "copy" else 0)
    return Maker(
        sides={
            "target-only": target(),
            "ngram": ngram,
            "mtp": drafting(right=[1, 2, 0, 3]),
            "target-two": target(),
        },
        works=(Work("prose", (256, 1024), 12, (1, 2)), Work("copy", (512,), 3)),
        rounds=rounds,
        clock_noise=lambda *_: rng.uniform(0.9, 1.1),
        edit=lambda r: lose_one(strange(r)),
    ).build()


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_figure_is_reached_again_from_the_records(tmp_path: Path, rounds: int) -> None:
    folder = write_run(noisy(rounds), tmp_path / "run")
    build_report(folder)
    code, said = recompute(folder)
    assert code == 0, said
    assert "0 differ" in said
    assert int(said.split()[0].replace(",", "")) > 500


def test_a_crossing_and_goodput_are_reached_again(tmp_path: Path) -> None:
    rng = random.Random(1)
    longer = editing(
        where(side="mtp"),
        timing__tpot_ms=lambda r: r.timing.tpot_ms * (r.tokens / 300) ** 0.9,
    )
    run = Maker(
        sides={"target-only": target(), "mtp": drafting(cycle_ms=20.0, right=[1, 2, 0, 3])},
        works=(Work("prose", (256, 512, 1024, 2048), 8, (2,)),),
        rounds=3,
        clock_noise=lambda *_: rng.uniform(0.99, 1.01),
        edit=longer,
    ).build()
    gates = {"goodput_ttft_s": 0.6, "goodput_tpot_ms": 10.0}
    plan = dataclasses.replace(run.plan, campaign={**run.plan.campaign, "gates": gates})
    folder = write_run(dataclasses.replace(run, plan=plan), tmp_path / "run")
    build_report(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["crossovers"][0]["bracket"] == [256, 512]
    assert summary["crossovers"][0]["estimate"]["low"] > 256
    assert summary["sides"][0]["goodput"]["share"] > 0
    code, said = recompute(folder)
    assert code == 0, said


@pytest.mark.parametrize(
    "path",
    [
        ("cells", 0, "tpot_ms", "median"),
        ("cells", 1, "throughput_tok_s"),
        ("sides", 2, "ttft_s", "p90"),
        ("pairs", 0, "decode", "high"),
        ("pairs", 1, "cycle_factor"),
        ("pairs", 0, "decode", "outcome"),
        ("pairs", 0, "decode", "p_holm"),
        ("sides", 2, "acceptance", "accept_length", "low"),
        ("sides", 2, "tpot_tail_ms", "over_median"),
        ("launch_variation", 0, "range"),
    ],
)
def test_a_changed_figure_is_seen(tmp_path: Path, path: tuple[str | int, ...]) -> None:
    folder = write_run(noisy(1), tmp_path / "run")
    build_report(folder)
    summary = json.loads((folder / "summary.json").read_text())
    here = summary
    for step in path[:-1]:
        here = here[step]
    old = here[path[-1]]
    here[path[-1]] = old * 1.001 if isinstance(old, float) else "changed"
    (folder / "summary.json").write_text(json.dumps(summary))
    code, said = recompute(folder)
    assert code == 1
    assert str(path[-1]) in said


def test_a_changed_record_is_seen(tmp_path: Path) -> None:
    folder = write_run(noisy(1), tmp_path / "run")
    build_report(folder)
    rows = (folder / "records.jsonl").read_text().split("\n")
    first = json.loads(rows[0])
    first["timing"]["tpot_ms"] *= 1.5
    (folder / "records.jsonl").write_text("\n".join([json.dumps(first), *rows[1:]]))
    assert recompute(folder)[0] == 1


def test_it_shares_no_code_with_the_package_and_needs_only_the_standard_library() -> None:
    files = sorted(SCRIPT.parent.glob("recompute*.py"))
    names = {
        name.split(".")[0]
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "qualify" not in names
    assert names <= {*sys.stdlib_module_names, *(f.stem for f in files)}


def test_a_folder_that_is_no_run_is_said_to_be_unreadable(tmp_path: Path) -> None:
    assert recompute(tmp_path)[0] == 2
