"""Flush, cancel, shift, wait, refuse, stop: nothing of it may change what comes after.

What is compared is always one request with itself, before and after an incident, at the
campaign's largest shape: the fault that this is for passed every probe of a few hundred tokens.

Where a kept prefix alone changes an engine's answers (`reuse` fails there), an answer over more
of a prefix than its reference had convicts no incident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from qualify.checks import lifecycle_end, lifecycle_tpot
from qualify.checks.probed import Probed, difference, greedy, not_probed, probed
from qualify.checks.select import plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

EIGHT_K = 8192


@dataclass(frozen=True)
class Part:
    """One incident: what came of it, in words."""

    name: str
    outcome: Outcome
    said: str


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side that was probed, with every incident in its evidence."""
    found = probed(run, "lifecycle")
    verdicts = not_probed(run, settings, "lifecycle") if settings.named("lifecycle") else []
    if not found and not verdicts:
        return not_probed(run, settings, "lifecycle")
    return [*verdicts, *(_judge(run, settings, one) for one in found)]


def _judge(run: Run, settings: Settings, one: Probed) -> Verdict:
    parts = [part for judge in PARTS for part in judge(one)]
    parts += [Part(*told) for told in lifecycle_tpot.judge(one, settings)]
    parts += [Part(*told) for told in lifecycle_end.judge(run, one.side)]
    shape = one.note("shape")
    tokens = shape.get("tokens")
    evidence: dict[str, Any] = {
        "side": one.side,
        "launch": one.launch,
        "tokens": tokens,
        "parts": {p.name: {"outcome": p.outcome, "said": p.said} for p in parts},
    }
    at = f"at {tokens:,} tokens" if isinstance(tokens, int) else "at an unknown shape"
    if isinstance(tokens, int) and tokens < EIGHT_K:
        at += f", which is short (the engine or the campaign allows no {EIGHT_K:,})"
    for outcome in ("fail", "inconclusive"):
        worst = [p for p in parts if p.outcome == outcome]
        if worst:
            text = f"{'; '.join(f'{p.name}: {p.said}' for p in worst)} ({at})."
            return Verdict("lifecycle", one.side, outcome, text, evidence)
    if one.failed is not None:
        text = f"The probe broke off: {one.failed}"
        return Verdict("lifecycle", one.side, "fail", text, evidence)
    names = [p.name for p in parts if p.outcome == "pass"]
    left_out = [p.name for p in parts if p.outcome == "not-run"]
    text = f"Nothing changed after {', '.join(names)} ({at})"
    text += f"; not judged: {', '.join(left_out)}." if left_out else "."
    return Verdict("lifecycle", one.side, "pass", text, evidence)


def _flush(one: Probed) -> Iterator[Part]:
    """Before and after a flush: the same bytes, from nothing that was kept."""
    before, after = one.requests("before"), one.requests("after")
    if not before and not after:
        return
    kept = [r for r in after if r.usage.cached_tokens]
    flushed = any(note.get("method") == "flush" for note in one.notes("flush"))
    if flushed and kept:
        said = f"{plural(len(kept), 'request')} after it still reused cached tokens"
        yield Part("flush", "fail", said)
        return
    yield _same(one, "flush", list(zip(after, before, strict=False)), len(before))


def _cancelled(one: Probed) -> Iterator[Part]:
    """The prompt that was cancelled, sent again whole, against itself on an empty cache."""
    cold = one.requests("cold")
    for phase in ("prefill", "decode"):
        name = f"cancel in {phase}"
        cancelled = one.requests("cancelled", phase=phase)
        if not cancelled:
            continue
        last = cancelled[-1]
        began = bool(last.timing.events)
        cause = last.failure.cause if last.failure else None
        if cause is not None and cause != "cancelled":
            said = f"the request broke before it was cancelled ({cause})"
            yield Part(name, "fail", said)
            continue
        fresh = one.requests("fresh", phase=phase)
        part = _same(one, name, [(f, c) for f in fresh for c in cold], len(fresh))
        if part.outcome == "pass" and (cause is None or began != (phase == "decode")):
            how = "it had ended" if cause is None else "its first token had not come"
            how = "its first token had come" if began and phase == "prefill" else how
            part = Part(name, "not-run", f"cancelled at another moment: {how} by then")
        yield part


def _session(one: Probed) -> Iterator[Part]:
    """Every turn answered whole, and the last one as on an empty cache."""
    turns = one.requests("turn")
    if not turns:
        return
    name = f"a session of {len(turns)} turns"
    short = [r for r in turns if r.ok and r.usage.prompt_tokens not in (None, r.tokens)]
    if short:
        seen = short[0].usage.prompt_tokens
        said = f"turn {short[0].turn} has {short[0].tokens:,} tokens, and the engine saw {seen:,}"
        yield Part(name, "fail", said)
        return
    broken = [r for r in turns if not r.ok]
    if broken:
        yield Part(name, "fail", f"turn {broken[0].turn} failed: {_why(broken[0])}")
        return
    yield _same(one, name, [(turns[-1], c) for c in one.requests("turn-cold")], 1)


def _idle(one: Probed) -> Iterator[Part]:
    idle = one.requests("idle")
    if idle:
        before = one.requests("before")[:1]
        yield _same(one, "an idle gap", [(r, b) for r in idle for b in before], 1)


def _refused(one: Probed) -> Iterator[Part]:
    """4xx, or served where it may be; the next request as if nothing had been asked."""
    for told in one.notes("refusal"):
        kind, status, end = told["kind"], told.get("status"), told.get("end")
        name = f"a refused request ({kind})"
        served = isinstance(status, int) and 200 <= status < 300 and end == "complete"
        refused = isinstance(status, int) and 400 <= status < 500
        if kind == "too-long" and served and '"error"' not in str(told.get("body")):
            said = f"{told['prompt_tokens']:,} tokens were taken, which is above the context"
            yield Part(name, "fail", said)
            continue
        if not served and not refused:
            said = f"answered with {status if status is not None else 'no status'} ({end})"
            yield Part(name, "fail", f"{said} instead of 4xx")
            continue
        after = one.requests("unharmed", kind=kind)
        settled = one.requests("settled")[-1:]
        part = _same(one, name, [(r, b) for r in after for b in settled], len(after))
        if part.outcome == "pass":
            how = f"refused with {status}" if refused else "served, which this engine can"
            part = Part(name, "pass", f"{how}, and the next request was as before")
        yield part


PARTS: tuple[Callable[[Probed], Iterator[Part]], ...] = (
    _flush,
    _cancelled,
    _session,
    _idle,
    _refused,
)


def _same(one: Probed, name: str, pairs: list[tuple[Record, Record]], expected: int) -> Part:
    """(after, reference): each after succeeded and gave the reference's bytes."""
    for after, reference in pairs:
        for record in (after, reference):
            if not record.ok:
                return Part(name, "fail", f"{record.prompt_id} failed: {_why(record)}")
    if len(pairs) < expected or not pairs:
        return Part(name, "inconclusive", "what was to be sent before or after it was not")
    if not all(greedy(r) for pair in pairs for r in pair):
        return Part(name, "pass", "answered; sampled outputs cannot be compared")
    for after, reference in pairs:
        told = difference(after, reference)
        if told is None:
            continue
        if after.usage.cached_tokens != reference.usage.cached_tokens and not _reuse_is_exact(one):
            said = "a kept prefix alone changes this engine's answers, so nothing was shown"
            return Part(name, "not-run", said)
        said = f"{after.prompt_id} differs afterwards: {told}"
        return Part(name, "fail", said + _prefixes(after, reference))
    tokens = sum(a.usage.completion_tokens or 0 for a, _ in pairs)
    return Part(name, "pass", f"the same {tokens:,} tokens")


def _prefixes(after: Record, reference: Record) -> str:
    """How much of a kept prefix each went on from, where that is not the same."""
    one, other = after.usage.cached_tokens, reference.usage.cached_tokens
    if one == other or one is None or other is None:
        return ""
    return f" (over {one:,} cached tokens, its reference over {other:,})"


def _reuse_is_exact(one: Probed) -> bool:
    """Is a prompt over its own kept prefix answered as on an empty cache? Assumed where it was
    not tried; `settled` is the first prompt over itself, `before` the same one cold."""
    settled, cold = one.requests("settled"), one.requests("before")[:1]
    return not any(difference(s, c) for s in settled for c in cold if s.ok and c.ok)


def _why(record: Record) -> str:
    failure = record.failure
    return f"{failure.cause}: {failure.message}"[:160] if failure else "no reason was given"
