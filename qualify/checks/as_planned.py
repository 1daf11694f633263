"""The server is the one that was planned: architecture, layers, drafter class, arguments.

Held against what it says of itself and what its log says. What an engine does not report is
left out and never counts as agreement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qualify.checks.enginelog import launches_of, lines_of, log_path
from qualify.checks.select import launch_record
from qualify.checks.verdict import Verdict
from qualify.records.run import Run

LAYERS = ("num_hidden_layers", "layers")
DRAFT_CLASS = ("speculative_draft_model_class",)
# Both say `model=`; SGLang's since 0.5.17.
DRAFT_LINE = re.compile(r"Initialized DFLASH draft runner\..*?\bmodel=(\w+)")
# Paths are others inside a container; how many run together is what `capacity` finds out.
NOT_COMPARED = re.compile(r"path|model|host|port|max-running-requests")
DFLASH2 = "DFlash2DraftModel"

Fact = tuple[str, Any, Any]  # name, planned, seen


def check(run: Run) -> list[Verdict]:
    """One verdict for each side whose launches said anything that can be compared."""
    verdicts = []
    for side, launches in launches_of(run).items():
        facts: dict[str, list[Fact]] = {}
        for launch in launches:
            entry = launch_record(run, launch)
            if entry is not None:
                facts[launch] = list(_facts(run, launch, entry.mode, entry.origin))
        if any(facts.values()):
            verdicts.append(_judge(side, facts))
    return verdicts


def _judge(side: str, facts: dict[str, list[Fact]]) -> Verdict:
    wrong = [(launch, f) for launch, mine in facts.items() for f in mine if f[1] != f[2]]
    names = list(dict.fromkeys(name for mine in facts.values() for name, _, _ in mine))
    evidence: dict[str, Any] = {
        "side": side,
        "compared": names,
        "differing": [
            {"launch": launch, "what": name, "planned": planned, "seen": seen}
            for launch, (name, planned, seen) in wrong
        ],
    }
    if wrong:
        launch, (name, planned, seen) = wrong[0]
        text = f"{launch} is not what was planned: {name} is {seen}, and {planned} was planned"
        more = len(wrong) - 1
        text += f" ({more} more facts differ)." if more else "."
        return Verdict("identity", side, "fail", text, evidence)
    text = f"What the server says of itself is as planned: {', '.join(names)}."
    return Verdict("identity", side, "pass", text, evidence)


def _facts(run: Run, launch: str, mode: str, origin: Mapping[str, Any]) -> Iterator[Fact]:
    answers = list(_answers(origin))
    said = _declared(origin, "model")
    info = origin.get("info")
    architecture = info.get("architecture") if isinstance(info, Mapping) else None
    if said.get("architectures") and architecture is not None:
        names = said["architectures"]
        known = architecture if architecture in names else _text_only(architecture, names)
        yield "architecture", known or names[0], architecture
    layers = _first(answers, LAYERS)
    if said.get("layers") is not None and layers is not None:
        yield "layers", said["layers"], layers
    yield from _drafter(run, launch, mode, origin, answers)
    yield from _arguments(origin, answers)


def _answers(origin: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object that the server answered with, and the one that PocketLLM nests."""
    info = origin.get("info")
    raw = info.get("raw") if isinstance(info, Mapping) else None
    for answer in (raw or {}).values():
        if isinstance(answer, Mapping):
            yield answer
            if isinstance(answer.get("engine"), Mapping):
                yield answer["engine"]


def _declared(origin: Mapping[str, Any], which: str) -> Mapping[str, Any]:
    model = origin.get(which)
    found = model.get("declared") if isinstance(model, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _text_only(seen: str, names: list[str]) -> str | None:
    """Text servers of a checkpoint with a vision tower answer as its text model."""
    stems = {n.replace("ForConditionalGeneration", "ForCausalLM") for n in names}
    return seen if seen in stems else None


def _first(answers: list[Mapping[str, Any]], names: tuple[str, ...]) -> Any:
    for answer in answers:
        for name in names:
            if answer.get(name) is not None:
                return answer[name]
    return None


def _drafter(
    run: Run, launch: str, mode: str, origin: Mapping[str, Any], answers: list[Mapping[str, Any]]
) -> Iterator[Fact]:
    """The class that was loaded, by the log and by the server; classic DFlash is no DFlash2."""
    names = _declared(origin, "draft_model").get("architectures") or []
    planned = names[0] if names else DFLASH2 if mode == "dflash2" else None
    if planned is None:
        return
    in_log = next(
        (m[1] for line in lines_of(log_path(run, launch)) if (m := DRAFT_LINE.search(line.text))),
        None,
    )
    if in_log is not None:
        yield "drafter class in the log", planned, in_log
    loaded = _first(answers, DRAFT_CLASS)
    if loaded is not None:
        yield "drafter class", planned, loaded
    if mode == "dflash2" and names:
        yield "drafter's checkpoint", DFLASH2, planned


def _arguments(origin: Mapping[str, Any], answers: list[Mapping[str, Any]]) -> Iterator[Fact]:
    """Launch arguments that the server's own settings name, in the same form."""
    args = origin.get("args")
    for name, planned in (args if isinstance(args, Mapping) else {}).items():
        if planned is None or NOT_COMPARED.search(name):
            continue
        key = name.replace("-", "_")
        seen = next((a[key] for a in answers if a.get(key) is not None), None)
        if seen is None or isinstance(seen, list) != isinstance(_parsed(planned), list):
            continue
        if isinstance(seen, Mapping) and not isinstance(_parsed(planned), Mapping):
            continue
        yield f"--{name}", *_alike(_parsed(planned), seen)


def _parsed(value: Any) -> Any:
    """JSON that was written as text, as an object; everything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _alike(planned: Any, seen: Any) -> tuple[Any, Any]:
    """Both as they are, or the planned one twice where what was said stands."""
    return (planned, planned) if _stands(planned, seen) else (planned, seen)


def _stands(planned: Any, seen: Any) -> bool:
    """Equal in value (8 and "8" are); a server may complete what an object left out."""
    if isinstance(planned, Mapping) and isinstance(seen, Mapping):
        return all(k in seen and _stands(v, _parsed(seen[k])) for k, v in planned.items())
    return bool(planned == seen) or str(planned).lower() == str(seen).lower()
