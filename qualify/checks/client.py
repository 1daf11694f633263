"""Was the client itself the bottleneck? (rule 3)"""

from __future__ import annotations

from qualify.checks.select import by_side_and_cell, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

LATE_SHARE = 0.05  # of what is measured; beyond it the client's delay shows in the figures
LATE_MS = 2.0  # never called late below this
TOO_MANY = 0.1  # of the requests


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell; it decides the outcome only where demanded."""
    share = settings.number("client", "late_share") or LATE_SHARE
    demanded = settings.named("client")
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        known = [r for p in group for r in p.counted if r.client_delay_ms is not None]
        if not known:
            continue
        late = [r for r in known if is_late(r, share)]
        worst = max(r.client_delay_ms or 0.0 for r in known)
        evidence = {
            "side": side,
            "cell": cell,
            "requests": len(known),
            "late": len(late),
            "worst_delay_ms": worst,
            "late_share": share,
        }
        name = subject(side, cell)
        if len(late) > TOO_MANY * len(known):
            text = (
                f"The client was late itself on {len(late)} of "
                f"{plural(len(known), 'request')} (worst {worst:.3g} ms): its own delay may "
                f"show in these times."
            )
            verdicts.append(Verdict("client", name, "inconclusive", text, evidence, demanded))
        else:
            text = f"The client's own worst delay was {worst:.3g} ms."
            verdicts.append(Verdict("client", name, "pass", text, evidence, demanded))
    return verdicts


def is_late(r: Record, share: float = LATE_SHARE) -> bool:
    """Is the client's worst delay more than that share of the shorter of TTFT and decode?"""
    first, last = r.timing.t_first_s, r.timing.t_last_s
    spans = [s for s in (r.timing.ttft_s,) if s]
    if first is not None and last is not None and last > first:
        spans.append(last - first)
    if not spans or r.client_delay_ms is None:
        return False
    return r.client_delay_ms > max(LATE_MS, share * min(spans) * 1e3)
