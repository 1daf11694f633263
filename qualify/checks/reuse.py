"""Reused prefixes: the same bytes as cold ones, and a claimed reuse that times bear out."""

from __future__ import annotations

from typing import Any

from qualify.checks.probed import Probed, difference, greedy, not_probed, probed
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

CASES = ("exact", "append", "shorter", "branch", "compressed")
SLACK_TOKENS = 16  # a bypass empties nothing: what earlier prompts share may be reused too
MOSTLY = 0.5  # of a prompt: a reuse of this much has to show in TTFT
UNCHANGED, HIDDEN = 0.9, 0.4  # warm TTFT over cold TTFT
PREFILL_SHOWS = 2.0  # TTFT of the longest cold prompt over that of the shortest, at least


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side that was probed."""
    found = probed(run, "reuse")
    verdicts = not_probed(run, settings, "reuse") if settings.named("reuse") else []
    if not found and not verdicts:
        return not_probed(run, settings, "reuse")
    return [*verdicts, *(_judge(one) for one in found)]


def _judge(one: Probed) -> Verdict:
    told = one.note("engine")
    rows = {case: _row(one, case) for case in ("initial", *CASES)}
    evidence: dict[str, Any] = {
        "side": one.side,
        "launch": one.launch,
        "tokens": told.get("tokens"),
        "cases": {case: row for case, row in rows.items() if row},
    }

    def verdict(outcome: Any, text: str) -> Verdict:
        return Verdict("reuse", one.side, outcome, text, evidence)

    wrong = _bytes(one)
    if wrong is not None:
        return verdict("fail", wrong)
    if one.failed is not None:
        return verdict("inconclusive", f"The probe broke off: {one.failed}")
    if any(not row for row in rows.values()):
        return verdict("inconclusive", "Not every case was sent both over a kept prefix and cold.")
    if any(r.usage.cached_tokens for r in one.requests("cold")):
        text = "What was to be answered cold reused cached tokens: this cache could not be emptied."
        return verdict("inconclusive", text)
    for case in CASES:
        cached, reusable = rows[case]["cached_tokens"], rows[case]["reusable"]
        slack = 0 if rows["initial"]["method"] == "flush" else SLACK_TOKENS
        if cached is not None and cached > reusable + slack:
            return verdict(
                "fail",
                f"{case}: {cached:,} tokens are claimed as reused, and only {reusable:,} of the "
                f"prompt had ever been sent.",
            )
    if any(rows[case]["cached_tokens"] is None for case in CASES):
        return verdict("inconclusive", "The same bytes, but the engine does not report its reuse.")
    reused = sum(rows[case]["cached_tokens"] for case in CASES)
    if not reused:
        if told.get("no_prefix_cache"):
            text = "The engine states that it keeps no prefix cache, and it reused nothing."
            return Verdict("reuse", one.side, "not-run", text, evidence, demanded=False)
        return verdict("inconclusive", "Nothing was reused in any case, so nothing was tried.")
    shares = ", ".join(
        f"{case} {rows[case]['cached_tokens']:,} of {rows[case]['tokens']:,}" for case in CASES
    )
    against = _against_times(rows)
    if against is not None:
        return verdict("fail", f"{against} Claimed: {shares}.")
    witness = "" if _prefill_shows(rows) else "; fixed costs hide the prefill, so TTFT says nothing"
    return verdict("pass", f"The same bytes as cold; reused: {shares}{witness}.")


def _row(one: Probed, case: str) -> dict[str, Any]:
    """Numbers of one case; empty where one of its requests is missing or failed."""
    kept = one.requests("kept", case=case)
    cold = one.requests("cold", case=_cold_case(case))
    if not kept or not cold or not kept[0].ok or not cold[0].ok:
        return {}
    seen = next(s for s in one.notes("kept") if s.get("case") == case)
    return {
        "tokens": kept[0].tokens,
        "method": kept[0].cache.method,
        "reusable": seen.get("reusable", 0),
        "cached_tokens": kept[0].usage.cached_tokens,
        "ttft_s": kept[0].timing.ttft_s,
        "cold_ttft_s": cold[0].timing.ttft_s,
    }


def _cold_case(case: str) -> str:
    """An exact repeat is the first prompt again: one cold request serves both."""
    return "initial" if case == "exact" else case


def _bytes(one: Probed) -> str | None:
    for case in ("initial", *CASES):
        for kept in one.requests("kept", case=case):
            for cold in one.requests("cold", case=_cold_case(case)):
                broken = next((r for r in (kept, cold) if not r.ok), None)
                if broken is not None:
                    return f"{case} failed: {_why(broken)}."
                if greedy(kept) and (told := difference(kept, cold)) is not None:
                    return f"{case}: the answer over a kept prefix is another than cold ({told})."
    return None


def _why(record: Record) -> str:
    return f"{record.failure.cause}: {record.failure.message}"[:160] if record.failure else "?"


def _prefill_shows(rows: dict[str, dict[str, Any]]) -> bool:
    """Does a longer cold prompt take visibly longer? Else TTFT cannot be a witness."""
    known = [(r["tokens"], r["cold_ttft_s"]) for r in rows.values() if r["cold_ttft_s"]]
    if len(known) < 2:
        return False
    low, high = min(known), max(known)
    return bool(high[1] >= PREFILL_SHOWS * low[1]) if high[0] >= PREFILL_SHOWS * low[0] else False


def _against_times(rows: dict[str, dict[str, Any]]) -> str | None:
    """A claim that most of the cases' times contradict; None where none is."""
    if not _prefill_shows(rows):
        return None
    timed = [r for case in CASES if (r := rows[case])["ttft_s"] and r["cold_ttft_s"]]
    claimed = [r for r in timed if r["cached_tokens"] >= MOSTLY * r["tokens"]]
    idle = [r for r in claimed if r["ttft_s"] > UNCHANGED * r["cold_ttft_s"]]
    if claimed and 2 * len(idle) > len(claimed):
        return (
            f"In {len(idle)} of {len(claimed)} cases with most of the prompt claimed as reused "
            f"TTFT is that of a cold prompt."
        )
    unclaimed = [r for r in timed if r["cached_tokens"] < 0.1 * r["tokens"]]
    hidden = [r for r in unclaimed if r["ttft_s"] < HIDDEN * r["cold_ttft_s"]]
    if unclaimed and 2 * len(hidden) > len(unclaimed):
        return (
            f"In {len(hidden)} of {len(unclaimed)} cases without a claimed reuse TTFT is far "
            f"below that of a cold prompt: something was reused and not said."
        )
    return None
