"""Which lines of probes.jsonl stand: those of the attempt in which a probe ended."""

from __future__ import annotations

from collections.abc import Iterable

from qualify.records.schema import ProbeRecord


def planned(launch: str) -> str:
    """The plan's launch id of an attempt: `r1.mtp#2` -> `r1.mtp`."""
    return launch.rsplit("#", 1)[0]


def ends_of(lines: Iterable[ProbeRecord]) -> dict[tuple[str, str], ProbeRecord]:
    """(planned launch id, probe) -> the end that counts: finished before failed, last wins."""
    ends: dict[tuple[str, str], ProbeRecord] = {}
    for line in lines:
        key = (planned(line.launch), line.probe)
        if line.status == "finished" or (
            line.status == "failed" and (key not in ends or ends[key].status != "finished")
        ):
            ends[key] = line
    return ends


def standing_probes(lines: Iterable[ProbeRecord]) -> tuple[ProbeRecord, ...]:
    """Steps and ends of the attempts that count, in the order they were written.

    Steps that a killed or interrupted attempt left without an end are passed over.
    """
    kept = list(lines)
    attempts = {(end.launch, end.probe) for end in ends_of(kept).values()}
    return tuple(line for line in kept if (line.launch, line.probe) in attempts)
