"""Prometheus' text format, as far as counters need it.

Source: the text exposition format 0.0.4 (HELP, TYPE, samples with labels, escapes in labels).
"""

from __future__ import annotations

import math
import re

_SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?"
    r"\s+(?P<value>\S+)(?:\s+-?\d+)?\s*$"
)


def parse_counters(text: str) -> dict[str, float]:
    """Counters only, by name, summed over their label sets; gauges and histograms are left out.

    A sample whose type is not declared counts as a counter when its name ends in `_total`.
    """
    kinds: dict[str, str] = {}
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            parts = line.split()
            if len(parts) >= 4:
                kinds[parts[2]] = parts[3]
            continue
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name = match["name"]
        kind = kinds.get(name) or kinds.get(name.removesuffix("_total"))
        if kind not in (None, "counter", "untyped") or (
            kind in (None, "untyped") and not name.endswith("_total")
        ):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            sums[name] = sums.get(name, 0.0) + value
    return sums


_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def sample_labels(text: str, name: str) -> dict[str, str]:
    """Labels of the first sample called `name`, unescaped; empty when there is none."""
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None and match["name"] == name:
            return {
                key: value.replace(r"\n", "\n").replace(r"\"", '"').replace(r"\\", "\\")
                for key, value in _LABEL.findall(match["labels"] or "")
            }
    return {}
