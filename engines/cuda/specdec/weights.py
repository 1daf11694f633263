"""Read a checkpoint strictly, or say which tensor is at fault.

Speculation hides a broken drafter: the output stays right and only the acceptance dies. So nothing
is skipped, guessed or filled in here. A missing, unexpected, misshapen, wrongly typed, non-finite
or all-zero tensor stops the load and is named, the drafter's like the target's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.config import ModelConfig, read_config
from specdec.errors import CheckpointError
from specdec.layers.fp8 import Fp8Weight
from specdec.layers.quant import scale_shape
from specdec.shards import FP8, Shards, Stored, fp8_is_trained, is_float, is_trained
from specdec.tensors import Expected, expected_tensors

PREFIXES = ("model.language_model.", "model.")
VISION = ("model.visual.", "visual.")
SCALE = "_scale_inv"

Keep = Callable[[str, Any], Any]  # from a canonical name and a whole tensor to what is kept


@dataclass(frozen=True)
class AuditReport:
    """What a checkpoint holds and what is wrong with it."""

    path: Path
    architecture: str
    tensors: int
    parameters: int
    quantized_modules: int
    drafter_tensors: int
    vision_tensors: int
    tied: bool
    dtypes: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that passed: its shapes, its tensors by canonical name, the report.

    A tensor is in FP32, or an ``Fp8Weight`` where it is stored as one and was to stay so.
    """

    config: ModelConfig
    tensors: dict[str, Any]
    report: AuditReport


def audit(model_dir: Path) -> AuditReport:
    """Check a checkpoint whole and report; raises CheckpointError only if it cannot be opened."""
    return _read(model_dir)[2]


def load_checkpoint(
    model_dir: Path,
    keep: Callable[[ModelConfig], Keep] | None = None,
    expand_fp8: bool = False,
) -> Checkpoint:
    """Read a checkpoint onto the CPU, in FP32 but for FP8 blocks, which stay as they are stored
    unless ``expand_fp8``. Raises CheckpointError that names every fault.

    ``keep`` turns the config into a function from (canonical name, whole tensor) to the part that
    is kept; every tensor is checked whole, one after another, so that no more is held at once.
    """
    config, tensors, report = _read(model_dir, keep)
    if expand_fp8:
        for name, kept in tensors.items():
            if isinstance(kept, Fp8Weight):
                tensors[name] = kept.expanded(0, kept.shape[0])
    if not report.ok:
        raise CheckpointError(
            f"{model_dir} is not a checkpoint to serve:",
            "Fetch or export it again; `specdec audit` repeats this check.",
            report.problems,
        )
    return Checkpoint(config, tensors, report)


def held_bytes(tensors: dict[str, Any]) -> tuple[int, int]:
    """(bytes of the tensors, bytes of the scales of those in FP8 blocks)."""
    blocks = [kept for kept in tensors.values() if isinstance(kept, Fp8Weight)]
    plain = [kept for kept in tensors.values() if isinstance(kept, Tensor)]
    held = sum(tensor.nbytes for tensor in (*plain, *(weight.values for weight in blocks)))
    return held, sum(weight.scales.nbytes for weight in blocks)


def canonical_name(stored: str) -> str:
    """A stored name without its model prefix."""
    for prefix in PREFIXES:
        if stored.startswith(prefix):
            return stored.removeprefix(prefix)
    return stored


def _read(
    model_dir: Path, keep: Callable[[ModelConfig], Keep] | None = None
) -> tuple[ModelConfig, dict[str, Any], AuditReport]:
    config = read_config(model_dir)
    shards = Shards(model_dir)
    problems = list(shards.problems)
    vision = [name for name in shards.stored if name.startswith(VISION)]
    if vision and not config.has_vision:
        problems += [f"{name}: unexpected, config.json declares no vision tower" for name in vision]
    by_name: dict[str, Stored] = {}
    for name, stored in shards.stored.items():
        if name in vision:
            continue
        canonical = canonical_name(name)
        if canonical in by_name:
            problems.append(f"{name}: the same tensor as {by_name[canonical].name}")
        by_name[canonical] = stored
    reader = _Reader(config, shards, by_name, problems, keep(config) if keep else _all_of_it)
    for expected in expected_tensors(config):
        reader.take(expected)
    reader.finish()
    report = AuditReport(
        model_dir,
        config.architecture,
        len(by_name),
        reader.parameters,
        reader.quantized,
        sum(name.startswith("mtp.") for name in by_name),
        len(vision),
        config.tied,
        tuple(sorted({stored.dtype for stored in by_name.values()})),
        tuple(problems),
    )
    return config, reader.tensors, report


def _all_of_it(name: str, whole: Any) -> Any:
    return whole


class _Reader:
    """Takes the expected tensors one by one; what nobody took is unexpected."""

    def __init__(
        self,
        config: ModelConfig,
        shards: Shards,
        by_name: dict[str, Stored],
        problems: list[str],
        keep: Keep,
    ) -> None:
        self._config = config
        self._shards = shards
        self._left = dict(by_name)
        self._problems = problems
        self._keep = keep
        self.parameters = 0
        self.tensors: dict[str, Any] = {}
        self.quantized = 0

    def take(self, expected: Expected) -> None:
        stored = self._left.pop(expected.name, None)
        if stored is None:
            self._problems.append(
                f"{expected.name}: missing, expected shape {list(expected.shape)}"
            )
            return
        if stored.shape != expected.shape or not (is_float(stored.dtype) or stored.dtype == FP8):
            self._problems.append(
                f"{stored.name}: expected shape {list(expected.shape)} in BF16, F16, F32 or "
                f"{FP8}, found shape {list(stored.shape)} in {stored.dtype}"
            )
            return
        values = self._values(expected, stored)
        if values is None:
            return
        plain = isinstance(values, Tensor)
        finite, nonzero = is_trained(values) if plain else fp8_is_trained(values.values)
        if not finite:
            self._problems.append(f"{stored.name}: holds values that are not finite")
        elif not nonzero and not expected.may_be_zero:
            self._problems.append(f"{stored.name}: all zero, so it was never trained or written")
        self.parameters += values.numel()
        self.tensors[expected.name] = self._keep(expected.name, values)

    def finish(self) -> None:
        """Name what is left over."""
        tied_head = self._left.pop("lm_head.weight", None) if self._config.tied else None
        embedding = self.tensors.get("embed_tokens.weight")
        if tied_head is not None and embedding is not None:
            head = self._shards.tensor(tied_head.name).to(torch.float32)
            head = self._keep(tied_head.name, head)
            if not torch.equal(head, embedding):
                self._problems.append(
                    f"{tied_head.name}: unexpected, config.json ties the head to the embedding "
                    "and the two differ"
                )
        for stored in self._left.values():
            self._problems.append(
                f"{stored.name}: unexpected, shape {list(stored.shape)} in {stored.dtype}"
            )

    def _values(self, expected: Expected, stored: Stored) -> Any:
        rule = self._config.quantization
        module = expected.name.removesuffix(".weight")
        quantizable = rule is not None and expected.linear
        excluded = rule is None or is_excluded(module, rule.excluded)
        if stored.dtype != FP8:
            if quantizable and not excluded and not module.startswith("mtp."):
                self._problems.append(
                    f"{stored.name}: expected {FP8} with scales, found {stored.dtype}; "
                    "it is not among modules_to_not_convert"
                )
                return None
            return self._shards.tensor(stored.name).to(torch.float32)
        if rule is None or not quantizable or excluded:
            self._problems.append(
                f"{stored.name}: found {FP8}, but config.json does not quantise this module"
            )
            return None
        return self._in_blocks(expected, stored, rule.block)

    def _in_blocks(
        self, expected: Expected, stored: Stored, block: tuple[int, int]
    ) -> Fp8Weight | None:
        scale = self._left.pop(expected.name + SCALE, None)
        shape = scale_shape((expected.shape[0], expected.shape[1]), block)
        if scale is None or scale.shape != shape or not is_float(scale.dtype):
            found = f"found shape {list(scale.shape)} in {scale.dtype}" if scale else "missing"
            self._problems.append(f"{stored.name}{SCALE}: expected shape {list(shape)}, {found}")
            return None
        scales = self._shards.tensor(scale.name)
        if not all(is_trained(scales)):
            self._problems.append(f"{scale.name}: all zero or not finite")
        self.quantized += 1
        return Fp8Weight.stored(self._shards.tensor(stored.name), scales, block)


def is_excluded(module: str, excluded: tuple[str, ...]) -> bool:
    """Whether a module (canonical name) is covered by an entry of modules_to_not_convert: its
    name, a parent, a bare last part, or ``re:`` and a pattern."""
    for entry in excluded:
        if entry.startswith("re:"):
            if re.search(entry[3:], module):
                return True
            continue
        name = canonical_name(entry)
        if module == name or module.startswith(name + ".") or module.split(".")[-1] == name:
            return True
    return False
