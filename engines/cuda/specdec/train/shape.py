"""The shape of a Qwen3.5-type text model, and its Hugging Face config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the target and of its MTP head. Defaults are the published fixture's."""

    vocab: int = 4096
    hidden: int = 256
    layers: int = 8
    mlp: int = 768
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 128
    linear_key_heads: int = 2
    linear_value_heads: int = 4
    linear_head_dim: int = 128
    conv_kernel: int = 4
    full_attention_interval: int = 4
    rotary_fraction: float = 0.25
    rope_theta: float = 10_000_000.0
    norm_eps: float = 1e-6
    max_positions: int = 1_048_576

    @property
    def rotary_dim(self) -> int:
        return int(self.head_dim * self.rotary_fraction)

    @property
    def linear_key_dim(self) -> int:
        return self.linear_key_heads * self.linear_head_dim

    @property
    def linear_value_dim(self) -> int:
        return self.linear_value_heads * self.linear_head_dim

    def is_full_attention(self, layer: int) -> bool:
        return (layer + 1) % self.full_attention_interval == 0

    @property
    def layer_types(self) -> list[str]:
        kinds = ("linear_attention", "full_attention")
        return [kinds[self.is_full_attention(layer)] for layer in range(self.layers)]

    def hf_config(self, *, eos_ids: list[int], pad_id: int) -> dict[str, Any]:
        """``config.json`` of a text-only checkpoint (``Qwen3_5ForCausalLM``)."""
        half = self.rotary_dim // 2
        third = half // 3
        section = [half - 2 * third, third, third]
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_output_gate": True,
            "linear_conv_kernel_dim": self.conv_kernel,
            "linear_key_head_dim": self.linear_head_dim,
            "linear_value_head_dim": self.linear_head_dim,
            "linear_num_key_heads": self.linear_key_heads,
            "linear_num_value_heads": self.linear_value_heads,
            "layer_types": self.layer_types,
            "full_attention_interval": self.full_attention_interval,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.rotary_fraction,
                "mrope_interleaved": True,
                "mrope_section": section,
            },
            "partial_rotary_factor": self.rotary_fraction,
            "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "use_cache": True,
            "bos_token_id": None,
            "eos_token_id": eos_ids,
            "pad_token_id": pad_id,
        }


#: A model small enough to train for a few steps on two CPU cores (tests and smoke runs).
SMALL = ModelShape(
    vocab=4096,
    hidden=128,
    layers=4,
    mlp=256,
    heads=2,
    kv_heads=1,
    linear_key_heads=1,
    linear_value_heads=2,
)
