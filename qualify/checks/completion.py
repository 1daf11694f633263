"""Was every planned cell measured? What is missing is said, not passed over."""

from __future__ import annotations

from qualify.checks.select import Place, by_side_and_cell, plan_launch_id, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run


def _asked(place: Place) -> int:
    return place.end.requests if place.end is not None else 0


def _lost(place: Place) -> bool:
    """Do the records differ from what was counted when the cell ended? A damaged file, or one
    that was changed afterwards, must not look like a measurement of what is left."""
    end = place.end
    return end is not None and (len(place.records), sum(r.ok for r in place.records)) != (
        end.requests,
        end.ok,
    )


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell: finished in every planned launch?"""
    verdicts = []
    broken = {
        plan_launch_id(entry.launch): entry.reason or "the engine failed"
        for entry in run.launches
        if entry.status == "failed"
    }
    for (side, cell), group in by_side_and_cell(run).items():
        finished = [p for p in group if p.end is not None and p.end.status == "finished"]
        failed = [p for p in group if p.end is not None and p.end.status != "finished"]
        missing = [p for p in group if p.end is None]
        reasons = {p.launch.id: (p.end.reason if p.end else None) for p in failed}
        reasons |= {p.launch.id: broken[p.launch.id] for p in missing if p.launch.id in broken}
        outcome: Outcome
        if failed or any(p.launch.id in broken for p in missing):
            outcome = "fail"
            why = "; ".join(f"{k}: {v}" for k, v in reasons.items() if v)
            sentence = (
                f"Measured in {len(finished)} of {plural(len(group), 'launch', 'launches')}. {why}"
            )
        elif lost := [p for p in finished if _lost(p)]:
            outcome = "inconclusive"
            place = lost[0]
            sentence = (
                f"{place.launch.id} measured {plural(_asked(place), 'request')}, and "
                f"{plural(len(place.records), 'record')} of them can be read: the rest was lost "
                f"after measuring."
            )
        elif missing:
            outcome = "not-run"
            sentence = f"Not measured in {', '.join(p.launch.id for p in missing)}."
        else:
            outcome = "pass"
            sentence = f"Measured in {plural(len(group), 'launch', 'launches')}."
        verdicts.append(
            Verdict(
                "completion",
                subject(side, cell),
                outcome,
                sentence.strip(),
                {
                    "side": side,
                    "cell": cell,
                    "finished": [p.launch.id for p in finished],
                    "failed": reasons,
                    "missing": [p.launch.id for p in missing],
                },
            )
        )
    return verdicts
