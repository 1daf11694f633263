"""The published drafters' and head's tensors, counted from their published configs."""

from __future__ import annotations

from typing import Any

from qualify.inspect import expected
from qualify.inspect.config import Config

# Qwen3.8-27B's text part and its two published drafters, as engine-protocols records them.
TARGET = {
    "vocab_size": 248320,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "mtp_num_hidden_layers": 1,
}
BACKBONE = {
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 248320,
}
DFLASH2 = {
    **BACKBONE,
    "dflash_config": {
        "block_size": 8,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [5, 19, 33, 47, 61],
    },
}
DSPARK = {
    **BACKBONE,
    "markov_rank": 256,
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "dflash_config": {"target_layer_ids": [4, 16, 28, 40, 52]},
}


def config(told: dict[str, Any]) -> Config:
    return Config(told, told)


def test_dflash2_has_81_tensors_of_which_23_are_convolutions_and_selector() -> None:
    found = {item.name: item.shape for item in expected.dflash2(config(DFLASH2))}
    own = [n for n in found if "_conv." in n or n.startswith("candidate_selector.")]
    assert (len(found), len(own)) == (81, 23)
    assert found["fc.weight"] == (5120, 25600)
    assert found["layers.4.attention_conv.base_kernel"] == (2, 2, 5120)
    assert found["layers.0.mlp_conv.kernel_projection.weight"] == (1280, 5120)
    assert found["candidate_selector.successor_codebook"] == (248320, 256)
    size = 0
    for shape in found.values():
        count = 2
        for n in shape:
            count *= n
        size += count
    assert 3.8e9 < size < 3.9e9  # "about 3.85 GB in BF16"


def test_dspark_has_62_tensors() -> None:
    found = {item.name: item.shape for item in expected.dspark(config(DSPARK))}
    assert len(found) == 62
    assert found["confidence_head.proj.weight"] == (1, 5120 + 256)
    assert found["markov_head.markov_w2.weight"] == (248320, 256)


def test_the_mtp_head_has_15_tensors() -> None:
    found = {item.name: item.shape for item in expected.mtp(config(TARGET))}
    assert len(found) == 15
    assert found["mtp.fc.weight"] == (5120, 10240)
    assert found["mtp.layers.0.self_attn.q_proj.weight"] == (12288, 5120)
    assert found["mtp.layers.0.self_attn.o_proj.weight"] == (5120, 6144)


def test_the_targets_recurrent_layers_have_the_published_widths() -> None:
    found = {item.name: item.shape for item in expected.target(config(TARGET), "model.")}
    assert found["model.layers.0.linear_attn.in_proj_qkv.weight"] == (10240, 5120)
    assert found["model.layers.0.linear_attn.in_proj_z.weight"] == (6144, 5120)
    assert found["model.layers.0.linear_attn.conv1d.weight"] == (10240, 1, 4)
    assert "model.layers.3.self_attn.q_proj.weight" in found
    assert "model.layers.3.linear_attn.A_log" not in found
