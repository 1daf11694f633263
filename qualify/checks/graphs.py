"""Which of target and draft run as captured graphs, seen in the log; "enabled" is no evidence.

A generic look at "graphs enabled" missed that the drafter ran eagerly beside a captured target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualify.checks.captures import Captures, read_captures
from qualify.checks.enginelog import launches_of, lines_of, log_path
from qualify.checks.exercised import Exercise, exercise_of
from qualify.checks.select import MODEL, drafter_of, plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.planning.probes.facts import facts_of
from qualify.planning.probes.graphs import captured_sizes
from qualify.records.run import Run


@dataclass(frozen=True)
class _Wanted:
    """What must be captured; None = nobody asked."""

    target: bool | None
    draft: bool | None
    sizes: tuple[int, ...]


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side.

    A target must be captured where the launch arguments ask for it; a drafter where the
    campaign says so (`graphs: {draft: true}`). Then each captured batch size, one that was not
    captured and the longest context must have been served, and no step at a captured size may
    have run eagerly.
    """
    verdicts = []
    for side, launches in launches_of(run).items():
        found = [read_captures(lines_of(log_path(run, launch))) for launch in launches]
        wanted = _wanted(run, side, settings)
        verdicts.append(_judge(run, side, launches, found, wanted, settings.named("graphs")))
    return verdicts


def _wanted(run: Run, side: str, settings: Settings) -> _Wanted:
    launch = next(item for item in run.plan.launches if item.side.name == side)
    sizes = settings.option("graphs", "sizes")
    if not isinstance(sizes, list):
        sizes = captured_sizes(facts_of(launch, run.plan.engine).args)
    target = settings.option("graphs", "target")
    draft = settings.option("graphs", "draft")
    if drafter_of(run.plan, launch.side.mode) != MODEL:
        draft = None
    return _Wanted(
        target if isinstance(target, bool) else True if sizes else None,
        draft if isinstance(draft, bool) else None,
        tuple(sizes),
    )


def _judge(
    run: Run,
    side: str,
    launches: list[str],
    found: list[Captures],
    wanted: _Wanted,
    named: bool,
) -> Verdict:
    memory = [_graph_gb(run, launch) for launch in launches]
    roles = [r for r in ("target", "draft") if found and all(c.captured(r) for c in found)]
    exercise = exercise_of(run, side, found, launches)
    evidence: dict[str, Any] = {
        "side": side,
        "launches": launches,
        "captured": roles,
        "asked_sizes": list(wanted.sizes),
        "logged_sizes": sorted(set().union(*(c.sizes for c in found))),
        "graph_memory_gb": memory,
        "log": [q for c in found for q in c.quotes][:20],
        "exercised": exercise.to_json(),
    }

    def verdict(outcome: Outcome, text: str) -> Verdict:
        demanded = named or outcome != "not-run"
        return Verdict("graphs", side, outcome, text, evidence, demanded=demanded)

    unfinished = [role for c in found for role in c.unfinished()]
    if unfinished:
        return verdict("fail", f"The capture of the {unfinished[0]} began and never ended.")
    for role, asked in (("target", wanted.target), ("draft", wanted.draft)):
        if asked and role not in roles:
            other = [r for r in roles if r != role]
            text = f"The {_name(role)} was to be captured, and no log line shows that it was"
            text += f"; the {_name(other[0])} was." if other else "."
            return verdict("fail", text)
        if asked is False and role in roles:
            return verdict("fail", f"The {_name(role)} was captured, and was to run eagerly.")
    missing = set(wanted.sizes) - set(evidence["logged_sizes"])
    if roles and evidence["logged_sizes"] and missing:
        text = f"Batch sizes {_list(missing)} were to be captured; the log names "
        return verdict("fail", f"{text}{_list(evidence['logged_sizes'])}.")
    if not roles:
        said = any(c.says_none for c in found) or any(gb == 0 for gb in memory)
        text = "The engine says that it captures no graph" if said else "No log line shows a graph"
        return verdict("not-run", f"{text}: every step runs eagerly, so there is none to judge.")
    if exercise.fault is not None:
        return verdict("fail", exercise.fault)
    eager = f"; the {_name('draft')} runs eagerly" if _draft_is_eager(run, side, roles) else ""
    captured = " and ".join(_name(r) for r in roles)
    if not exercise.complete:
        text = f"Captured: {captured}{eager}. Not exercised: {exercise.lacking}; name `graphs` in"
        return verdict(
            "inconclusive" if named else "not-run", f"{text} checks: to have requests sent."
        )
    return verdict("pass", f"Captured: {captured}{eager}; {_served(exercise)}.")


def _served(exercise: Exercise) -> str:
    text = f"batches of {_list(exercise.sizes)} and the longest context "
    text += f"({exercise.longest_tokens:,} tokens) were served"
    if exercise.graph_steps:
        text += f", {plural(exercise.graph_steps, 'logged step')} of them as graphs"
    return text


def _draft_is_eager(run: Run, side: str, roles: list[str]) -> bool:
    launch = next(item for item in run.plan.launches if item.side.name == side)
    return drafter_of(run.plan, launch.side.mode) == MODEL and "draft" not in roles


def _graph_gb(run: Run, launch: str) -> float | None:
    """What the server says its graphs take (SGLang's memory_usage.graph); None: not said."""
    for entry in run.launches:
        if entry.launch == launch and entry.status == "started":
            info = entry.origin.get("info") or {}
            server = (info.get("raw") or {}).get("server_info") or {}
            states = server.get("internal_states") or [{}]
            usage = states[0].get("memory_usage") if isinstance(states[0], dict) else None
            said = usage.get("graph") if isinstance(usage, dict) else None
            return float(said) if isinstance(said, int | float) else None
    return None


def _name(role: str) -> str:
    return "drafter" if role == "draft" else role


def _list(sizes: Any) -> str:
    return ", ".join(str(n) for n in sorted(sizes))
