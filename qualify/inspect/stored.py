"""Expected tensors against those that are there: missing, misshapen, packed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qualify.inspect.expected import Expected
from qualify.inspect.headers import Head
from qualify.inspect.nouns import Fault

# What a quantised projection is stored as instead of NAME.weight; any of them will do.
_PACKED = ("weight_packed", "qweight")
FLOATS = ("BF16", "F16", "F32")


def compare(
    expected: Iterable[Expected], there: Mapping[str, Head], quantization: dict[str, Any] | None
) -> list[Fault]:
    """One fault for each tensor that is missing or of another shape or kind than the config says.

    A packed form is accepted for projections of a quantised checkpoint alone.
    """
    faults = []
    for item in expected:
        head = there.get(item.name)
        if head is None:
            stem = item.name.removesuffix("weight")
            names = (f"{stem}{part}" for part in _PACKED)
            packed = next((name for name in names if name in there), None)
            if packed is None:
                text = f"{item.name} {list(item.shape)} is missing."
                faults.append(Fault("missing", item.name, text))
            elif not (item.linear and quantization):
                text = f"{packed} is packed, and no quantization_config says so: {item.name} "
                faults.append(Fault("packed", item.name, f"{text}is expected plain."))
            else:
                faults += _packed(item, packed, there, _bits(quantization))
        elif head.shape != item.shape:
            text = f"{item.name} is {list(head.shape)} of {head.dtype}; {list(item.shape)} is "
            faults.append(Fault("shape", item.name, f"{text}expected."))
        elif head.dtype not in FLOATS and not (item.linear and quantization):
            text = f"{item.name} is stored as {head.dtype}, and no quantization_config says so."
            faults.append(Fault("dtype", item.name, text))
    return faults


def _packed(item: Expected, name: str, there: Mapping[str, Head], bits: int) -> list[Fault]:
    """Integers of 32 bits hold 32 / bits weights, along the inputs (compressed-tensors'
    weight_packed, with weight_scale) or along the outputs (qweight, transposed, with scales)."""
    out, wide = item.shape
    if name.endswith("qweight"):
        shape, scale = (wide, out * bits // 32), name.removesuffix("qweight") + "scales"
    else:
        shape, scale = (out, wide * bits // 32), name.removesuffix("packed") + "scale"
    faults = []
    if there[name].shape != shape:
        text = f"{name} is {list(there[name].shape)} of {there[name].dtype}; {list(shape)} is "
        faults.append(Fault("shape", name, f"{text}expected of {bits}-bit weights."))
    if scale not in there:
        faults.append(Fault("missing", scale, f"{scale} is missing beside {name}."))
    return faults


def _bits(quantization: dict[str, Any]) -> int:
    """Of a weight: compressed-tensors says it by group, others at the top; 4 where none does."""
    groups = quantization.get("config_groups")
    told: Any = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = told.get("weights") if isinstance(told, dict) else None
    found = weights.get("num_bits") if isinstance(weights, dict) else None
    for value in (found, quantization.get("bits"), quantization.get("w_bit")):
        if isinstance(value, int) and value > 0:
            return value
    return 4


def unexpected(
    expected: Iterable[Expected], there: Mapping[str, Head], within: tuple[str, ...]
) -> list[str]:
    """Tensors below `within` ("" for all) that nobody expects; packed parts are left out."""
    names = {item.name for item in expected}
    stems = {name.removesuffix(".weight") for name in names}
    found = []
    for name in there:
        if name in names or not name.startswith(within):
            continue
        stem = name.rpartition(".")[0]
        if stem not in stems:
            found.append(name)
    return sorted(found)
