"""Values that cannot be: shown, flagged and left out of TPOT by a stated rule."""

from __future__ import annotations

from qualify.checks.select import by_side_and_cell, completion_tokens, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

LEAST_TPOT_MS = 0.02  # 50,000 tokens/s for one user: no engine decodes faster
LEAST_DECODED = 3  # tokens after the first event; fewer make no rate


def decoded_tokens(r: Record) -> int | None:
    """N - n_first: tokens that came after the first token event."""
    n, first = completion_tokens(r), r.timing.n_first
    return n - first if n is not None and first is not None else None


def flaw(r: Record) -> str | None:
    """Why a counted request's TPOT is left out; None when it stands."""
    decoded = decoded_tokens(r)
    if r.timing.tpot_ms is None or decoded is None:
        return "no decode interval"
    if decoded < LEAST_DECODED:
        return f"fewer than {LEAST_DECODED} tokens after the first event"
    if r.timing.tpot_ms < LEAST_TPOT_MS:
        return f"TPOT under {LEAST_TPOT_MS} ms cannot be"
    return None


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell with an impossible time, one for all the rest."""
    demanded = settings.named("implausible")
    verdicts = []
    looked_at = 0
    for (side, cell), group in by_side_and_cell(run).items():
        counted = [r for p in group for r in p.counted]
        looked_at += len(counted)
        odd = [r for r in counted if (r.timing.tpot_ms or 1.0) < LEAST_TPOT_MS]
        odd += [r for r in counted if r.timing.ttft_s is not None and r.timing.ttft_s <= 0]
        if odd:
            evidence = {
                "side": side,
                "cell": cell,
                "requests": len(counted),
                "flagged": [
                    {
                        "launch": r.launch,
                        "prompt": r.prompt_id,
                        "tpot_ms": r.timing.tpot_ms,
                        "ttft_s": r.timing.ttft_s,
                        "tokens": completion_tokens(r),
                    }
                    for r in odd[:20]
                ],
            }
            text = (
                f"{len(odd)} of {plural(len(counted), 'request')} report times that cannot be; "
                f"they are left out of TPOT."
            )
            name = subject(side, cell)
            verdicts.append(Verdict("implausible", name, "inconclusive", text, evidence, demanded))
    if looked_at and not verdicts:
        text = f"No impossible time among {plural(looked_at, 'request')}."
        verdicts.append(Verdict("implausible", "all sides", "pass", text, {}, demanded))
    return verdicts
