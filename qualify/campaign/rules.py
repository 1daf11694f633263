"""What a campaign may not say even when every key has the right type.

Works on the file as it was read, not on the validated model, so that a wrong type in one
place does not hide an impossible shape in another: all faults are told at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qualify.campaign.document import Document
from qualify.campaign.evals import EVALS
from qualify.campaign.faults import Path, did_you_mean
from qualify.campaign.parts import listed, mapped, side_names
from qualify.campaign.workload_rules import check_workload

GATES = (
    "tpot_regression_pct",
    "ttft_regression_pct",
    "throughput_regression_pct",
    "accept_length_regression_pct",
    "evals_regression_pct",
    "tail_p99_over_median",
    "goodput_ttft_s",
    "goodput_tpot_ms",
    "goodput_end_s",
)


def check_rules(document: Document) -> None:
    """Note every fault that needs no knowledge of the engine."""
    sides = side_names(document)
    _names(document, sides)
    _pairs(document, sides)
    _sampling(document)
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        if isinstance(workload, dict):
            check_workload(document, ("workloads", index), workload, sides)
    _known(document, "gates", GATES)
    for name, limit in mapped(document.value.get("gates")).items():
        if isinstance(limit, int | float) and not isinstance(limit, bool) and limit < 0:
            document.fault(
                ("gates", name), f"`gates.{name}` is below 0", "Write a number of at least 0."
            )
    for index, entry in enumerate(listed(document.value.get("evals"))):
        if isinstance(entry, str) and entry not in EVALS:
            document.fault(
                ("evals", index), f"there is no evaluation `{entry}`", did_you_mean(entry, EVALS)
            )
        if isinstance(entry, dict) and len(entry) != 1:
            document.fault(
                ("evals", index),
                f"an entry of `evals` names one evaluation, and this has {len(entry)}",
                "Write each as an entry of its own.",
            )


def _names(document: Document, sides: Sequence[str]) -> None:
    value = document.value
    for key in ("campaign", "engine"):
        if value.get(key) == "":
            document.fault((key,), f"`{key}` is empty", "Write a name.")
    for index, mode in enumerate(listed(value.get("modes"))):
        if isinstance(mode, str) and mode in value["modes"][:index]:
            document.fault(("modes", index), f"mode `{mode}` is named twice", "Name it once.")
    modes = [m for m in listed(value.get("modes")) if isinstance(m, str)]
    for name, variant in mapped(value.get("variants")).items():
        if name in modes:
            document.fault(
                ("variants", name),
                f"variant `{name}` has the name of a mode",
                f"Give it a name of its own, such as `{name}-2`.",
            )
        if name.endswith(".again") or "/" in name or "#" in name or name != name.strip():
            document.fault(
                ("variants", name),
                f"`{name}` cannot be a variant's name",
                "Use letters, digits, `-`, `_` and `.`, and no ending `.again`.",
            )
        _engine_args(document, name, mapped(variant))
    baseline = value.get("baseline")
    if isinstance(baseline, str) and baseline not in sides:
        document.fault(
            ("baseline",),
            f"`{baseline}` is no mode or variant of this campaign",
            did_you_mean(baseline, sides),
        )
    for name in mapped(value.get("profile")):
        if name not in sides:
            document.fault(
                ("profile", name),
                f"`{name}` is no mode or variant of this campaign",
                did_you_mean(name, sides),
            )
    _unique_workloads(document)


def _engine_args(document: Document, name: str, variant: dict[str, Any]) -> None:
    for argument in mapped(variant.get("args")):
        if argument.startswith("-"):
            document.fault(
                ("variants", name, "args", argument),
                f"the argument `{argument}` starts with a dash",
                f"Write `{argument.lstrip('-')}`: the dashes are added.",
            )


def _unique_workloads(document: Document) -> None:
    seen: dict[str, int] = {}
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        name = mapped(workload).get("name")
        if not isinstance(name, str):
            continue
        path = ("workloads", index, "name")
        if name == "" or any(c in name for c in "@/# \t"):
            document.fault(
                path,
                f'"{name}" cannot be a workload\'s name',
                "Use letters, digits, `-`, `_` and `.`: it becomes part of cell names.",
            )
        elif name in seen:
            line = document.line(("workloads", seen[name], "name"))
            document.fault(
                path,
                f"workload `{name}` is named twice (first in line {line})",
                "Each needs a name of its own: cells are called by it.",
            )
        seen.setdefault(name, index)


def _pairs(document: Document, sides: Sequence[str]) -> None:
    for index, pair in enumerate(listed(document.value.get("pairs"))):
        _pair(document, ("pairs", index), pair, sides)
    for index, expect in enumerate(listed(document.value.get("expect"))):
        _pair(document, ("expect", index, "pair"), mapped(expect).get("pair"), sides)


def _pair(document: Document, path: Path, pair: Any, sides: Sequence[str]) -> None:
    if not isinstance(pair, list):
        return
    if len(pair) != 2:
        if path[0] == "pairs":  # `expect` has its length checked by the schema
            document.fault(path, f"a pair has two names; this has {len(pair)}", "Write [a, b].")
        return
    for index, name in enumerate(pair):
        if isinstance(name, str) and name not in sides:
            document.fault(
                (*path, index),
                f"`{name}` is no mode or variant of this campaign",
                did_you_mean(name, sides),
            )
    if pair[0] == pair[1]:
        document.fault(
            path,
            f"`{pair[0]}` is paired with itself",
            "Leave it out: the baseline is held against itself by the parity check.",
        )


def _sampling(document: Document) -> None:
    sampling = mapped(document.value.get("sampling"))
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        workload = mapped(workload)
        if sampling.get("ignore_eos") is False and workload.get("until", "length") == "length":
            document.fault(
                ("workloads", index),
                "this runs until length, and sampling.ignore_eos is false: outputs may end early",
                "Write `until: eos` here, or `ignore_eos: true`.",
            )


def _known(document: Document, section: str, known: Sequence[str]) -> None:
    for name in mapped(document.value.get(section)):
        if name not in known:
            document.fault(
                (section, name), f"there is no `{name}` in `{section}`", did_you_mean(name, known)
            )
