"""Do a target and its drafter belong together? Layers, widths, vocabulary, RoPE and YaRN."""

from __future__ import annotations

from typing import Any

from qualify.inspect.config import Config
from qualify.inspect.nouns import Fault

CLASSES = {
    "dflash2": ("DFlash2DraftModel",),
    "dspark": ("DSparkDraftModel", "Qwen3DSparkModel"),
}


def architecture(kind: str, drafter: Config) -> list[Fault]:
    """A drafter of another class cannot pass under this name: classic DFlash has its own."""
    said = drafter.architecture
    if kind not in CLASSES or said in CLASSES[kind]:
        return []
    text = f"The drafter's config declares {said}; {kind} is {' or '.join(CLASSES[kind])}."
    return [Fault("architecture", "architectures", text)]


def differences(target: Config, drafter: Config) -> list[Fault]:
    """One fault for each number that must agree and does not; what neither says is passed over."""
    own = drafter.inner("dflash_config")
    layers, hidden = target.number("num_hidden_layers"), target.number("hidden_size")
    faults: list[Fault] = []

    def same(what: str, mine: Any, theirs: Any) -> None:
        if mine is not None and theirs is not None and mine != theirs:
            text = f"{what}: the drafter says {mine}, the target {theirs}."
            faults.append(Fault("disagree", what, text))

    same("num_target_layers", _first(drafter, own, "num_target_layers"), layers)
    same("hidden_size", _first(drafter, own, "target_hidden_size", "hidden_size"), hidden)
    same("vocab_size", drafter.number("vocab_size"), target.number("vocab_size"))
    theirs, mine = target.rope(), drafter.rope()
    for key in sorted({*theirs, *mine}):
        if mine.get(key) != theirs.get(key):
            text = f"RoPE {key}: the drafter says {mine.get(key)}, the target {theirs.get(key)}."
            faults.append(Fault("rope", key, text))
    same(
        "max_position_embeddings",
        drafter.number("max_position_embeddings"),
        target.number("max_position_embeddings"),
    )
    for layer in own.get("target_layer_ids") or ():
        if layers is not None and not (isinstance(layer, int) and 0 <= layer < layers):
            text = f"target_layer_ids names layer {layer} of a target with {layers}."
            faults.append(Fault("layers", "target_layer_ids", text))
    mask, vocab = own.get("mask_token_id"), target.number("vocab_size")
    if isinstance(mask, int) and vocab is not None and not 0 <= mask < vocab:
        text = f"mask_token_id {mask} is outside the target's vocabulary of {vocab:,}."
        faults.append(Fault("vocabulary", "mask_token_id", text))
    return faults


def _first(config: Config, own: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = own.get(name)
        if isinstance(value, int):
            return value
    return config.number(*names)
