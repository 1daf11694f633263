"""The shapes of the two block drafters trained for the target, and their ``config.json``.

Names, layout and defaults follow the public DFlash2 and DSpark checkpoints; the target layers are
theirs (5, 19, 33, 47, 61 and 4, 16, 28, 40, 52 of 64) scaled down to eight layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["dflash2", "dspark"]


@dataclass(frozen=True)
class DrafterShape:
    """Sizes of one drafter. ``block`` counts its rows: the anchor and the masks after it.

    A DFlash2 row proposes the token at its own position, so the anchor's row proposes nothing; a
    DSpark row proposes the token after its position, so every row does. ``window``: positions that
    a row sees, its own among them; None for all.
    """

    kind: Kind
    taps: tuple[int, ...]
    block: int
    window: int | None
    vocab: int = 4096
    hidden: int = 256
    target_layers: int = 8
    layers: int = 5
    mlp: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 10_000_000.0
    norm_eps: float = 1e-6
    max_positions: int = 1_048_576
    mask_token: int = 4083
    rank: int = 64  # of the selector's codebooks, or of the Markov head
    top_k: int = 16
    conv_taps: int = 2
    conv_group: int = 16

    @property
    def first(self) -> int:
        """The first row that proposes a token."""
        return 1 if self.kind == "dflash2" else 0

    @property
    def drafts(self) -> int:
        """Tokens that a block proposes."""
        return self.block - self.first

    def hf_config(self) -> dict[str, Any]:
        """``config.json``: the keys of the public checkpoint of this kind."""
        sliding = self.window is not None
        common: dict[str, Any] = {
            "model_type": "qwen3",
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
            "is_causal": False,
            "layer_types": ["sliding_attention" if sliding else "full_attention"] * self.layers,
            "sliding_window": self.window,
            "use_sliding_window": sliding,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "num_target_layers": self.target_layers,
            "tie_word_embeddings": False,
        }
        own = {"mask_token_id": self.mask_token, "target_layer_ids": list(self.taps)}
        if self.kind == "dflash2":
            selector = {"selector_rank": self.rank, "selector_top_k": self.top_k}
            conv = {"conv_kernel_size": self.conv_taps, "conv_group_size": self.conv_group}
            return {
                "architectures": ["DFlash2DraftModel"],
                **common,
                "dflash_config": {"block_size": self.block, **conv, **own, **selector},
            }
        return {
            "architectures": ["DSparkDraftModel"],
            **common,
            "block_size": self.block,
            "markov_rank": self.rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
            "dflash_config": {"attention_mode": "gqa", "projector_type": "dspark", **own},
        }


DFLASH2 = DrafterShape("dflash2", taps=(0, 2, 4, 5, 7), block=8, window=1024)
DSPARK = DrafterShape("dspark", taps=(0, 2, 3, 5, 6), block=7, window=None)
SHAPES: dict[Kind, DrafterShape] = {"dflash2": DFLASH2, "dspark": DSPARK}
