"""Time and size of the report of a run with 10,000 records.

    python benchmarks/report_size.py [RECORDS]

The records are played (tests/factory.py), written as a real run lies on disk, and judged by
`build_report`. Prints one JSON object; exits 1 above 10 s or 5 MB.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the played runs are the tests' own

LIMIT_S = 10.0
LIMIT_BYTES = 5_000_000


def main(records: int) -> int:
    from qualify.records.store import load_run
    from qualify.report.assemble import assemble
    from qualify.report.build import write_report
    from tests.factory import Maker, Work, drafting, target
    from tests.report.folder import write_run

    rng = random.Random(1)
    shapes, concurrency, rounds = (256, 1024, 4096), (1, 4), 5
    sides = {"target-only": target(), "mtp": drafting(right=[1, 2, 0, 3]), "ngram": drafting(
        "ngram", 11.0, 4, [0, 0, 3])}  # fmt: skip
    cells = 2 * len(shapes) * len(concurrency)
    count = max(8, round(records / (cells * rounds * len(sides))))
    run = Maker(
        sides=sides,
        works=tuple(Work(n, shapes, count, concurrency) for n in ("prose", "code")),
        rounds=rounds,
        output_tokens=64,
        self_parity=False,
        clock_noise=lambda *_: rng.uniform(0.95, 1.05),
    ).build()
    with tempfile.TemporaryDirectory() as folder:
        written = write_run(run, Path(folder) / "run")
        load = os.getloadavg()[0]
        start = time.perf_counter()
        loaded = load_run(written)
        read = time.perf_counter()
        report = assemble(loaded)
        judged = time.perf_counter()
        page = write_report(report)
        done = time.perf_counter()
        size = page.stat().st_size
        told = {
            "records": len(run.records),
            "read_s": round(read - start, 2),
            "judge_s": round(judged - read, 2),
            "write_s": round(done - judged, 2),
            "whole_s": round(done - start, 2),
            "page_bytes": size,
            "summary_bytes": (written / "summary.json").stat().st_size,
            "load_before": load,
        }
    print(json.dumps(told))
    return 1 if done - start > LIMIT_S or size > LIMIT_BYTES else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
