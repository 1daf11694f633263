"""Which tensors a checkpoint must hold, and in which shape, from its config alone.

Sources: transformers' qwen3_5 (target), the published shapes of the MTP head, of DFlash2 (81
tensors: 58 of the backbone, 23 of convolutions and selector) and of DSpark (62).
"""

from __future__ import annotations

from dataclasses import dataclass

from qualify.inspect.config import Config


@dataclass(frozen=True)
class Expected:
    """linear: a projection, which a quantised checkpoint may store packed."""

    name: str
    shape: tuple[int, ...]
    linear: bool = False


class Unknown(Exception):
    """No list is known for this configuration; the text says why."""


def target(config: Config, prefix: str) -> list[Expected]:
    """A dense Qwen3.5-type target below `prefix` ("model." or "model.language_model.")."""
    n = _numbers(
        config, "num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size",
        "num_attention_heads", "num_key_value_heads", "head_dim", "linear_num_key_heads",
        "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )  # fmt: skip
    kinds = config.text.get("layer_types")
    if not isinstance(kinds, list):
        every = config.number("full_attention_interval") or 4
        kinds = [
            "full_attention" if (i + 1) % every == 0 else "linear_attention"
            for i in range(n["num_hidden_layers"])
        ]
    hidden, vocab = n["hidden_size"], n["vocab_size"]
    found = [Expected(f"{prefix}embed_tokens.weight", (vocab, hidden))]
    for index, kind in enumerate(kinds[: n["num_hidden_layers"]]):
        layer = f"{prefix}layers.{index}."
        found += _norms(layer, hidden) + _mlp(f"{layer}mlp.", hidden, n["intermediate_size"])
        if kind == "full_attention":
            found += _attention(f"{layer}self_attn.", n, gated=True)
        else:
            found += _delta(f"{layer}linear_attn.", n)
    found.append(Expected(f"{prefix}norm.weight", (hidden,)))
    tied = config.root.get("tie_word_embeddings", config.text.get("tie_word_embeddings"))
    if not tied:
        found.append(Expected("lm_head.weight", (vocab, hidden), True))
    return found


def mtp(config: Config) -> list[Expected]:
    """The auxiliary head inside the target's checkpoint: 15 tensors for one layer."""
    n = _numbers(
        config, "hidden_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "head_dim",
    )  # fmt: skip
    layers = config.number("mtp_num_hidden_layers", "num_nextn_predict_layers")
    if not layers:
        raise Unknown("the config names no MTP layer (mtp_num_hidden_layers)")
    hidden = n["hidden_size"]
    found = [Expected("mtp.fc.weight", (hidden, 2 * hidden), True)]
    found += [
        Expected(f"mtp.{name}.weight", (hidden,))
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    ]
    for index in range(layers):
        layer = f"mtp.layers.{index}."
        found += _norms(layer, hidden) + _mlp(f"{layer}mlp.", hidden, n["intermediate_size"])
        found += _attention(f"{layer}self_attn.", n, gated=True)
    return found


def dflash2(config: Config) -> list[Expected]:
    """The block drafter: backbone, two grouped convolutions a layer, the selector."""
    own = config.inner("dflash_config")
    n = _numbers(config, "hidden_size", "vocab_size", "num_hidden_layers")
    size, rank, taps = (
        value if isinstance(value := own.get(name), int) and value > 0 else None
        for name in ("conv_group_size", "selector_rank", "conv_kernel_size")
    )
    if size is None or rank is None or taps is None:
        raise Unknown("dflash_config lacks conv_group_size, conv_kernel_size or selector_rank")
    hidden, vocab = n["hidden_size"], n["vocab_size"]
    found = _backbone(config)
    for index in range(n["num_hidden_layers"]):
        for conv in ("attention_conv", "mlp_conv"):
            base = f"layers.{index}.{conv}."
            found.append(Expected(f"{base}base_kernel", (2, taps, hidden)))
            rows = 2 * taps * hidden // size
            found.append(Expected(f"{base}kernel_projection.weight", (rows, hidden), True))
    for book in ("predecessor", "successor"):
        found.append(Expected(f"candidate_selector.{book}_codebook", (vocab, rank)))
    found.append(Expected("candidate_selector.hidden_projection.weight", (rank, hidden), True))
    return found


def dspark(config: Config) -> list[Expected]:
    """The semi-autoregressive drafter: backbone, Markov head, confidence head."""
    n = _numbers(config, "hidden_size", "vocab_size", "markov_rank")
    hidden, vocab, rank = n["hidden_size"], n["vocab_size"], n["markov_rank"]
    found = _backbone(config)
    found += [Expected(f"markov_head.markov_w{i}.weight", (vocab, rank)) for i in (1, 2)]
    if config.root.get("enable_confidence_head", True):
        wide = hidden + (rank if config.root.get("confidence_head_with_markov", True) else 0)
        found.append(Expected("confidence_head.proj.weight", (1, wide), True))
        found.append(Expected("confidence_head.proj.bias", (1,)))
    return found


def _backbone(config: Config) -> list[Expected]:
    n = _numbers(
        config, "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "head_dim",
    )  # fmt: skip
    features = config.inner("dflash_config").get("target_layer_ids")
    if not isinstance(features, list) or not features:
        raise Unknown("dflash_config names no target_layer_ids")
    hidden = n["hidden_size"]
    wide = len(features) * (config.number("target_hidden_size") or hidden)
    found = [Expected("fc.weight", (hidden, wide), True)]
    found += [Expected(f"{name}.weight", (hidden,)) for name in ("hidden_norm", "norm")]
    for index in range(n["num_hidden_layers"]):
        layer = f"layers.{index}."
        found += _norms(layer, hidden) + _mlp(f"{layer}mlp.", hidden, n["intermediate_size"])
        found += _attention(f"{layer}self_attn.", n, gated=False)
    return found


def _norms(layer: str, hidden: int) -> list[Expected]:
    names = ("input_layernorm", "post_attention_layernorm")
    return [Expected(f"{layer}{name}.weight", (hidden,)) for name in names]


def _mlp(base: str, hidden: int, wide: int) -> list[Expected]:
    return [
        Expected(f"{base}gate_proj.weight", (wide, hidden), True),
        Expected(f"{base}up_proj.weight", (wide, hidden), True),
        Expected(f"{base}down_proj.weight", (hidden, wide), True),
    ]


def _attention(base: str, n: dict[str, int], *, gated: bool) -> list[Expected]:
    """gated: q_proj also gives the output gate, head by head."""
    size, hidden = n["head_dim"], n["hidden_size"]
    heads, shared = n["num_attention_heads"] * size, n["num_key_value_heads"] * size
    return [
        Expected(f"{base}q_proj.weight", (heads * (2 if gated else 1), hidden), True),
        Expected(f"{base}k_proj.weight", (shared, hidden), True),
        Expected(f"{base}v_proj.weight", (shared, hidden), True),
        Expected(f"{base}o_proj.weight", (hidden, heads), True),
        Expected(f"{base}q_norm.weight", (size,)),
        Expected(f"{base}k_norm.weight", (size,)),
    ]


def _delta(base: str, n: dict[str, int]) -> list[Expected]:
    """Gated DeltaNet: queries and keys share the key heads' width."""
    hidden, values = n["hidden_size"], n["linear_num_value_heads"]
    keys = n["linear_num_key_heads"] * n["linear_key_head_dim"]
    wide = values * n["linear_value_head_dim"]
    mixed = 2 * keys + wide
    return [
        Expected(f"{base}in_proj_qkv.weight", (mixed, hidden), True),
        Expected(f"{base}in_proj_z.weight", (wide, hidden), True),
        Expected(f"{base}in_proj_b.weight", (values, hidden), True),
        Expected(f"{base}in_proj_a.weight", (values, hidden), True),
        Expected(f"{base}conv1d.weight", (mixed, 1, n["linear_conv_kernel_dim"])),
        Expected(f"{base}A_log", (values,)),
        Expected(f"{base}dt_bias", (values,)),
        Expected(f"{base}norm.weight", (n["linear_value_head_dim"],)),
        Expected(f"{base}out_proj.weight", (hidden, wide), True),
    ]


def _numbers(config: Config, *names: str) -> dict[str, int]:
    found = {name: config.number(name) for name in names}
    lacking = [name for name, value in found.items() if value is None]
    if lacking:
        raise Unknown(f"the config does not say {', '.join(lacking)}")
    return {name: value for name, value in found.items() if value is not None}
