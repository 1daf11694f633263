"""Write the checkpoint folder: real Hugging Face names, BF16, config and generation config."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead
from specdec.train.shape import ModelShape
from specdec.train.vocabulary import END_OF_TEXT, TURN_END, Encoder
from torch import Tensor, nn


def round_to_bf16(module: nn.Module) -> None:
    """Give every parameter the value that its stored form has."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.to(torch.bfloat16).to(parameter.dtype))


def checkpoint_tensors(model: HybridModel, head: MtpHead | None) -> dict[str, Tensor]:
    """All tensors by their stored name. The head is tied, so there is no ``lm_head``."""
    tensors = dict(model.state_dict())
    if head is not None:
        tensors |= {f"mtp.{name}": value for name, value in head.state_dict().items()}
    return {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in tensors.items()
    }


def write_config(folder: Path, shape: ModelShape, encode: Encoder) -> None:
    """``config.json`` and ``generation_config.json``."""
    end, turn = encode.id_of(END_OF_TEXT), encode.id_of(TURN_END)
    config = shape.hf_config(eos_ids=[turn, end], pad_id=end)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"do_sample": False, "eos_token_id": [turn, end], "pad_token_id": end}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def write_weights(
    folder: Path, model: HybridModel, head: MtpHead | None, shard_bytes: int | None = None
) -> list[Path]:
    """``model.safetensors``, or numbered parts no larger than ``shard_bytes`` (for transport)."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, value in checkpoint_tensors(model, head).items():
        if shard_bytes is not None and size + value.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = value
        size += value.nbytes
    if shard_bytes is None:
        path = folder / "model.safetensors"
        save_file(shards[0], path, {"format": "pt"})
        return [path]
    paths = [folder / f"part-{number}.safetensors" for number in range(len(shards))]
    for path, shard in zip(paths, shards, strict=True):
        save_file(shard, path, {"format": "pt"})
    return paths


def join_parts(parts: list[Path], target: Path) -> None:
    """One ``model.safetensors`` from the parts that travelled."""
    tensors: dict[str, Tensor] = {}
    for part in sorted(parts):
        tensors |= load_file(part)
    save_file(tensors, target, {"format": "pt"})


def load_weights(paths: list[Path], model: HybridModel, head: MtpHead | None) -> None:
    """Read a checkpoint back into the training modules."""
    tensors: dict[str, Tensor] = {}
    for path in paths:
        tensors |= load_file(path)
    own = {name: value for name, value in tensors.items() if not name.startswith("mtp.")}
    model.load_state_dict({name: value.float() for name, value in own.items()})
    if head is not None:
        prefix = "mtp."
        head.load_state_dict(
            {n.removeprefix(prefix): v.float() for n, v in tensors.items() if n.startswith(prefix)}
        )
