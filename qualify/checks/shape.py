"""Exact shape: the server's own prompt count of every request against the plan (rule 4)."""

from __future__ import annotations

from qualify.checks.select import by_side_and_cell, launch_record, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell that has measured requests.

    Every request is compared, not only the first. A count that the server did not give is
    inconclusive, never assumed to be right.
    """
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        records = [r for p in group for r in p.records if r.ok]
        if not records:
            continue
        wrong = [r for r in records if r.usage.prompt_tokens not in (None, r.tokens)]
        unknown = [r for r in records if r.usage.prompt_tokens is None]
        beyond = [r for r in records if _beyond_context(run, r)]
        evidence = {
            "side": side,
            "cell": cell,
            "requests": len(records),
            "mismatches": [
                {
                    "launch": r.launch,
                    "prompt": r.prompt_id,
                    "asked": r.tokens,
                    "engine_saw": r.usage.prompt_tokens,
                }
                for r in wrong[:20]
            ],
            "mismatched": len(wrong),
            "unknown": len(unknown),
        }
        name = subject(side, cell)
        if wrong:
            first = wrong[0]
            sentence = (
                f"Shape mismatch: asked {first.tokens:,}, engine saw "
                f"{first.usage.prompt_tokens:,}; {len(wrong)} of "
                f"{plural(len(records), 'request')} differ from the plan."
            )
            verdicts.append(Verdict("shape", name, "fail", sentence, evidence))
        elif beyond:
            sentence = (
                f"{plural(len(beyond), 'request')} asked for more than the engine's context: "
                f"input and output together exceed what it says it can hold."
            )
            verdicts.append(Verdict("shape", name, "fail", sentence, evidence))
        elif unknown:
            sentence = (
                f"The engine did not report its prompt count for {len(unknown)} of "
                f"{plural(len(records), 'request')}; unknown is not equal."
            )
            verdicts.append(Verdict("shape", name, "inconclusive", sentence, evidence))
        else:
            sizes = sorted({r.tokens for r in records})
            shown = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
            sentence = (
                f"All {plural(len(records), 'request')} reached the engine as exactly "
                f"{shown} tokens."
            )
            verdicts.append(Verdict("shape", name, "pass", sentence, evidence))
    return verdicts


def _beyond_context(run: Run, record: Record) -> bool:
    entry = launch_record(run, record.launch)
    info = entry.origin.get("info") if entry else None
    limit = info.get("context_tokens") if isinstance(info, dict) else None
    budget = record.request.get("output_tokens")
    if not isinstance(limit, int) or not isinstance(budget, int):
        return False
    return record.tokens + budget > limit
