"""Do the engine's own integers add up? N = N0 + C + V + T - W (rule 9)."""

from __future__ import annotations

from typing import Any

from qualify.checks.select import (
    Place,
    by_side_and_cell,
    completion_tokens,
    is_speculative,
    plural,
    subject,
)
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record, Speculation


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each speculative side and cell that reported integers.

    The identity counts as checked only where no integer was itself derived from it; the
    bounds (C <= P, C <= N - N0, histogram sums) are checked in any case. A match rate of
    exactly 1.0 is believed only where the identity was checked and holds.
    """
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        if not is_speculative(group[0].mode):
            continue
        backwards = [f for p in group for f in _backwards(p)]
        reports = [(r, r.speculation) for p in group for r in p.counted if r.speculation]
        if not reports and not backwards:
            continue
        faults = [(r, fault) for r, s in reports for fault in faults_of(r, s)]
        gaps = [(r, s, identity_gap(r, s)) for r, s in reports if independent(s)]
        checked = [r for r, s, gap in gaps if gap == 0]
        broken = [
            (r, gap) for r, s, gap in gaps if gap != 0 and s.T is not None and s.W is not None
        ]
        exact = [
            (r, s)
            for r, s in reports
            if s.P and s.C == s.P and not (independent(s) and identity_gap(r, s) == 0)
        ]
        proposed = sum(s.P or 0 for _, s in reports)
        all_exact = bool(exact) and proposed > 0 and all(s.C == s.P for _, s in reports)
        evidence: dict[str, Any] = {
            "side": side,
            "cell": cell,
            "requests": len(reports),
            "identity_checked": len(checked),
            "identity_broken": [
                {"launch": r.launch, "prompt": r.prompt_id, "N_minus_sum": gap}
                for r, gap in broken[:20]
            ],
            "bounds_broken": [
                {"launch": r.launch, "prompt": r.prompt_id, "fault": f} for r, f in faults[:20]
            ],
            "counters_backwards": backwards,
            "derived": sorted({d for _, s in reports for d in s.derived}),
        }
        name = subject(side, cell)
        n = plural(len(reports), "request")
        if backwards:
            text = f"The engine restarted during the cell: {', '.join(backwards)} went backwards."
            verdicts.append(Verdict("counters", name, "fail", text, evidence))
        elif broken:
            text = (
                f"N = N0 + C + V + T - W does not hold on {len(broken)} of {n} "
                f"(first: off by {broken[0][1]:+d} on {broken[0][0].prompt_id})."
            )
            verdicts.append(Verdict("counters", name, "fail", text, evidence))
        elif faults:
            text = f"Impossible counts on {len(faults)} of {n}: {faults[0][1]}."
            verdicts.append(Verdict("counters", name, "fail", text, evidence))
        elif all_exact:
            text = (
                f"Every one of {proposed:,} proposed drafts is reported as right, and the "
                f"identity that would confirm it cannot be checked from independent counts."
            )
            verdicts.append(Verdict("counters", name, "inconclusive", text, evidence))
        elif checked:
            text = f"N = N0 + C + V + T - W holds on {len(checked)} of {n}."
            verdicts.append(Verdict("counters", name, "pass", text, evidence))
        else:
            text = (
                f"Counts of {n} are within their bounds; the identity cannot be checked, "
                f"because the engine does not report all of its integers."
            )
            verdicts.append(Verdict("counters", name, "not-run", text, evidence, demanded=False))
    return verdicts


def independent(s: Speculation) -> bool:
    """Are all integers of the identity reported rather than computed from one another?

    T and W may be unreported; they then count as 0: a sum that comes out exactly confirms
    that, and one that does not convicts nobody.
    """
    return s.V is not None and s.C is not None and not {"V", "C", "T", "W"} & set(s.derived)


def identity_gap(r: Record, s: Speculation) -> int:
    """N - (N0 + C + V + T - W); 0 when the counts agree. Needs `independent(s)`."""
    n = completion_tokens(r) or 0
    first = 1 if s.N0 is None else s.N0
    return n - (first + (s.C or 0) + (s.V or 0) + (s.T or 0) - (s.W or 0))


def faults_of(r: Record, s: Speculation) -> list[str]:
    """What cannot be, whichever engine it is."""
    n, first = completion_tokens(r) or 0, 1 if s.N0 is None else s.N0
    faults = []
    if any(v is not None and v < 0 for v in (s.V, s.P, s.C, s.N0, s.T, s.W)):
        faults.append("a count is negative")
    if s.C is not None and s.P is not None and s.C > s.P:
        faults.append(f"{s.C} drafts right of {s.P} proposed")
    if s.C is not None and n - first + (s.W or 0) < s.C:
        faults.append(f"{s.C} drafts right in {n} tokens")
    if s.C and s.V == 0:
        faults.append(f"{s.C} drafts right without a verify step")
    if s.histogram and s.V is not None and sum(s.histogram) != s.V:
        faults.append(f"the histogram counts {sum(s.histogram)} steps of {s.V}")
    right = sum(j * h for j, h in enumerate(s.histogram or ()))
    if s.histogram and s.C is not None and right != s.C:
        faults.append(f"the histogram counts {right} right drafts of {s.C}")
    return faults


def _backwards(place: Place) -> list[str]:
    """Monotonic server counters that fell during the cell: it restarted in the middle."""
    stored = place.end.evidence.get("counters") if place.end else None
    if not isinstance(stored, dict):
        return []
    before, after = stored.get("before"), stored.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    return sorted(
        name
        for name, value in before.items()
        if name.split("{")[0].endswith("_total")
        and isinstance(value, int | float)
        and isinstance(after.get(name), int | float)
        and after[name] < value
    )
