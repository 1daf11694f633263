"""How a side's launches ended: SIGTERM heard, no process left, device memory given back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qualify.checks.verdict import Outcome
from qualify.engines.idle import grown
from qualify.records.run import Run

CLEAN_SIGNALS = ("SIGTERM",)
CLEAN_CODES = (0, 143)  # 128 + 15: a shell or a container that ended by SIGTERM says so


def judge(run: Run, side: str) -> Iterator[tuple[str, Outcome, str]]:
    """(part, outcome, words) over every launch of the side that was stopped as planned."""
    ends = [
        (entry.launch, left)
        for entry in run.launches
        if entry.side == side
        and entry.status == "stopped"
        and entry.reason is None
        and isinstance(left := entry.origin.get("left"), Mapping)
    ]
    if not ends:
        return
    yield _stop(ends)
    yield _memory(ends)


def _stop(ends: list[tuple[str, Mapping[str, Any]]]) -> tuple[str, Outcome, str]:
    name = "clean SIGTERM"
    known = [
        (launch, left["exit"]) for launch, left in ends if isinstance(left.get("exit"), Mapping)
    ]
    if not known:
        return name, "not-run", "the server was not ours to stop"
    for launch, told in known:
        if told.get("oom"):
            return name, "fail", f"{launch} was killed for want of memory"
        if told.get("forced"):
            return name, "fail", f"{launch} did not end within its grace time and was killed"
        signal, code = told.get("signal"), told.get("code")
        if signal not in (None, *CLEAN_SIGNALS):
            return name, "fail", f"{launch} ended by {signal}"
        if signal is None and code is not None and code not in CLEAN_CODES:
            return name, "fail", f"{launch} ended with code {code}"
    return name, "pass", f"{len(known)} launches ended by themselves"


def _memory(ends: list[tuple[str, Mapping[str, Any]]]) -> tuple[str, Outcome, str]:
    name = "memory given back"
    for launch, left in ends:
        if left.get("processes"):
            pids = ", ".join(map(str, left["processes"]))
            return name, "fail", f"processes of {launch} still live: {pids}"
        more = grown(left.get("devices_before"), left.get("devices_after"))
        if more:
            device, change = next(iter(more.items()))
            text = f"{device} holds {change / (1 << 20):,.0f} MiB more after {launch} than before"
            return name, "fail", text
    if all(left.get("devices_before") is None for _, left in ends):
        return name, "pass", "no process is left; there is no device whose memory could be read"
    return name, "pass", "no process is left, and every device is back to what it held before"
