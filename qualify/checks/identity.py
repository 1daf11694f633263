"""One engine, one checkpoint: what ran is the same in every launch that is compared.

A file replaced on disk between two launches changes outputs and times alike, and looks like
a fault of the mode that happened to start after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qualify.checks import as_planned
from qualify.checks.select import launch_record
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run

Facts = dict[str, Any]


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict on each side, held against the plan, and one over all launches; that one is
    not-run where fewer than two say what they are."""
    return [*as_planned.check(run), *_all_launches(run)]


def _all_launches(run: Run) -> list[Verdict]:
    seen: dict[str, Facts] = {}
    for launch in dict.fromkeys(end.launch for end in run.cells):
        entry = launch_record(run, launch)
        if entry is not None:
            seen[launch] = _facts(entry.origin)
    if len(seen) < 2:
        text = f"{len(seen)} of the launches say what ran; there is nothing to hold them against."
        return [Verdict("identity", "all launches", "not-run", text, {}, demanded=False)]
    names = sorted({name for facts in seen.values() for name in facts})
    differing: dict[str, dict[str, Any]] = {}
    for name in names:
        values = {launch: facts.get(name) for launch, facts in seen.items()}
        if len({str(v) for v in values.values()}) > 1:
            differing[name] = values
    evidence = {"launches": sorted(seen), "compared": names, "differing": differing}
    if differing:
        first = next(iter(differing))
        text = f"The launches did not run the same thing: {', '.join(differing)} changed between "
        text += f"{' and '.join(_two(differing[first]))}. No comparison between them holds."
        return [Verdict("identity", "all launches", "fail", text, evidence)]
    text = f"{len(names)} facts of what ran are equal in {len(seen)} launches"
    files = sum(name.startswith("checkpoint file ") for name in names)
    text += f", the hashes of {files} checkpoint files among them." if files else "."
    return [Verdict("identity", "all launches", "pass", text, evidence)]


def _facts(origin: Mapping[str, Any]) -> Facts:
    """What must not differ between launches, by a name that a reader understands."""
    facts: Facts = {}
    for name, key in (("engine", "engine"), ("engine version", "engine_version")):
        if origin.get(key) is not None:
            facts[name] = origin[key]
    package = origin.get("package")
    if isinstance(package, Mapping):
        facts[f"package {package.get('name')}"] = package.get("version")
    container = origin.get("container")
    if isinstance(container, Mapping) and container.get("image_id") is not None:
        facts["image"] = container["image_id"]
    model = origin.get("model")
    files = model.get("files") if isinstance(model, Mapping) else None
    for file, told in (files or {}).items():
        facts[f"checkpoint file {file}"] = told.get("sha256")
    return facts


def _two(values: Mapping[str, Any]) -> tuple[str, str]:
    """The first two launches that disagree."""
    launches = list(values)
    other = next(name for name in launches if str(values[name]) != str(values[launches[0]]))
    return launches[0], other
