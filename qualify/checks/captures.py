"""What a log says of captured graphs: which models, which batch sizes, which steps ran in them.

Sources: SGLang ("Capture target verify XPU graph begin. backend=full, num_tokens_per_req=8" and
its end; older "Capture cuda graph begin.", "Capture draft cuda graph end.", "Capture cuda graph bs
[1, 2, 4, 8]"), vLLM ("Graph capturing finished in 12 secs"), the bundled engine ("No CUDA graph
is captured: every step runs eagerly.").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from qualify.checks.enginelog import Line

_EDGE = re.compile(r"Capture (?P<what>[\w -]*?)\bgraph (?P<edge>begin|end)\b", re.IGNORECASE)
_SIZES = re.compile(r"Capture (?P<what>[\w -]*?)\bgraph bs \[(?P<sizes>[\d, ]+)\]", re.IGNORECASE)
_CAPTURING = re.compile(r"Capturing batches \(bs=(?P<size>\d+)\b")
_VLLM = re.compile(r"Graph capturing finished in ")
_NONE = re.compile(r"No (?:CUDA|XPU|device) graph is captured|Disable (?:cuda|xpu) graph", re.I)
_STEP = re.compile(r"Decode batch, #running-req: (?P<running>\d+),.*? graph: (?P<graph>True|False)")


@dataclass(frozen=True)
class Step:
    """One decode line: how many requests ran, and whether the step was a captured graph."""

    offset: int
    running: int
    graph: bool


@dataclass
class Captures:
    """begun and ended count captures by role: "target" or "draft"."""

    begun: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)  # empty: the log names none
    says_none: bool = False
    steps: list[Step] = field(default_factory=list)
    quotes: list[str] = field(default_factory=list)

    def captured(self, role: str) -> bool:
        """Begun as often as ended, and at least once."""
        return 0 < self.begun.get(role, 0) <= self.ended.get(role, 0)

    def unfinished(self) -> list[str]:
        """Roles whose capture began and did not end."""
        return [r for r, n in self.begun.items() if self.ended.get(r, 0) < n]


def read_captures(lines: Iterable[Line]) -> Captures:
    """Everything that the lines of one log say of graphs. Settings that were asked for are not
    looked at: "enabled" is no evidence."""
    found = Captures()
    for line in lines:
        if edge := _EDGE.search(line.text):
            role = _role(edge["what"])
            side = found.begun if edge["edge"].lower() == "begin" else found.ended
            side[role] = side.get(role, 0) + 1
            found.quotes.append(line.text.strip())
        elif _VLLM.search(line.text):
            found.begun["target"] = found.ended["target"] = 1
            found.quotes.append(line.text.strip())
        if sizes := _SIZES.search(line.text):
            found.sizes |= {int(n) for n in sizes["sizes"].split(",") if n.strip()}
        elif one := _CAPTURING.search(line.text):
            found.sizes.add(int(one["size"]))
        elif _NONE.search(line.text):
            found.says_none = True
            found.quotes.append(line.text.strip())
        elif step := _STEP.search(line.text):
            found.steps.append(Step(line.offset, int(step["running"]), step["graph"] == "True"))
    return found


def _role(what: str) -> str:
    """ "target verify XPU " is the target's, "draft extend cuda " the drafter's."""
    return "draft" if "draft" in what.lower() else "target"
