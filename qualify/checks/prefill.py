"""A second witness of cold: a real prefill takes longer for a longer prompt."""

from __future__ import annotations

import statistics
from collections import defaultdict

from qualify.checks.select import places, plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run

# Prefill work grows at least linearly; fixed costs may hide most of that at short shapes.
LEAST_GROWTH = 0.15  # of the growth in tokens
LONG_TOKENS = 4096  # from here on no engine's fixed costs hide its prefill
LEAST_STEP = 2.0  # shapes closer than this cannot be told apart


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and workload, over its cold cells of lowest concurrency."""
    ttft: dict[tuple[str, str], dict[int, dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    proven: dict[tuple[str, str], bool] = defaultdict(lambda: True)
    for place in places(run):
        if place.cell.cache != "cold":
            continue
        for record in place.counted:
            if record.timing.ttft_s is None:
                continue
            key = place.side, place.cell.workload
            ttft[key][place.cell.concurrency][record.tokens].append(record.timing.ttft_s)
            proven[key] = proven[key] and record.usage.cached_tokens == 0
    verdicts = []
    for (side, workload), by_concurrency in ttft.items():
        shapes = {n: statistics.median(v) for n, v in by_concurrency[min(by_concurrency)].items()}
        name = f"{side}, {workload}"
        evidence = {
            "side": side,
            "workload": workload,
            "median_ttft_s": {str(n): shapes[n] for n in sorted(shapes)},
            "cached_zero_on_all": proven[side, workload],
        }
        low, high = min(shapes), max(shapes)
        if high < LEAST_STEP * low:
            continue
        growth, step = shapes[high] / max(shapes[low], 1e-9), high / low
        said = (
            f"TTFT went from {shapes[low]:.3g} s at {low:,} tokens to {shapes[high]:.3g} s at "
            f"{high:,} ({growth:.2f}x over {step:.3g}x the prompt)"
        )
        if growth >= 1 + LEAST_GROWTH * (step - 1):
            verdicts.append(Verdict("prefill", name, "pass", f"{said}.", evidence))
        elif high >= LONG_TOKENS or not proven[side, workload]:
            verdicts.append(
                Verdict(
                    "prefill",
                    name,
                    "fail",
                    f"TTFT does not grow with prompt length in cold cells: {said}. A real "
                    f"prefill cannot do that; something was reused.",
                    evidence,
                )
            )
        else:
            verdicts.append(
                Verdict(
                    "prefill",
                    name,
                    "pass",
                    f"{said}: fixed costs hide the prefill at these lengths, and 0 cached "
                    f"tokens were reported on every request.",
                    evidence,
                )
            )
    if not verdicts and ttft:
        verdicts.append(
            Verdict(
                "prefill",
                "all sides",
                "not-run",
                f"No workload was measured cold at two lengths {LEAST_STEP:g}x apart "
                f"({plural(len(ttft), 'side and workload', 'sides and workloads')}).",
                {},
                demanded=settings.named("prefill"),
            )
        )
    return verdicts
