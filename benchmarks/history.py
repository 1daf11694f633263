"""How long 100,000 records take to answer, and how often a change point is wrong.

python benchmarks/history.py
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from qualify.analysis.changes import changes
from qualify.history.store import History
from qualify.history.trends import trends

EXAMPLE = Path(__file__).parents[1] / "reports" / "example"
RUNS, RECORDS = 50, 100_000


def fill(root: Path) -> int:
    """``RUNS`` copies of the example, each with enough copies of its records."""
    lines = (EXAMPLE / "records.jsonl").read_text().splitlines()
    times = -(-RECORDS // (RUNS * len(lines)))
    for n in range(RUNS):
        folder = root / f"night-{n:03}"
        shutil.copytree(EXAMPLE, folder)
        (folder / "records.jsonl").write_text("\n".join(lines * times) + "\n")
        for name, key in (("run.json", "id"), ("summary.json", "run")):
            data = json.loads((folder / name).read_text())
            data["created"] = f"2026-{1 + n // 28:02}-{1 + n % 28:02}T02:00:00.000+00:00"
            data[key] = folder.name
            (folder / name).write_text(json.dumps(data))
    return RUNS * times * len(lines)


def asked() -> None:
    with tempfile.TemporaryDirectory() as root:
        count = fill(Path(root))
        history = History(Path(root))
        begin = time.perf_counter()
        history.sync()
        took = time.perf_counter() - begin
        print(f"taken in: {RUNS} runs, {count:,} records in {took:.1f} s")
        begin = time.perf_counter()
        history.ask(
            "SELECT side, cell, count(*), median(tpot_ms), quantile_cont(ttft_s, 0.99) "
            "FROM records WHERE phase = 'measured' AND ok GROUP BY ALL"
        )
        print(f"medians and p99 of every side and cell: {time.perf_counter() - begin:.3f} s")
        begin = time.perf_counter()
        found = trends(history, "tpot")
        print(f"{len(found)} trends with change points: {time.perf_counter() - begin:.3f} s")


def judged(runs: int, noise: float, step: float, repeats: int = 500) -> None:
    random = np.random.default_rng(7)
    false = sum(
        bool(changes(np.exp(random.normal(0, noise, runs)).tolist(), seed=i))
        for i in range(repeats)
    )
    right = 0
    for i in range(repeats):
        logs = random.normal(0, noise, runs)
        logs[runs // 2 :] += np.log(step)
        found = changes(np.exp(logs).tolist(), seed=i)
        right += any(abs(c.index - runs // 2) <= 1 for c in found)
    print(
        f"{runs} runs, {noise:.0%} noise: called without a step {false / repeats:.1%}; "
        f"a step of {step - 1:.0%} found at its place (one run off at most) {right / repeats:.1%}"
    )


if __name__ == "__main__":
    asked()
    for runs in (12, 20, 40):
        judged(runs, 0.02, 1.05)
