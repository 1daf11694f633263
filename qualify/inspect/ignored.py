"""Does the quantisation leave the MTP head alone? Every name that a runtime looks up must match.

A BF16 head whose modules are not in `quantization_config.ignore` is built as packed W4A16; its
packed tensors do not exist, nothing is loaded, no exception surfaces, every draft is token 0.
Runtimes fuse q/k/v into qkv_proj and gate/up into gate_up_proj and look those names up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qualify.inspect.headers import Head
from qualify.inspect.nouns import Fault

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


def ignored(config: dict[str, Any]) -> list[str]:
    """`ignore` of compressed-tensors, or the lists that other methods call otherwise."""
    for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"):
        listed = config.get(key)
        if isinstance(listed, list):
            return [str(entry) for entry in listed]
    return []


def must_be_ignored(there: Mapping[str, Head]) -> list[str]:
    """Projections below `mtp.` that are stored plain, and the fused names made of them."""
    plain = {
        name.removesuffix(".weight")
        for name, head in there.items()
        if name.startswith("mtp.") and name.endswith("_proj.weight") and len(head.shape) == 2
    }
    if "mtp.fc.weight" in there:
        plain.add("mtp.fc")
    fused = {
        f"{module.rpartition('.')[0]}.{name}"
        for module in plain
        for name, parts in FUSED.items()
        if module.rpartition(".")[2] in parts
    }
    return sorted(plain | fused)


def uncovered(config: dict[str, Any] | None, there: Mapping[str, Head]) -> list[Fault]:
    """One fault for each module that the quantisation would take; none where nothing is
    quantised."""
    if config is None:
        return []
    entries = ignored(config)
    method = str(config.get("quant_method", ""))
    loose = method not in ("compressed-tensors", "compressed_tensors")
    faults = []
    for module in must_be_ignored(there):
        if not any(matches(entry, module, loose=loose) for entry in entries):
            text = f"quantization_config does not leave {module} alone: it is stored plain, and "
            faults.append(Fault("ignore", module, f"{text}would be built packed and never loaded."))
    return faults


def matches(entry: str, module: str, *, loose: bool) -> bool:
    """compressed-tensors: the exact name, or a pattern after "re:" that matches from the start.
    Others (loose) leave alone every module whose name holds the entry."""
    if entry.startswith("re:"):
        try:
            return re.match(entry[3:], module) is not None
        except re.error:
            return False
    return entry == module or (loose and entry in module)
