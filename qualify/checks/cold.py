"""Cold is proven, not assumed (rule 5)."""

from __future__ import annotations

from typing import Any

from qualify.checks.select import Place, by_side_and_cell, places, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run

BYPASSES = {"bypass": "a per-request bypass", "salt": "a cache salt", "no-cache": "no cache"}


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell whose cache policy is cold.

    Three things must hold in every launch: the cache was emptied (flush answered 200) or
    bypassed; every measured request reports cached_tokens == 0; and that counter was first
    seen above 0 on a planted warm prompt, so that its zero means something.
    """
    planted = _planted(run)
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        measured = [p for p in group if p.cell.cache == "cold" and p.counted]
        if not measured:
            continue
        findings = [_one(p, planted.get(p.launch.id)) for p in measured]
        order: dict[Outcome, int] = {"fail": 0, "inconclusive": 1, "pass": 2}
        outcome, sentence, _ = min(findings, key=lambda f: order[f[0]])
        evidence = {
            "side": side,
            "cell": cell,
            "launches": {
                p.launch.id: facts for p, (_, _, facts) in zip(measured, findings, strict=True)
            },
        }
        verdicts.append(Verdict("cold", subject(side, cell), outcome, sentence, evidence))
    return verdicts


def _planted(run: Run) -> dict[str, int]:
    """The largest cached count that each launch reported for its planted warm prompt."""
    seen: dict[str, int] = {}
    for place in places(run):
        proof = _proof(place)
        value = proof.get("planted_cached")
        if isinstance(value, int) and not isinstance(value, bool):
            seen[place.launch.id] = max(value, seen.get(place.launch.id, 0))
    return seen


def _proof(place: Place) -> dict[str, Any]:
    proof = place.end.evidence.get("cold") if place.end else None
    return proof if isinstance(proof, dict) else {}


def _one(place: Place, planted: int | None) -> tuple[Outcome, str, dict[str, Any]]:
    proof = _proof(place)
    methods = sorted({r.cache.method or "none" for r in place.counted})
    method = str(proof.get("method") or (methods[0] if len(methods) == 1 else "mixed"))
    cached = [r.usage.cached_tokens for r in place.counted]
    known = [c for c in cached if c is not None]
    warm = [c for c in known if c > 0]
    facts: dict[str, Any] = {
        "method": method,
        "requests": len(cached),
        "cached_known": len(known),
        "cached_above_zero": len(warm),
        "cached_tokens": sum(known) if known else None,
        "planted_cached": planted,
        "flush": proof.get("flush"),
    }
    n = plural(len(cached), "request")
    if warm:
        return (
            "fail",
            f"Not cold in {place.launch.id}: {len(warm)} of {n} reused "
            f"{sum(warm):,} cached prompt tokens.",
            facts,
        )
    if method == "flush" and not _flushed(place, proof):
        return "fail", f"The flush before {place.launch.id} was not confirmed with 200.", facts
    if method not in BYPASSES and method != "flush":
        return (
            "inconclusive",
            f"No flush and no bypass is recorded in {place.launch.id} (method: {method}).",
            facts,
        )
    how = "flush answered 200" if method == "flush" else BYPASSES[method]
    if len(known) < len(cached):
        return (
            "inconclusive",
            f"The engine did not report cached tokens for {len(cached) - len(known)} of {n}; "
            f"unknown is not zero (method: {how}).",
            facts,
        )
    if method == "no-cache":
        return "pass", f"The engine states that it keeps no prefix cache; {n} reused 0.", facts
    if not planted:
        return (
            "inconclusive",
            f"0 cached tokens on {n} ({how}), but the counter was never seen above 0 on a "
            f"planted warm prompt, so its zero proves nothing.",
            facts,
        )
    return (
        "pass",
        f"0 cached tokens on every measured request ({how}); the same counter had shown "
        f"{planted:,} on a planted warm prompt.",
        facts,
    )


def _flushed(place: Place, proof: dict[str, Any]) -> bool:
    flush = proof.get("flush")
    if isinstance(flush, dict) and flush:
        return flush.get("ok") is True or flush.get("status") == 200
    return all(r.cache.flush_status == 200 for r in place.counted)
