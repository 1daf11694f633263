"""The engine holds what it was asked to hold: seen after a prefill of full shape, never from
the banner.

A larger share of memory may improve the banner and remove the workspace that a real request
needs; a scheduler's ceiling of 64 may be eight where every request takes five state slots.
"""

from __future__ import annotations

import re
from typing import Any

from qualify.checks.enginelog import launches_of, lines_of, log_path
from qualify.checks.overlap import together
from qualify.checks.select import launch_record
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.plan import LaunchPlan
from qualify.planning.probes.facts import Facts, facts_of
from qualify.records.run import Run
from qualify.records.schema import ProbeRecord, Record

# SGLang: "max_total_tokens=… is larger than the profiled value …. Use the profiled value instead."
_CUT = re.compile(r"max_total_tokens=\d+ is larger than the profiled value")
_CAPPED = re.compile(r"max_running_requests is capped to (?P<n>\d+) by the mamba state cache")


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side that was launched: pool, limit, concurrency, in this order."""
    verdicts = []
    for side, launches in launches_of(run).items():
        plan = next(item for item in run.plan.launches if item.side.name == side)
        verdicts.append(_Judge(run, plan, launches, settings.named("capacity")).verdict())
    return verdicts


class _Judge:
    def __init__(self, run: Run, plan: LaunchPlan, launches: list[str], named: bool) -> None:
        self.run, self.plan, self.launches, self.named = run, plan, launches, named
        self.facts: Facts = facts_of(plan, run.plan.engine)
        self.steps = [p for p in run.probes if p.side == plan.side.name and p.probe == "capacity"]
        self.evidence: dict[str, Any] = {"side": plan.side.name}

    def verdict(self) -> Verdict:
        fault = self._pool() or self._limit() or self._crowd()
        if fault is not None:
            return self._said("fail", fault)
        ended = next((p for p in self.steps if p.status != "step"), None)
        if ended is None:
            text = "What the engine reports at its start is no evidence of what it holds"
            text = f"{text}; name `capacity` in checks: to have the limit tried."
            return self._said("not-run", text)
        if ended.status == "failed":
            return self._said("inconclusive", f"The probe did not come to its end: {ended.reason}")
        open_ends = [t for t in (self._pool_unknown(), self._limit_unknown()) if t]
        if open_ends:
            return self._said("inconclusive", " ".join(open_ends))
        return self._said("pass", self._summary())

    def _said(self, outcome: Outcome, text: str) -> Verdict:
        demanded = self.named or outcome != "not-run"
        side = self.plan.side.name
        return Verdict("capacity", side, outcome, text, self.evidence, demanded=demanded)

    def _pool(self) -> str | None:
        asked = self.facts.pool_tokens
        start = [self._at_start(launch) for launch in self.launches]
        after = self._seen("reported")
        self.evidence["pool_tokens"] = {
            "asked": asked,
            "at_start": start,
            "after_prefill": after.get("pool_tokens") if after else None,
        }
        for launch in self.launches:
            for line in lines_of(log_path(self.run, launch)):
                if _CUT.search(line.text):
                    self.evidence["log"] = line.text.strip()
                    return f"The pool was cut: {line.text.strip()}"
                if _CAPPED.search(line.text):
                    self.evidence["capped"] = line.text.strip()
        said = [n for n in (*start, self.evidence["pool_tokens"]["after_prefill"]) if n is not None]
        wrong = next((n for n in said if asked is not None and n != asked), None)
        if wrong is not None:
            return f"The engine's pool holds {wrong:,} tokens; {asked:,} were asked for."
        return None

    def _pool_unknown(self) -> str | None:
        pool = self.evidence["pool_tokens"]
        if pool["asked"] is None:
            return "The profile states no pool to compare with (pool_tokens)."
        return None if pool["after_prefill"] is not None else "The engine reports no pool size."

    def _limit(self) -> str | None:
        at, more = self._request("at-limit"), self._request("one-more")
        self.evidence["at_limit"], self.evidence["one_more"] = _told(at), _told(more)
        limit = self._option("limit_tokens")
        if at is not None:
            asked = int(at.request["output_tokens"])
            got = at.usage.completion_tokens
            if at.failure is not None:
                text = f"{at.tokens:,} + {asked} tokens, the limit of {limit:,}, were not served: "
                return f"{text}{at.failure.message}"
            if at.usage.prompt_tokens not in (None, at.tokens):
                text = f"The prompt of {at.tokens:,} tokens was truncated: the engine saw"
                return f"{text} {at.usage.prompt_tokens:,}."
            if got != asked:
                return f"{asked} tokens were asked for at the limit, and {got} came: truncated."
        if more is not None and more.failure is None:
            asked = int(more.request["output_tokens"])
            got = more.usage.completion_tokens or 0
            text = f"{more.tokens:,} + {asked} tokens, one beyond the limit of {limit:,}, were"
            if got < asked or more.usage.prompt_tokens not in (None, more.tokens):
                return f"{text} not refused but truncated to {got}."
            return f"{text} served: the limit is not where it is said to be."
        if more is not None and not 400 <= (more.http_status or 0) < 500:
            why = more.failure.message if more.failure else ""
            return f"One token beyond the limit was not refused with a 4xx: {why}"
        return None

    def _limit_unknown(self) -> str | None:
        if self._option("limit_tokens") is not None or self._option("limit") is False:
            return None
        return "The profile states no context_tokens, so the limit could not be tried."

    def _crowd(self) -> str | None:
        sent = [p.request for p in self.steps if p.step == "crowd" and p.request is not None]
        if not sent:
            return None
        bad = next((r for r in sent if r.failure is not None), None)
        found = together([r for r in sent if r.ok])
        after = self._seen("reported") or {}
        self.evidence["concurrency"] = {
            "sent_together": len(sent),
            "found": found,
            "expected": self.facts.effective_concurrency,
            "ceiling": self.facts.max_running,
            "engine_says": after.get("max_running"),
        }
        if bad is not None and bad.failure is not None:
            return f"Of {len(sent)} requests at once one failed: {bad.failure.message}"
        expected = self.facts.effective_concurrency
        if expected is not None and found < expected:
            text = f"{found} of {len(sent)} requests ran together, and the profile says {expected}"
            return f"{text} (the scheduler's ceiling is {self.facts.max_running})."
        return None

    def _summary(self) -> str:
        pool = self.evidence["pool_tokens"]["after_prefill"]
        text = f"After a prefill of full shape the pool is the {pool:,} tokens asked for"
        limit = self._option("limit_tokens")
        if limit is not None:
            text += f"; {limit:,} tokens of input and output are served, one more is refused"
        crowd = self.evidence.get("concurrency")
        if crowd is not None:
            text += f"; {crowd['found']} of {crowd['sent_together']} requests ran together"
            if crowd["ceiling"] is not None:
                text += f" under a ceiling of {crowd['ceiling']}"
        return f"{text}."

    def _request(self, step: str) -> Record | None:
        return next((p.request for p in self.steps if p.step == step), None)

    def _seen(self, step: str) -> dict[str, Any] | None:
        found: ProbeRecord | None = next((p for p in self.steps if p.step == step), None)
        return found.seen if found is not None else None

    def _option(self, key: str) -> Any:
        item = next((p for p in self.plan.probes if p.name == "capacity"), None)
        return item.options.get(key) if item is not None else None

    def _at_start(self, launch: str) -> int | None:
        entry = launch_record(self.run, launch)
        info = entry.origin.get("info") if entry is not None else None
        said = info.get("pool_tokens") if isinstance(info, dict) else None
        return said if isinstance(said, int) else None


def _told(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "prompt_tokens": record.tokens,
        "asked_output": record.request.get("output_tokens"),
        "status": record.http_status,
        "got_output": record.usage.completion_tokens,
        "failure": record.failure.message if record.failure else None,
    }
