"""The safetensors files of a checkpoint, as one map from stored name to tensor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec.errors import CheckpointError

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Stored:
    """A tensor as a shard's header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    shard: Path


class Shards:
    """Opens every ``*.safetensors`` of a folder; an index file, if any, must agree with them."""

    def __init__(self, model_dir: Path) -> None:
        paths = sorted(model_dir.glob("*.safetensors"))
        if not paths:
            raise CheckpointError(
                f"{model_dir} has no *.safetensors file.", "Give a Hugging Face checkpoint folder."
            )
        self.stored: dict[str, Stored] = {}
        self.problems: list[str] = []
        for path in paths:
            self._read_header(path)
        self._compare_with_index(model_dir / INDEX)

    def tensor(self, name: str) -> Tensor:
        """Read one tensor as stored."""
        with safe_open(self.stored[name].shard, framework="pt") as shard:
            found: Tensor = shard.get_tensor(name)
        return found

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118 (not a dict)
                    piece = shard.get_slice(name)
                    found = Stored(name, tuple(piece.get_shape()), piece.get_dtype(), path)
                    if name in self.stored:
                        other = self.stored[name].shard.name
                        self.problems.append(f"{name}: stored twice, in {other} and {path.name}")
                    self.stored[name] = found
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} cannot be read as safetensors: {error}.", "Fetch the file again."
            ) from None

    def _compare_with_index(self, path: Path) -> None:
        if not path.is_file():
            return
        listed = json.loads(path.read_text(encoding="utf-8")).get("weight_map", {})
        for name in sorted(set(listed) - set(self.stored)):
            self.problems.append(f"{name}: listed in {path.name} but in no shard")


def is_float(dtype: str) -> bool:
    """Formats that a weight may be stored in, FP8 apart."""
    return dtype in ("BF16", "F16", "F32")


FP8 = "F8_E4M3"


def is_trained(values: Tensor) -> tuple[bool, bool]:
    """(all finite, any non-zero) of a tensor in any float format."""
    plain = values.to(torch.float32)
    return bool(torch.isfinite(plain).all()), bool((plain != 0).any())


def fp8_is_trained(values: Tensor) -> tuple[bool, bool]:
    """The same of FP8 E4M3 values, from their bytes: all ones but the sign is not a number, and
    there is no infinity."""
    magnitudes = values.view(torch.uint8) & 0x7F
    return bool((magnitudes != 0x7F).all()), bool((magnitudes != 0).any())
