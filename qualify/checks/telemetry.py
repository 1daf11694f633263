"""What memory, power and energy a side took, where the host can tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qualify.checks.select import Place, completion_tokens, places
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run

GIB = 1 << 30


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side, over the measured part of all its cells.

    It fails only at a limit of the campaign's (`device_gib`, `host_gib`, `energy_j_per_token`).
    What the host cannot tell is not-run: never 0.
    """
    sides: dict[str, list[Place]] = {}
    for place in places(run):
        if place.end is not None and isinstance(place.end.evidence.get("telemetry"), Mapping):
            sides.setdefault(place.side, []).append(place)
    return [_judge(side, mine, settings) for side, mine in sides.items()]


def _judge(side: str, mine: list[Place], settings: Settings) -> Verdict:
    looks = [p.end.evidence["telemetry"] for p in mine if p.end is not None]
    tokens = sum(completion_tokens(r) or 0 for p in mine for r in p.counted)
    devices = _devices(looks)
    host = [look["host"] for look in looks]
    evidence: dict[str, Any] = {
        "side": side,
        "output_tokens": tokens,
        "devices": devices,
        "host_rss_peak_bytes": _most(h["rss_peak_bytes"] for h in host),
        "host_cpu_s": _sum(h["cpu_s"] for h in host),
        "package_energy_j": _sum(h["package_energy_j"] for h in host),
        "missing": sorted({text for look in looks for text in look["missing"]}),
    }
    energy = _sum(d["energy_j"] for d in devices.values()) if devices else None
    if energy is None:
        energy = evidence["package_energy_j"]
    evidence["energy_j_per_token"] = energy / tokens if energy is not None and tokens else None
    peaks = {name: d["engine_peak_bytes"] or d["used_peak_bytes"] for name, d in devices.items()}

    def verdict(outcome: Outcome, text: str, demanded: bool) -> Verdict:
        return Verdict("telemetry", side, outcome, text, evidence, demanded=demanded)

    named = settings.named("telemetry")
    limits = (
        ("device_gib", "a device", _gib(_most(peaks.values())), "GiB"),
        ("host_gib", "the host", _gib(evidence["host_rss_peak_bytes"]), "GiB"),
        ("energy_j_per_token", "energy", evidence["energy_j_per_token"], "J an output token"),
    )
    for option, what, value, unit in limits:
        limit = settings.number("telemetry", option)
        if limit is None:
            continue
        if value is None:
            text = f"A limit is set for {what} ({option}), and this host does not tell it."
            return verdict("not-run", text, True)
        if value > limit:
            text = f"{what.capitalize()}: {value:.4g} {unit}, above the limit of {limit:g}."
            return verdict("fail", text, True)
    said = _said(peaks, evidence)
    if not devices and not _limited(settings):
        text = f"No device tells its memory, power or energy here; {said}."
        return verdict("not-run", text, named)
    return verdict("pass", f"{said[0].upper()}{said[1:]}.", named)


def _limited(settings: Settings) -> bool:
    """Limits that were all kept are what the campaign asked for."""
    names = ("device_gib", "host_gib", "energy_j_per_token")
    return any(settings.number("telemetry", name) is not None for name in names)


def _devices(looks: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Device -> highest memory over the cells, energy added up. Where the engine's processes
    are seen on some devices, the others are not its ranks."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for look in looks:
        for device in look["devices"]:
            found.setdefault(device["device"], []).append(device)
    merged = {
        name: {
            "used_peak_bytes": _most(d["used_peak_bytes"] for d in seen),
            "engine_peak_bytes": _most(d["engine_peak_bytes"] for d in seen),
            "energy_j": _sum(d["energy_j"] for d in seen),
            "energy_basis": seen[0]["energy_basis"],
            "power_peak_w": _most(d["power_peak_w"] for d in seen),
        }
        for name, seen in found.items()
    }
    ranks = {n: d for n, d in merged.items() if d["engine_peak_bytes"] is not None}
    return ranks or merged


def _said(peaks: Mapping[str, int | None], evidence: Mapping[str, Any]) -> str:
    parts = []
    known = [n for n in peaks.values() if n is not None]
    if known:
        shown = ", ".join(f"{n / GIB:.2f}" for n in known)
        parts.append(f"device memory at most {shown} GiB a rank")
    if evidence["energy_j_per_token"] is not None:
        parts.append(f"{evidence['energy_j_per_token']:.3g} J an output token")
    if evidence["host_rss_peak_bytes"] is not None:
        parts.append(f"the engine's processes held {evidence['host_rss_peak_bytes'] / GIB:.2f} GiB")
    return "; ".join(parts) or "nothing was told"


def _most(values: Iterable[Any]) -> Any:
    return max((v for v in values if v is not None), default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    """None unless every part is known: a part that is missing would look like a saving."""
    listed = list(values)
    known = [v for v in listed if v is not None]
    return sum(known) if listed and len(known) == len(listed) else None


def _gib(value: int | None) -> float | None:
    return value / GIB if value is not None else None
