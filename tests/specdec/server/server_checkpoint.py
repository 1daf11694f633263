"""A small random checkpoint in the Hugging Face layout, with a tokenizer trained on the spot.

The weights are random, so its text means nothing; every tensor, file and name is real.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB = 384
HIDDEN = 64
MLP = 128
HEAD = 32
Q_HEADS, KV_HEADS = 2, 1
K_LINEAR, V_LINEAR, LINEAR_DIM = 2, 4, 16
CONTEXT = 512
LAYERS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

SCALE = 0.05  # of the random weights; larger makes the drafts worse

TEXT = [
    "def add(left, right):\n    return left + right\n",
    "The key of the red door is 4410, and the key of the blue door is 9182.",
    "for index in range(10):\n    print(index, 'näïve café', '日本語', '🙂')\n",
    "She said that the river was wide and that the boat would come in the morning.",
] * 20

TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def build_checkpoint(folder: Path, seed: int = 7) -> Path:
    """Write config, weights, tokenizer and chat template into `folder`; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    _save_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(_config(), indent=2), "utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}), "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    tensors = _tensors(torch.Generator().manual_seed(seed))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


def _config() -> dict[str, object]:
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "dtype": "float32",
        "head_dim": HEAD,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "initializer_range": 0.02,
        "layer_types": LAYERS,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": LINEAR_DIM,
        "linear_num_key_heads": K_LINEAR,
        "linear_num_value_heads": V_LINEAR,
        "linear_value_head_dim": LINEAR_DIM,
        "max_position_embeddings": CONTEXT,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": Q_HEADS,
        "num_hidden_layers": len(LAYERS),
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000.0,
            "rope_type": "default",
        },
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": VOCAB,
    }


def _save_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _tensors(generator: torch.Generator) -> dict[str, torch.Tensor]:
    def random(*shape: int, scale: float = SCALE) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    keys, values = K_LINEAR * LINEAR_DIM, V_LINEAR * LINEAR_DIM
    tensors = {
        "model.embed_tokens.weight": random(VOCAB, HIDDEN, scale=1.0),
        "lm_head.weight": random(VOCAB, HIDDEN, scale=0.4),
        "model.norm.weight": random(HIDDEN),
    }

    def block(prefix: str, kind: str) -> None:
        tensors[f"{prefix}.input_layernorm.weight"] = random(HIDDEN)
        tensors[f"{prefix}.post_attention_layernorm.weight"] = random(HIDDEN)
        tensors[f"{prefix}.mlp.gate_proj.weight"] = random(MLP, HIDDEN)
        tensors[f"{prefix}.mlp.up_proj.weight"] = random(MLP, HIDDEN)
        tensors[f"{prefix}.mlp.down_proj.weight"] = random(HIDDEN, MLP)
        if kind == "full_attention":
            name = f"{prefix}.self_attn"
            tensors[f"{name}.q_proj.weight"] = random(2 * Q_HEADS * HEAD, HIDDEN)
            tensors[f"{name}.k_proj.weight"] = random(KV_HEADS * HEAD, HIDDEN)
            tensors[f"{name}.v_proj.weight"] = random(KV_HEADS * HEAD, HIDDEN)
            tensors[f"{name}.o_proj.weight"] = random(HIDDEN, Q_HEADS * HEAD)
            tensors[f"{name}.q_norm.weight"] = random(HEAD)
            tensors[f"{name}.k_norm.weight"] = random(HEAD)
            return
        name = f"{prefix}.linear_attn"
        tensors[f"{name}.in_proj_qkv.weight"] = random(2 * keys + values, HIDDEN)
        tensors[f"{name}.in_proj_z.weight"] = random(values, HIDDEN)
        tensors[f"{name}.in_proj_a.weight"] = random(V_LINEAR, HIDDEN)
        tensors[f"{name}.in_proj_b.weight"] = random(V_LINEAR, HIDDEN)
        tensors[f"{name}.conv1d.weight"] = random(2 * keys + values, 1, 4, scale=0.5)
        tensors[f"{name}.A_log"] = random(V_LINEAR)
        tensors[f"{name}.dt_bias"] = random(V_LINEAR)
        tensors[f"{name}.norm.weight"] = 1.0 + random(LINEAR_DIM)
        tensors[f"{name}.out_proj.weight"] = random(HIDDEN, values)

    for index, kind in enumerate(LAYERS):
        block(f"model.layers.{index}", kind)
    block("mtp.layers.0", "full_attention")
    # The head passes the token's embedding on, as the lightly mixed target does, so that its
    # drafts are right now and then.
    tensors["mtp.fc.weight"] = torch.cat((torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)), 1)
    tensors["mtp.fc.weight"] += random(HIDDEN, 2 * HIDDEN)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        tensors[f"mtp.{name}.weight"] = random(HIDDEN)
    return tensors
