"""Lines of the log that say a kernel was declined or fell back.

A flag that a server accepts at its start says nothing about the kernel that a request used:
two paths declined exactly the verify shape of a draft width of eight, and only the log said so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from qualify.checks.enginelog import bare, launches_of, lines_of, log_path
from qualify.checks.select import plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.planning.probes.facts import facts_of
from qualify.records.run import Run

DECLINED = re.compile(
    r"\bdeclin(?:ed|es|ing)\b"
    r"|\bf(?:a|e)ll(?:s|ing)? ?-?back\b"
    r"|\bfallback (?:to|path|kernel|implementation)\b"
    r"|\b(?:kernel|path|backend)\b.*\b(?:unsupported|not supported|unavailable)\b",
    re.IGNORECASE,
)
# "M=8 exceeded a cap of 4", "81,920 bytes exceeded a cap of 65,536"
_CAP = re.compile(
    r"(?:(?P<name>\w+) ?= ?)?(?P<value>\d[\d,]*)(?: (?P<unit>bytes))?"
    r" (?:exceed(?:ed|s)|is above|above) (?:a |the )?(?:cap|limit|bound) ?(?:of |= ?)?"
    r"(?P<cap>\d[\d,]*)",
    re.IGNORECASE,
)


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side: what its logs declined, and whether the campaign forbids it.

    `kernels: true` forbids every such line; `forbid: [words]` those that hold one of the
    words; `allow: [words]` takes lines out. Unnamed, the lines are counted and decide nothing.
    """
    named = settings.named("kernels")
    forbid, allow = _words(settings, "forbid"), _words(settings, "allow")
    verdicts = []
    for side, launches in launches_of(run).items():
        counts, first, seen = _read(run, launches)
        rows = _rows(run, side)
        if not seen:
            text = "No engine log is here to read: a server that was attached to keeps its own."
            verdicts.append(Verdict("kernels", side, "not-run", text, {}, demanded=named))
            continue
        barred = {
            text: n
            for text, n in counts.items()
            if not _any(allow, text) and (not forbid or _any(forbid, text))
        }
        evidence: dict[str, Any] = {
            "side": side,
            "lines_read": seen,
            "declined": [
                {"text": text, "times": n, "first": first[text], **_meaning(_cap(text), rows)}
                for text, n in counts.most_common(20)
            ],
            "forbid": forbid or ("every one" if named else None),
            "allow": allow,
        }
        verdicts.append(_judge(side, named, counts, barred, evidence))
    return verdicts


def _judge(
    side: str, named: bool, counts: Counter[str], barred: dict[str, int], evidence: dict[str, Any]
) -> Verdict:
    total = sum(counts.values())
    if named and barred:
        worst = max(barred, key=lambda text: barred[text])
        text = f"{plural(sum(barred.values()), 'line')} of the log say that a kernel was declined "
        text += f"or fell back, and the campaign forbids it: {_said(worst)}"
        return Verdict("kernels", side, "fail", text, evidence)
    if not total:
        text = f"None of {plural(evidence['lines_read'], 'line')} of the log says that a kernel was"
        return Verdict(
            "kernels", side, "pass", f"{text} declined or fell back.", evidence, demanded=named
        )
    shown = next(iter(counts))
    what = "the campaign allows them" if named else "the campaign does not forbid it"
    text = f"{plural(total, 'line')} of the log say that a kernel was declined or fell back; {what}"
    return Verdict("kernels", side, "pass", f"{text}: {_said(shown)}", evidence, demanded=named)


def _read(run: Run, launches: Iterable[str]) -> tuple[Counter[str], dict[str, Any], int]:
    """(line without its time -> how often, where each came first, how many lines were read)."""
    counts: Counter[str] = Counter()
    first: dict[str, Any] = {}
    seen = 0
    for launch in launches:
        for line in lines_of(log_path(run, launch)):
            seen += 1
            if DECLINED.search(line.text):
                text = bare(line.text)
                counts[text] += 1
                first.setdefault(text, {"launch": launch, "line": line.number})
    return counts, first, seen


def _cap(text: str) -> dict[str, Any] | None:
    """The number that was too large and the cap, where the line names both."""
    match = _CAP.search(text)
    if match is None:
        return None
    value, cap = (int(match[k].replace(",", "")) for k in ("value", "cap"))
    return {"what": match["name"] or match["unit"], "value": value, "cap": cap}


def _rows(run: Run, side: str) -> int | None:
    """Rows that a step verifies: the mode's block, from its launch arguments."""
    launch = next(item for item in run.plan.launches if item.side.name == side)
    rows = facts_of(launch, run.plan.engine).args.get("speculative-num-draft-tokens")
    return rows if isinstance(rows, int) and rows > 0 else None


def _meaning(cap: dict[str, Any] | None, rows: int | None) -> dict[str, Any]:
    """The cap, and for bytes how wide the verified rows are in 16-bit values."""
    if cap is None or cap["what"] != "bytes" or rows is None or cap["value"] % (2 * rows):
        return cap or {}
    return {**cap, "rows": rows, "values_a_row": cap["value"] // (2 * rows)}


def _said(text: str) -> str:
    """The line, and what its numbers mean."""
    cap = _cap(text)
    return f"{text}" if cap is None else f"{text} ({cap['value']:,} above {cap['cap']:,})"


def _words(settings: Settings, key: str) -> list[str]:
    given = settings.option("kernels", key)
    return [str(word) for word in given] if isinstance(given, list) else []


def _any(words: list[str], text: str) -> bool:
    return any(word.lower() in text.lower() for word in words)
