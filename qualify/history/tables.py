"""What the history keeps of a run: one row for the run, one for each side and cell.

Times are UTC. The records themselves are a third table, the columns of ``report.table``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from qualify.analysis.versus import protocol
from qualify.records.run import Run
from qualify.records.schema import LaunchRecord, Record

RUN_TYPES = {
    "run": "VARCHAR", "campaign": "VARCHAR", "engine": "VARCHAR", "created": "TIMESTAMP",
    "outcome": "VARCHAR", "exit_code": "BIGINT", "gate": "VARCHAR", "plan_hash": "VARCHAR",
    "engine_version": "VARCHAR", "image": "VARCHAR", "machine": "VARCHAR", "qualify": "VARCHAR",
    "requests": "BIGINT", "failing": "VARCHAR[]", "folder": "VARCHAR",
}  # fmt: skip
CELL_TYPES = {
    "run": "VARCHAR", "campaign": "VARCHAR", "created": "TIMESTAMP", "side": "VARCHAR",
    "cell": "VARCHAR", "like": "VARCHAR", "requests": "BIGINT", "counted": "BIGINT",
    "tpot_ms": "DOUBLE", "ttft_s": "DOUBLE", "throughput_tok_s": "DOUBLE",
    "accept_length": "DOUBLE", "cycle_ms": "DOUBLE", "tokens_per_step": "DOUBLE",
    "tpot_p99_over_median": "DOUBLE",
}  # fmt: skip


def run_row(run: Run, summary: Mapping[str, Any], gate: Mapping[str, Any]) -> dict[str, Any]:
    """``summary``: summary.json. ``gate``: gate.json, empty where the run had none."""
    first = next((e for e in run.launches if e.status == "started"), None)
    origin = first.origin if first is not None else {}
    outcome = summary["outcome"]
    return {
        "run": run.id,
        "campaign": summary["campaign"],
        "engine": summary["engine"],
        "created": _utc(summary["created"]),
        "outcome": outcome["word"],
        "exit_code": outcome["exit_code"],
        "gate": gate.get("word"),
        "plan_hash": run.plan.hash,
        "engine_version": origin.get("engine_version"),
        "image": (origin.get("container") or {}).get("digest"),
        "machine": machine(first),
        "qualify": run.meta.get("qualify"),
        "requests": len(run.measured()),
        "failing": list(gate.get("new_failures") or ()),
        "folder": str(run.folder),
    }


def _utc(text: str | None) -> str | None:
    """ISO 8601 as the database's own UTC timestamp, which needs no time zones installed."""
    if text is None:
        return None
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None).isoformat(" ")


def machine(launch: LaunchRecord | None) -> str | None:
    """The processor and the devices, in words: figures of two machines are two series."""
    if launch is None:
        return None
    host = launch.origin.get("host") or {}
    cpus = f"{host.get('cpus_usable')} x {host.get('cpu')}" if host.get("cpu") else None
    devices = launch.origin.get("devices") or []
    names = [str(d.get("name")) for d in devices if isinstance(d, dict) and d.get("name")]
    return ", ".join([*names, *([cpus] if cpus else [])]) or None


def cell_rows(run: Run, summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One for each side and cell that has a figure. ``like``: rows of two runs are comparable
    where it is the same (prompts by hash, shape, concurrency, sampling, cache, machine)."""
    by_cell: dict[tuple[str, str], list[Record]] = {}
    for record in run.measured():
        if record.ok:
            by_cell.setdefault((record.side, record.cell), []).append(record)
    for side in summary["sides"]:
        records = by_cell.get((side["side"], side["cell"]))
        if not records:
            continue
        speculation, cycle = side["speculation"] or {}, side["cycle"] or {}
        tail = side["tpot_tail_ms"] or {}
        yield {
            "run": run.id,
            "campaign": summary["campaign"],
            "created": _utc(summary["created"]),
            "side": side["side"],
            "cell": side["cell"],
            "like": like(run, records),
            "requests": side["requests"],
            "counted": side["counted"],
            "tpot_ms": side["tpot_ms"]["median"],
            "ttft_s": side["ttft_s"]["median"],
            "throughput_tok_s": side["throughput_tok_s"],
            "accept_length": speculation.get("accept_length"),
            "cycle_ms": cycle.get("cycle_ms"),
            "tokens_per_step": cycle.get("tokens_per_step"),
            "tpot_p99_over_median": tail["over_median"] if tail.get("quantile") == 0.99 else None,
        }


def like(run: Run, records: list[Record]) -> str:
    """A short hash of what must be the same for two runs' figures to be one series."""
    launch = next((e for e in run.launches if e.launch == records[0].launch), None)
    same = {
        **protocol(run, records),
        "prompts": sorted({r.prompt_sha256 for r in records}),
        "machine": machine(launch),
    }
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:12]
