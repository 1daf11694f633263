"""Which tensors a Qwen3.5-type checkpoint must have: canonical name, shape, and kind.

Canonical names drop the prefix ``model.language_model.`` or ``model.``; ``lm_head.weight`` and
``mtp.*`` stand as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec.config import LINEAR, ModelConfig


@dataclass(frozen=True)
class Expected:
    """One tensor. ``linear``: may be stored in FP8 blocks. ``may_be_zero``: an offset from one
    (or a bias), for which zero is a value like any other."""

    name: str
    shape: tuple[int, ...]
    linear: bool = False
    may_be_zero: bool = False


def expected_tensors(config: ModelConfig) -> Iterator[Expected]:
    """Every tensor of the text model and, if declared, of its MTP head."""
    vocabulary = (config.vocab_size, config.hidden_size)
    yield Expected("embed_tokens.weight", vocabulary)
    yield Expected("norm.weight", (config.hidden_size,), may_be_zero=True)
    if not config.tied:
        yield Expected("lm_head.weight", vocabulary, linear=True)
    for index, kind in enumerate(config.layer_types):
        prefix = f"layers.{index}."
        yield from (
            _linear_attention(prefix, config) if kind == LINEAR else _attention(prefix, config)
        )
        yield from _shell(prefix, config)
    if config.mtp_layers:
        yield from _mtp(config)


def _offset(name: str, width: int) -> Expected:
    return Expected(name, (width,), may_be_zero=True)


def _matrix(name: str, rows: int, columns: int) -> Expected:
    return Expected(f"{name}.weight", (rows, columns), linear=True)


def _shell(prefix: str, c: ModelConfig) -> Iterator[Expected]:
    yield _offset(f"{prefix}input_layernorm.weight", c.hidden_size)
    yield _offset(f"{prefix}post_attention_layernorm.weight", c.hidden_size)
    yield _matrix(f"{prefix}mlp.gate_proj", c.intermediate_size, c.hidden_size)
    yield _matrix(f"{prefix}mlp.up_proj", c.intermediate_size, c.hidden_size)
    yield _matrix(f"{prefix}mlp.down_proj", c.hidden_size, c.intermediate_size)


def _attention(prefix: str, c: ModelConfig) -> Iterator[Expected]:
    at = f"{prefix}self_attn."
    heads, kv_heads = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    yield _matrix(f"{at}q_proj", 2 * heads, c.hidden_size)
    yield _matrix(f"{at}k_proj", kv_heads, c.hidden_size)
    yield _matrix(f"{at}v_proj", kv_heads, c.hidden_size)
    yield _matrix(f"{at}o_proj", c.hidden_size, heads)
    yield _offset(f"{at}q_norm.weight", c.head_dim)
    yield _offset(f"{at}k_norm.weight", c.head_dim)


def _linear_attention(prefix: str, c: ModelConfig) -> Iterator[Expected]:
    at = f"{prefix}linear_attn."
    yield _matrix(f"{at}in_proj_qkv", c.conv_width, c.hidden_size)
    yield _matrix(f"{at}in_proj_z", c.value_width, c.hidden_size)
    yield _matrix(f"{at}in_proj_b", c.linear_value_heads, c.hidden_size)
    yield _matrix(f"{at}in_proj_a", c.linear_value_heads, c.hidden_size)
    yield Expected(f"{at}conv1d.weight", (c.conv_width, 1, c.conv_kernel))
    yield Expected(f"{at}A_log", (c.linear_value_heads,), may_be_zero=True)
    yield Expected(f"{at}dt_bias", (c.linear_value_heads,), may_be_zero=True)
    yield Expected(f"{at}norm.weight", (c.linear_value_dim,))
    yield _matrix(f"{at}out_proj", c.hidden_size, c.value_width)


def _mtp(c: ModelConfig) -> Iterator[Expected]:
    yield _matrix("mtp.fc", c.hidden_size, 2 * c.hidden_size)
    yield _offset("mtp.pre_fc_norm_embedding.weight", c.hidden_size)
    yield _offset("mtp.pre_fc_norm_hidden.weight", c.hidden_size)
    yield _offset("mtp.norm.weight", c.hidden_size)
    yield from _attention("mtp.layers.0.", c)
    yield from _shell("mtp.layers.0.", c)
