"""Output length: a fixed-length cell must be full; natural ends only where asked for."""

from __future__ import annotations

from typing import Any

from qualify.checks.natural_end import forced_past_end, natural_end
from qualify.checks.select import (
    by_side_and_cell,
    completion_tokens,
    plural,
    subject,
)
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell with counted requests."""
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        counted = [r for p in group for r in p.counted]
        if not counted:
            continue
        plan = group[0].cell
        budget, natural = plan.sampling.output_tokens, plan.until == "eos"
        lengths = [completion_tokens(r) or 0 for r in counted]
        short = [(r, n) for r, n in zip(counted, lengths, strict=True) if n < budget]
        over = [(r, n) for r, n in zip(counted, lengths, strict=True) if n > budget]
        evidence: dict[str, Any] = {
            "side": side,
            "cell": cell,
            "budget": budget,
            "until": plan.until,
            "requests": len(counted),
            "shortest": min(lengths),
            "longest": max(lengths),
            "short": _named(short),
            "over": _named(over),
            "forced_past_end": forced_past_end(counted),
            "natural_ends": _ends(counted),
        }
        name = subject(side, cell)
        if over:
            sentence = f"{plural(len(over), 'output')} exceed the budget of {budget:,} tokens."
            verdicts.append(Verdict("length", name, "fail", sentence, evidence))
        elif short and not natural:
            record, n = short[0]
            sentence = (
                f"Short output: {n:,} of {budget:,} tokens (finish reason "
                f"{record.finish_reason or 'unknown'}); {len(short)} of "
                f"{plural(len(counted), 'request')}. It is not compared with a full one."
            )
            verdicts.append(Verdict("length", name, "fail", sentence, evidence))
        elif natural:
            sentence = (
                f"{plural(len(counted), 'output')} of {min(lengths):,} to {max(lengths):,} "
                f"tokens, to the natural end as the campaign asks."
            )
            verdicts.append(Verdict("length", name, "pass", sentence, evidence))
        else:
            sentence = f"All {plural(len(counted), 'output')} have exactly {budget:,} tokens."
            if forced := evidence["forced_past_end"]:
                sentence += (
                    f" {forced} of them ran past their natural end, where drafts are accepted "
                    f"at another rate."
                )
            verdicts.append(Verdict("length", name, "pass", sentence, evidence))
    return verdicts


def _named(found: list[tuple[Record, int]]) -> list[dict[str, object]]:
    return [
        {"launch": r.launch, "prompt": r.prompt_id, "tokens": n, "finish": r.finish_reason}
        for r, n in found[:20]
    ]


def _ends(counted: list[Record]) -> list[dict[str, object]]:
    """Which outputs went on past an end token, and after how many tokens it stood."""
    found = [(r, end) for r in counted if (end := natural_end(r)) is not None]
    return [{"launch": r.launch, "prompt": r.prompt_id, "tokens": n} for r, n in found[:20]]
