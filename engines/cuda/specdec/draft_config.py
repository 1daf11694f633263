"""Read the ``config.json`` of a block drafter, and refuse one that does not fit its target.

The keys are those of the public DFlash, DFlash2 and DSpark checkpoints: a ``qwen3`` backbone with
``dflash_config`` beside it. Nothing has a default that could hide a missing key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.config import ModelConfig
from specdec.errors import CheckpointError
from specdec.yarn import Yarn, read_yarn

CLASSIC = "DFlashDraftModel"
SLIDING = "sliding_attention"
FULL = "full_attention"


@dataclass(frozen=True)
class BlockConfig:
    """The backbone's shapes. ``block``: its rows, the anchor and the masks after it. ``taps``: the
    target layers that feed it. ``window``: positions that a row sees, its own among them; None for
    all. ``causal``: a row of the block sees no later one."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    yarn: Yarn | None
    context_length: int
    block: int
    taps: tuple[int, ...]
    mask_token: int
    window: int | None
    causal: bool


class DraftTree:
    """A draft checkpoint's folder, its raw config, and what is wrong with it so far."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self.folder = folder
        self.architecture = architecture
        self.problems: list[str] = []
        path = folder / "config.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}.", "Give the folder of a draft checkpoint."
            ) from None
        if not isinstance(found, dict):
            raise CheckpointError(f"{path} is not a JSON object.", "Fetch the file again.")
        self.root: dict[str, Any] = found
        nested = found.get("dflash_config")
        self.nested: dict[str, Any] = nested if isinstance(nested, dict) else {}
        self._check_class()

    def _check_class(self) -> None:
        declared = self.root.get("architectures")
        if declared == [self.architecture]:
            return
        if declared == [CLASSIC]:
            said = (
                f"{self.folder} declares {CLASSIC}: it is a classic DFlash tree, without "
                f"convolutions and candidate selector, and no {self.architecture}."
            )
        else:
            said = f"{self.folder} declares {declared}, not {self.architecture}."
        raise CheckpointError(said, f"Give a checkpoint of the class {self.architecture}.")

    def number(self, key: str, *places: dict[str, Any]) -> int:
        """A positive integer from any of ``places`` (the root by default); where several have it,
        they must agree. A fault is noted and 1 returned."""
        found = {place[key] for place in places or (self.root,) if place.get(key) is not None}
        if len(found) != 1:
            what = "is missing" if not found else f"has several values, {sorted(found)}"
            self.problems.append(f"{key} {what}")
            return 1
        value = found.pop()
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.problems.append(f"{key} is {value!r}, a positive integer is needed")
            return 1
        return value

    def must(self, holds: bool, problem: str) -> None:
        """Note ``problem`` unless it holds."""
        if not holds:
            self.problems.append(problem)

    def finish(self) -> None:
        """Raise CheckpointError with all that was noted."""
        if self.problems:
            raise CheckpointError(
                f"{self.folder} does not fit its target:",
                "Give a draft checkpoint that was trained for this target.",
                tuple(self.problems),
            )


def read_block_config(
    tree: DraftTree, target: ModelConfig, positions: int, same_rope: bool
) -> BlockConfig:
    """The backbone's part of a tree's config; what does not fit is noted in ``tree.problems``.

    ``positions``: those that will be served. ``same_rope``: the drafter was trained with the
    target's rotary base and YaRN settings.
    """
    root, number = tree.root, tree.number
    taps = tree.nested.get("target_layer_ids")
    layers_of_target = len(target.layer_types)
    good_taps = (
        isinstance(taps, list)
        and taps
        and all(isinstance(i, int) and 0 <= i < layers_of_target for i in taps)
        and len(set(taps)) == len(taps)
    )
    tree.must(
        bool(good_taps),
        f"target_layer_ids is {taps}, different layers from 0 to {layers_of_target - 1} are needed",
    )
    rope = root.get("rope_parameters") or root.get("rope_scaling") or {}
    declared = number("max_position_embeddings")
    yarn = read_yarn(rope, declared, tree.folder / "config.json")
    config = BlockConfig(
        layers=number("num_hidden_layers"),
        hidden=number("hidden_size"),
        intermediate=number("intermediate_size"),
        heads=number("num_attention_heads"),
        kv_heads=number("num_key_value_heads"),
        head_dim=number("head_dim"),
        eps=float(root.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta", root.get("rope_theta", 10_000.0))),
        yarn=yarn,
        context_length=max(declared, yarn.context_length if yarn else 0),
        block=number("block_size", root, tree.nested),
        taps=tuple(taps) if isinstance(taps, list) and good_taps else (0,),
        mask_token=number("mask_token_id", root, tree.nested),
        window=_window(tree),
        causal=bool(tree.nested.get("causal", root.get("is_causal", False))),
    )
    _fit(tree, config, target, positions)
    if same_rope:
        ours, theirs = (
            _rope_words(config.rope_theta, yarn),
            _rope_words(target.rope_theta, target.yarn),
        )
        tree.must(ours == theirs, f"its rotary positions are {ours}, the target's are {theirs}")
    return config


def _window(tree: DraftTree) -> int | None:
    kinds = tree.root.get("layer_types") or []
    layers = tree.root.get("num_hidden_layers")
    tree.must(
        len(kinds) == layers and len(set(kinds)) == 1 and set(kinds) <= {SLIDING, FULL},
        f"layer_types is {kinds}, {layers} times {SLIDING} or {layers} times {FULL} is needed",
    )
    return tree.number("sliding_window") if SLIDING in kinds else None


def _fit(tree: DraftTree, config: BlockConfig, target: ModelConfig, positions: int) -> None:
    vocab = tree.number("vocab_size")
    layers = tree.number("num_target_layers")
    ours = len(target.layer_types)
    must = tree.must
    must(vocab == target.vocab_size, f"vocab_size is {vocab}, the target's is {target.vocab_size}")
    must(
        config.hidden == target.hidden_size,
        f"hidden_size is {config.hidden}, the target's is {target.hidden_size}",
    )
    must(layers == ours, f"num_target_layers is {layers}, the target has {ours}")
    must(config.mask_token < vocab, f"mask_token_id is {config.mask_token}, beyond the vocabulary")
    must(config.block >= 2, f"block_size is {config.block}, at least 2 is needed")
    must(
        config.window is None or config.window >= config.block,
        f"sliding_window is {config.window}, less than a block of {config.block}",
    )
    must(
        config.context_length >= positions,
        f"its positions end at {config.context_length}, and {positions} are served",
    )
    must(config.heads % config.kv_heads == 0, "query heads per KV head must divide evenly")
    must(config.head_dim % 2 == 0, f"head_dim is {config.head_dim}, an even number is needed")
    must(tree.root.get("hidden_act", "silu") == "silu", "hidden_act must be silu")
    must(not tree.root.get("attention_bias", False), "attention_bias must be false")


def _rope_words(theta: float, yarn: Yarn | None) -> str:
    if yarn is None:
        return f"plain with base {theta:g}"
    return f"yarn with base {theta:g}, factor {yarn.factor:g} over {yarn.trained_context}"
