"""What a needle evaluation proves beside its codes: size, cold, no retraction, end, recovery."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qualify.checks.retractions import told_by
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.engines.counters import RETRACTIONS
from qualify.evals.compare import planned
from qualify.evals.nouns import Completion, Score
from qualify.evals.standing import score_of, standing_answers, standing_scores
from qualify.plan import EvalPlan
from qualify.records.run import Run

CHECK = "retrieval"
KIND = "needles"
MEASURE = "codes"
FRESH = "fresh/"


@dataclass(frozen=True)
class Asked:
    """One answer with its score, None where it is not scored."""

    problem: str
    answer: Completion
    score: Score | None

    @property
    def fresh(self) -> bool:
        return self.problem.startswith(FRESH)

    @property
    def turn(self) -> int:
        return int(self.problem.rpartition("/t")[2])

    @property
    def planned_tokens(self) -> int:
        """N as it was asked for, from the problem's own name; later turns: as they were sent."""
        if self.turn:
            return self.answer.record.tokens
        return int(self.problem.removeprefix(FRESH).partition("/")[0])


def check(run: Run, settings: Settings) -> list[Verdict]:
    """The proofs of each needle evaluation in each mode; each is a verdict of its own."""
    answers, scores = standing_answers(run.completions), standing_scores(run.scores)
    verdicts: list[Verdict] = []
    for item, sides in planned(run.plan):
        if item.name != KIND:
            continue
        for side in sides:
            mine = answers.get((side, item.id), {})
            asked = [
                Asked(p, mine[p], score_of(scores, mine[p], MEASURE))
                for p in item.problems
                if p in mine and mine[p].record.ok
            ]
            verdicts += _of_side(item, side, asked)
    return verdicts


def _of_side(item: EvalPlan, side: str, asked: list[Asked]) -> list[Verdict]:
    missing = len(item.problems) - len(asked)
    if missing:
        text = f"{missing} of {len(item.problems)} prompts have no answer."
        return [Verdict(CHECK, f"{item.id}, {side}", "not-run", text)]
    found = [_size, _cold, _retractions, _ended, _places]
    verdicts = [judge(f"{item.id}, {side}", asked) for judge in found]
    if any(a.turn for a in asked):
        verdicts.append(_reuse(f"{item.id}, {side}", asked))
    if any(a.fresh for a in asked):
        verdicts.append(_recovered(f"{item.id}, {side}", asked))
    return verdicts


def _size(subject: str, asked: list[Asked]) -> Verdict:
    rows: list[dict[str, Any]] = [
        {
            "problem": a.problem,
            "planned": a.planned_tokens,
            "server": a.answer.record.usage.prompt_tokens,
        }
        for a in asked
    ]
    wrong = [r for r in rows if r["planned"] != r["server"]]
    longest = max(a.planned_tokens for a in asked)
    if wrong:
        first = wrong[0]
        text = (
            f"{len(wrong)} of {len(rows)} prompts are not of their size: the server counted"
            f" {first['server']} tokens of {first['planned']} in {first['problem']}."
        )
        return Verdict(CHECK, f"{subject}: exact size", "fail", text, {"prompts": rows})
    text = f"The server counted the planned size in all {len(rows)} prompts, up to {longest:,}."
    return Verdict(CHECK, f"{subject}: exact size", "pass", text, {"prompts": rows})


def _cold(subject: str, asked: list[Asked]) -> Verdict:
    first = [a for a in asked if a.turn == 0 and not a.fresh]
    rows = [
        {
            "problem": a.problem,
            "cached_tokens": a.answer.record.usage.cached_tokens,
            "method": a.answer.record.cache.method,
            "flush_status": a.answer.record.cache.flush_status,
        }
        for a in first
    ]
    cached = [r["cached_tokens"] for r in rows]
    method = ", ".join(sorted({str(r["method"]) for r in rows}))
    outcome: Outcome = "pass"
    text = f"Zero cached tokens in all {len(rows)} prompts ({method})."
    if any(c is None for c in cached):
        outcome, text = "inconclusive", "The server does not say how many tokens were cached."
    elif any(cached):
        hit = next(r for r in rows if r["cached_tokens"])
        outcome, text = "fail", f"{hit['cached_tokens']} tokens of {hit['problem']} were cached."
    return Verdict(CHECK, f"{subject}: cold", outcome, text, {"prompts": rows})


def _retractions(subject: str, asked: list[Asked]) -> Verdict:
    """By the answer itself and the server's counter over it. Unknown is not zero; but a server
    that never retracts has nothing to report."""
    counts: dict[str, float | None] = {}
    for a in asked:
        told = told_by(a.answer.record.extras), _counter(a, RETRACTIONS)
        counts[a.problem] = max((c for c in told if c is not None), default=None)
    known = [c for c in counts.values() if c is not None]
    evidence: dict[str, Any] = {"retractions": counts}
    name = f"{subject}: retractions"
    if any(known):
        text = f"{sum(known):g} requests were retracted."
        return Verdict(CHECK, name, "fail", text, evidence)
    if len(known) < len(counts):
        text = "The server reports no retractions, not even that there were none."
        return Verdict(CHECK, name, "not-run", text, evidence, demanded=False)
    return Verdict(CHECK, name, "pass", "The server counted zero retractions.", evidence)


def _counter(asked: Asked, name: str) -> float | None:
    counters = asked.answer.evidence.get("counters") or {}
    value = (counters.get("values") or {}).get(name)
    usable = counters.get("problem") is None and isinstance(value, int | float)
    return float(value) if usable and value is not None else None


def _ended(subject: str, asked: list[Asked]) -> Verdict:
    rows = {a.problem: a.answer.record.finish_reason for a in asked}
    cut = [p for p, reason in rows.items() if reason != "stop"]
    name = f"{subject}: natural end"
    if cut:
        text = f"{len(cut)} of {len(rows)} answers did not end by themselves: {', '.join(cut[:4])}."
        return Verdict(CHECK, name, "fail", text, {"finish_reasons": rows})
    text = f"All {len(rows)} answers ended by themselves, inside the budget."
    return Verdict(CHECK, name, "pass", text, {"finish_reasons": rows})


def _places(subject: str, asked: list[Asked]) -> Verdict:
    """Where the codes really stood; a prompt without that knowledge proves no depth."""
    placed = {a.problem: _needles(a) for a in asked if a.turn == 0}
    rows = {"prompts": placed}
    name = f"{subject}: depths"
    if not all(placed.values()):
        text = "Of some prompts it is not known where their codes stood."
        return Verdict(CHECK, name, "inconclusive", text, dict(rows))
    far = max(abs(n["asked_depth"] - n["depth"]) for told in placed.values() for n in told)
    facts = [a.answer.evidence["prompt"] for a in asked if a.turn == 0]
    again = sum(bool(f.get("repeated")) for f in facts)
    text = f"Every code stands once, at most {far:.1%} of the prompt from the depth asked for."
    text += f" {again} prompts use their text more than once." if again else ""
    return Verdict(CHECK, name, "pass", text, dict(rows), demanded=False)


def _needles(asked: Asked) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (asked.answer.evidence.get("prompt") or {}).get("needles") or []
    return found


def _reuse(subject: str, asked: list[Asked]) -> Verdict:
    later = {a.problem: a.answer.record.usage.cached_tokens for a in asked if a.turn}
    name = f"{subject}: later turns"
    if any(a.answer.record.cache.method == "bypass" for a in asked if a.turn):
        text = "The server has no cache reset, so every request left the cache aside."
        return Verdict(CHECK, name, "not-run", text, {"cached_tokens": later}, demanded=False)
    if any(c is None for c in later.values()):
        text = "The server does not say how many tokens were cached."
        return Verdict(CHECK, name, "inconclusive", text, {"cached_tokens": later})
    missed = [p for p, c in later.items() if not c]
    if missed:
        text = f"{len(missed)} of {len(later)} later turns found nothing in the cache."
        return Verdict(CHECK, name, "fail", text, {"cached_tokens": later})
    least = min(c for c in later.values() if c is not None)
    text = f"All {len(later)} later turns hit the cache, with {least:,} tokens or more."
    return Verdict(CHECK, name, "pass", text, {"cached_tokens": later})


def _recovered(subject: str, asked: list[Asked]) -> Verdict:
    """After the long requests: flush answered 200, and a fresh short one finds every code."""
    name = f"{subject}: afterwards"
    (last,) = [a for a in asked if a.fresh]
    record = last.answer.record
    long = [a.answer.record for a in asked if not a.fresh]
    evidence: dict[str, Any] = {
        "problem": last.problem,
        "flush_status": record.cache.flush_status,
        "method": record.cache.method,
        "cached_tokens": record.usage.cached_tokens,
        "prompt_tokens": record.usage.prompt_tokens,
        "answer": record.output_text,
        "outcome": None if last.score is None else last.score.outcome,
    }
    if _not_after(record.launch, record.started_at, long):
        text = "The fresh request did not follow the long ones in one launch."
        return Verdict(CHECK, name, "inconclusive", text, evidence)
    if last.score is None:
        return Verdict(CHECK, name, "not-run", "The fresh answer is not scored.", evidence)
    faults = []
    if record.cache.method == "flush" and record.cache.flush_status != 200:
        faults.append(f"the flush was answered {record.cache.flush_status}")
    if record.usage.cached_tokens:
        faults.append(f"{record.usage.cached_tokens} of its tokens were cached")
    if last.score.outcome != "pass":
        faults.append(last.score.detail or "its codes are not exact")
    if faults:
        return Verdict(CHECK, name, "fail", f"A fresh request: {'; '.join(faults)}.", evidence)
    if record.usage.cached_tokens is None:
        text = "The server does not say how many tokens of the fresh request were cached."
        return Verdict(CHECK, name, "inconclusive", text, evidence)
    how = "Flush was answered 200" if record.cache.method == "flush" else "The cache was bypassed"
    size = record.usage.prompt_tokens
    text = f"{how}; a fresh request of {size} tokens, none of them cached, found every code."
    return Verdict(CHECK, name, "pass", text, evidence)


def _not_after(launch: str, started_at: str, long: Iterable[Any]) -> bool:
    return any(r.launch != launch or r.started_at > started_at for r in long)
