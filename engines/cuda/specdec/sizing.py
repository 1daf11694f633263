"""How many bytes a model takes, from its shapes alone: no weights are read and no GPU is asked.

Per rank of a tensor-parallel group of N; [rows, columns] are a matrix's shape in the checkpoint::

    FP8 values     1 byte an element of a quantised matrix, cut evenly
    scales         one for each 128 x 128 block begun (the config's own block), cut evenly
    other weights  an element of the dense format each: embedding, head, the gates' projections,
                   convolution, A_log and dt_bias cut evenly; norms whole on every rank
    KV a token     2 · full-attention layers · KV heads / N · head dim · bytes of an element
    FP8 KV scales  2 · full-attention layers · KV heads / N · head dim / 64 · bytes of a scale
    snapshot       recurrent layers · (value heads / N · key dim · value dim · 4
                   + convolution width / N · (kernel - 1) · bytes of an element)

A ``Format`` says what the bytes of an element are. ``FP16`` is that of a runtime which keeps all
but the recurrent state in half precision; ``FP32`` is this engine's, whose snapshot also has the
raw rows of the block that it was taken in (``state.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from specdec.config import FULL, LINEAR, ModelConfig
from specdec.layers.quant import KV_GROUP, scale_shape
from specdec.parallel.sharding import check_divisible, share_of
from specdec.state import state_bytes_per_slot
from specdec.tensors import Expected, expected_tensors
from specdec.weights import is_excluded

KvFormat = Literal["plain", "fp8"]
CUT_VECTORS = ("A_log", "dt_bias")  # a value for each head; every other vector is a norm


@dataclass(frozen=True)
class Format:
    """Bytes of an element. ``own_state``: snapshots are this engine's."""

    name: str
    dense_bytes: int
    scale_bytes: int = 2
    own_state: bool = False


FP16 = Format("FP16", 2)
FP32 = Format("FP32", 4, own_state=True)
FORMATS = {"fp16": FP16, "fp32": FP32}


@dataclass(frozen=True)
class Weights:
    """Bytes of weights on one rank, quantisation scales apart."""

    weight_bytes: int
    scale_bytes: int
    parameters: int


@dataclass(frozen=True)
class ModelSize:
    """One rank's bytes. ``draft_head``: the MTP head's weights, not part of ``target``."""

    target: Weights
    draft_head: Weights
    kv_bytes_per_token: int
    kv_scale_bytes_per_token: int
    snapshot_bytes: int

    def kv_bytes(self, tokens: int) -> int:
        """Keys and values of ``tokens`` tokens, their scales among them."""
        return tokens * (self.kv_bytes_per_token + self.kv_scale_bytes_per_token)


def model_size(config: ModelConfig, ranks: int, form: Format, kv: KvFormat) -> ModelSize:
    """The sizes on one of ``ranks`` ranks. Raises SpecdecError if they cannot share evenly."""
    check_divisible(config, ranks)
    share = share_of(config, ranks)
    full = share.layer_types.count(FULL)
    elements = 2 * full * share.num_key_value_heads * share.head_dim
    scales = 2 * full * share.num_key_value_heads * -(-share.head_dim // KV_GROUP)
    return ModelSize(
        target=_weights(config, ranks, form, of_head=False),
        draft_head=_weights(config, ranks, form, of_head=True),
        kv_bytes_per_token=elements * (1 if kv == "fp8" else form.dense_bytes),
        kv_scale_bytes_per_token=scales * form.scale_bytes if kv == "fp8" else 0,
        snapshot_bytes=_snapshot(share, form),
    )


def _weights(config: ModelConfig, ranks: int, form: Format, of_head: bool) -> Weights:
    values = scales = parameters = 0
    for tensor in expected_tensors(config):
        if tensor.name.startswith("mtp.") != of_head:
            continue
        share = 1 if is_whole(tensor) else ranks
        parameters += math.prod(tensor.shape)
        if is_quantized(config, tensor):
            assert config.quantization is not None
            blocks = scale_shape((tensor.shape[0], tensor.shape[1]), config.quantization.block)
            values += math.prod(tensor.shape) // share
            scales += form.scale_bytes * math.prod(blocks) // share
        else:
            values += form.dense_bytes * math.prod(tensor.shape) // share
    return Weights(values, scales, parameters)


def is_whole(tensor: Expected) -> bool:
    """Whether every rank holds all of it."""
    return len(tensor.shape) == 1 and not tensor.name.endswith(CUT_VECTORS)


def is_quantized(config: ModelConfig, tensor: Expected) -> bool:
    """Whether the config declares it to be stored in FP8 blocks."""
    rule = config.quantization
    module = tensor.name.removesuffix(".weight")
    return rule is not None and tensor.linear and not is_excluded(module, rule.excluded)


def _snapshot(share: ModelConfig, form: Format) -> int:
    layers = share.layer_types.count(LINEAR)
    if form.own_state:
        return state_bytes_per_slot(share) // 2  # a slot has two buffers, a snapshot one
    state = share.linear_value_heads * share.linear_key_dim * share.linear_value_dim * 4
    tail = share.conv_width * (share.conv_kernel - 1) * form.dense_bytes
    return layers * (state + tail)
