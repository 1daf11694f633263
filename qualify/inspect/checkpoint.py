"""A checkpoint's integrity: everything about it that can be known without a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qualify.engines.hashes import checkpoint_hashes
from qualify.errors import UsageError
from qualify.inspect import agree, expected, ignored
from qualify.inspect.config import Config, read_config
from qualify.inspect.expected import Expected, Unknown
from qualify.inspect.gguf import read_gguf
from qualify.inspect.headers import Heads, read_heads
from qualify.inspect.nouns import Fault, Inspection
from qualify.inspect.payload import SECONDS, look
from qualify.inspect.revision import revision_of
from qualify.inspect.stored import compare, unexpected
from qualify.prompts.gguf import read_metadata

KINDS = ("target", "mtp", "dflash2", "dspark")
_DRAFTERS: dict[str, Callable[[Config], list[Expected]]] = {
    "dflash2": expected.dflash2,
    "dspark": expected.dspark,
}
_MIXED = "mixed: "


def inspect_checkpoint(
    folder: Path,
    *,
    kind: str | None = None,
    target: Path | None = None,
    hashes: bool = True,
    seconds: float = SECONDS,
) -> Inspection:
    """Look at a target (`mtp` demands its auxiliary head) or, with `target`, at its drafter.

    kind None: what the config's own architecture says; a .gguf file has no expected list. hashes
    reads every file once (and remembers it); without, only headers and samples are read. Raises
    UsageError where the folder is no checkpoint, and for a target beside what is no drafter.
    """
    if folder.suffix == ".gguf" and folder.is_file():
        return _gguf(folder, hashes, seconds)
    config, heads = read_config(folder), read_heads(folder)
    kind = kind or kind_of(config)
    faults, unjudged = list(heads.faults), list[str]()
    wanted = _wanted(kind, config, heads, unjudged)
    faults += compare(wanted, heads.tensors, config.quantization)
    if kind in _DRAFTERS:
        faults += agree.architecture(kind, config)
        if target is None:
            unjudged.append("no target was named, so nothing was held against it (--target DIR)")
        else:
            faults += agree.differences(read_config(target), config)
    elif target is not None:
        raise UsageError(
            f"{folder} is no drafter ({kind}): it has no target to be held against.",
            "Name the drafter first and its target after --target, or leave --target out.",
        )
    else:
        faults += ignored.uncovered(config.quantization, heads.tensors)
    looked = look(
        (h for h in heads.tensors.values() if h.file.stat().st_size >= h.end), seconds=seconds
    )
    faults += looked.faults
    if looked.unread:
        unjudged.append(f"{len(looked.unread)} tensors were not looked at in {seconds:g} s")
    revision = revision_of(folder)
    if revision is not None and revision.startswith(_MIXED):
        text = f"The folder holds files of more than one revision: {revision.removeprefix(_MIXED)}."
        faults.append(Fault("revision", str(folder), text))
    facts: dict[str, Any] = {
        "architecture": config.architecture,
        "revision": revision,
        "files": checkpoint_hashes(folder) if hashes else None,
        "tensors": len(heads.tensors),
        "expected": len(wanted),
        "unexpected": unexpected(wanted, heads.tensors, ("",))[:50] if wanted else [],
        "rope": config.rope(),
        "quantization": (config.quantization or {}).get("quant_method"),
        "looked_at": looked.tensors,
        "read_bytes": looked.read_bytes,
        "seconds": round(looked.seconds, 3),
    }
    return Inspection(str(folder), kind, tuple(faults), tuple(unjudged), facts)


def _gguf(file: Path, hashes: bool, seconds: float) -> Inspection:
    """A quantised file of llama.cpp: is it whole, and is there something in every tensor?"""
    heads = read_gguf(file)
    looked = look(heads.tensors.values(), seconds=seconds)
    facts = {
        "architecture": read_metadata(file).get("general.architecture"),
        "revision": revision_of(file.parent),
        "files": checkpoint_hashes(file) if hashes else None,
        "tensors": len(heads.tensors),
        "looked_at": looked.tensors,
        "read_bytes": looked.read_bytes,
        "seconds": round(looked.seconds, 3),
    }
    unread = f"{len(looked.unread)} tensors were not looked at in {seconds:g} s"
    return Inspection(
        str(file),
        "gguf",
        (*heads.faults, *looked.faults),
        (unread,) if looked.unread else (),
        facts,
    )


def kind_of(config: Config) -> str:
    """What a checkpoint says it is: a drafter by its class, else a target with or without a
    head of its own."""
    for kind, classes in agree.CLASSES.items():
        if config.architecture in classes:
            return kind
    return "mtp" if config.number("mtp_num_hidden_layers") else "target"


def _wanted(kind: str, config: Config, heads: Heads, unjudged: list[str]) -> list[Expected]:
    if kind not in KINDS:
        raise UsageError(f"There is no kind {kind} of checkpoint.", f"One of {', '.join(KINDS)}.")
    found: list[Expected] = []
    try:
        if kind in _DRAFTERS:
            return _DRAFTERS[kind](config)
        if kind == "mtp":
            found += expected.mtp(config)
        if config.text.get("model_type") in ("qwen3_5", "qwen3_5_text"):
            found += expected.target(config, prefix_of(heads))
        else:
            said = config.text.get("model_type")
            unjudged.append(f"no list of tensors is known for a target of model_type {said}")
    except Unknown as why:
        unjudged.append(f"the expected tensors are not known: {why}")
    return found


def prefix_of(heads: Heads) -> str:
    """Where the language model's tensors stand: below it where there is a vision part beside."""
    inner = "model.language_model."
    return inner if any(name.startswith(inner) for name in heads.tensors) else "model."
