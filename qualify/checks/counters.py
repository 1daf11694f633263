"""Do the engine's own integers add up? N = N0 + C + V + T - W (rule 9)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from qualify.checks.select import (
    Place,
    by_side_and_cell,
    completion_tokens,
    plural,
    subject,
)
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.engines.counters import (
    NOT_REPORTED,
    OUTPUT,
    RESTARTED,
    Difference,
    window_speculation,
)
from qualify.records.run import Run
from qualify.records.schema import Record, Speculation

_OUTPUT_COUNT = re.compile(r"\b(N|predicted_n|predicted|completion_tokens|output_tokens)\b")


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each speculative side and cell that reported integers.

    The identity counts as checked only where no integer was itself derived from it; the
    bounds (C <= P, C <= N - N0, histogram sums) are checked in any case. A match rate of
    exactly 1.0 is believed only where the identity was checked and holds.
    """
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        if not group[0].speculative:
            continue
        windows = [w for p in group if (w := window_of(p)) is not None]
        restarted = [w for w in windows if w.problem and w.problem.startswith(RESTARTED)]
        reports = [(r, r.speculation) for p in group for r in p.counted if r.speculation]
        if not reports and not restarted:
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
        confirmed = bool(windows) and all(w.gap == 0 for w in windows)
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
            "server_counters": {w.launch: w.to_json() for w in windows},
            "derived": sorted({d for _, s in reports for d in s.derived}),
        }
        name = subject(side, cell)
        n = plural(len(reports), "request")
        if restarted:
            text = f"In {restarted[0].launch}: {restarted[0].problem}; the cell is not valid."
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
        elif all_exact and not confirmed:
            text = (
                f"Every one of {proposed:,} proposed drafts is reported as right, and the "
                f"identity that would confirm it cannot be checked from independent counts."
            )
            verdicts.append(Verdict("counters", name, "inconclusive", text, evidence))
        elif checked:
            text = f"N = N0 + C + V + T - W holds on {len(checked)} of {n}."
            verdicts.append(Verdict("counters", name, "pass", text, evidence))
        elif confirmed:
            text = f"N = N0 + C + V + T - W holds on the server's own counters over {n}."
            verdicts.append(Verdict("counters", name, "pass", text, evidence))
        elif not proposed and all(s.C == 0 for _, s in reports):
            text = f"Nothing was proposed on {n}, so there are no counts to check."
            verdicts.append(Verdict("counters", name, "not-run", text, evidence, demanded=False))
        else:
            text = (
                f"Counts of {n} are within their bounds; the identity cannot be checked, "
                f"because the engine does not report all of its integers."
            )
            verdicts.append(Verdict("counters", name, "not-run", text, evidence, demanded=False))
    return verdicts


def independent(s: Speculation) -> bool:
    """Are all integers of the identity reported rather than computed from one another?

    N0 = 1 is a definition, not a deduction. T and W may be unreported; they then count as 0:
    a sum that comes out exactly confirms that, and one that does not convicts nobody.
    """
    return s.V is not None and s.C is not None and not any(from_identity(d) for d in s.derived)


def from_identity(derived: str) -> bool:
    """Is `T = predicted_n - 1 - C - V` computed from the output count it would have to check?

    A bare name says that the integer was derived, and not from what: that counts too.
    """
    name, _, source = derived.partition("=")
    if name.strip() not in ("V", "C", "T", "W"):
        return False
    return not source or bool(_OUTPUT_COUNT.search(source))


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


@dataclass(frozen=True)
class Window:
    """The server's own counters over one cell, as a difference of two looks."""

    launch: str
    problem: str | None
    counts: Speculation | None
    tokens: int | None

    @property
    def gap(self) -> int | None:
        """N - (N0 + C + V + T - W) over the window; None where it cannot be formed."""
        s = self.counts
        if s is None or self.tokens is None or s.N0 is None or s.T is None or not independent(s):
            return None
        return self.tokens - (s.N0 + (s.C or 0) + (s.V or 0) + s.T - (s.W or 0))

    def to_json(self) -> dict[str, Any]:
        s = self.counts
        counts = {k: getattr(s, k) for k in ("V", "P", "C", "N0", "T", "W")} if s else {}
        return {"problem": self.problem, "N": self.tokens, **counts, "gap": self.gap}


def window_of(place: Place) -> Window | None:
    """None where the engine offers no counters."""
    stored = place.end.evidence.get("counters") if place.end else None
    if not isinstance(stored, dict) or not isinstance(stored.get("values"), dict):
        return None
    problem = stored.get("problem")
    change = Difference(stored["values"], problem if isinstance(problem, str) else None)
    if change.problem == NOT_REPORTED:
        return None
    return Window(
        place.launch.id,
        change.problem,
        window_speculation(change, "server counters"),
        change.count(OUTPUT),
    )
