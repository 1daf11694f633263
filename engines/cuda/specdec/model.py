"""The target: embedding, hybrid layers, final norm and head."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.config import LINEAR, ModelConfig
from specdec.layers.attention import Attention
from specdec.layers.causal import CausalMask
from specdec.layers.deltanet import DeltaNet
from specdec.layers.linear import Products, projection
from specdec.layers.mlp import Mlp
from specdec.layers.norm import rms_norm
from specdec.layers.rope import RopeTable
from specdec.layers.sliding import SlidingMask
from specdec.layers.threads import Threads
from specdec.parallel.scores import Scores
from specdec.plan import Pass
from specdec.rows import Rows
from specdec.state import DeltaState, KvState, ModelState


class Shared:
    """What the target and its drafter have in common: embedding, head, rotary table, mask."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: dict[str, Tensor],
        products: Products,
        positions: int,
        threads: Threads,
        device: torch.device,
        window: int = 0,
        sinks: int = 0,
    ) -> None:
        self.threads = threads
        self._ranks = products.ranks
        self.embedding = tensors["embed_tokens.weight"]
        head = tensors["embed_tokens.weight" if config.tied else "lm_head.weight"]
        self.head = projection([head], products)
        self.rope = RopeTable(positions, config.rotary_dim, config.rope_theta, device, config.yarn)
        group = config.num_attention_heads // config.num_key_value_heads
        self.mask = (
            SlidingMask(group, device, window, sinks) if window else CausalMask(group, device)
        )

    def embed(self, token_ids: Tensor) -> Tensor:
        """[rows] to [rows, hidden]."""
        if self._ranks is None:
            return F.embedding(token_ids, self.embedding)
        # Each rank looks up its own ids and takes the others' rows from who has them.
        owner, own = token_ids // len(self.embedding), token_ids % len(self.embedding)
        every = self._ranks.gather(F.embedding(own, self.embedding))
        return every[owner, torch.arange(len(token_ids), device=owner.device)]

    def scores(self, hidden: Tensor) -> Scores:
        """Logits of [rows, hidden] (final-normalised)."""
        return Scores(self.head(hidden), self._ranks)


class Shell:
    """What stands around a mixer: two norms and the MLP."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], products: Products) -> None:
        self._eps = config.rms_norm_eps
        self._before = weights["input_layernorm.weight"] + 1.0
        self._between = weights["post_attention_layernorm.weight"] + 1.0
        self._mlp = Mlp(
            weights["mlp.gate_proj.weight"],
            weights["mlp.up_proj.weight"],
            weights["mlp.down_proj.weight"],
            products,
        )

    def enter(self, x: Tensor) -> Tensor:
        return rms_norm(x, self._before, self._eps)

    def leave(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the mixer's output and the MLP's: [rows, hidden]."""
        x = x + mixed
        return x + self._mlp(rms_norm(x, self._between, self._eps))


class Target:
    """The whole target. Stateless: a ``ModelState`` holds what it remembers.

    It takes its layers' tensors out of ``tensors``, so that no more than one layer is held twice
    while it is fused.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: dict[str, Tensor],
        products: Products,
        shared: Shared,
    ) -> None:
        self._eps = config.rms_norm_eps
        self._shared = shared
        self._norm = tensors["norm.weight"] + 1.0
        self._layers: list[tuple[Shell, DeltaNet | Attention]] = []
        for index, kind in enumerate(config.layer_types):
            weights = part(tensors, f"layers.{index}.")
            for name in weights:
                del tensors[f"layers.{index}.{name}"]
            mixer = (
                DeltaNet(config, mixer_weights(weights, "linear_attn."), products, shared.threads)
                if kind == LINEAR
                else Attention(config, mixer_weights(weights, "self_attn."), products, shared.rope)
            )
            self._layers.append((Shell(config, weights, products), mixer))

    @property
    def layers(self) -> int:
        """How many were built, whatever the configuration says."""
        return len(self._layers)

    def hidden(self, plan: Pass, state: ModelState) -> Tensor:
        """Run a pass: final-normalised hidden rows [rows, hidden]; ``state`` moves on."""
        return self.rows(plan, state).hidden

    def rows(self, plan: Pass, state: ModelState, taps: Seq[int] = ()) -> Rows:
        """Run a pass; beside the hidden rows those behind the layers ``taps``, which are only
        looked at: the same arithmetic runs with and without them."""
        shared = self._shared
        shared.threads.use_for(plan.rows)
        x = shared.embed(plan.token_ids)
        cos, sin = shared.rope.rows(plan.positions)
        tapped: dict[int, Tensor] = {}
        for index, ((shell, mixer), memory) in enumerate(
            zip(self._layers, state.layers, strict=True)
        ):
            entered = shell.enter(x)
            if isinstance(mixer, DeltaNet):
                assert isinstance(memory, DeltaState)
                mixed = mixer(entered, plan, memory)
            else:
                assert isinstance(memory, KvState)
                queries, keys, values, gates = mixer.project(entered, cos, sin)
                memory.write(plan.kv_rows, keys, values)
                mixed = mixer.attend(queries, gates, plan.attention, memory, shared.mask)
            x = shell.leave(x, mixed)
            if index in taps:
                tapped[index] = x
        kept = torch.cat([tapped[index] for index in taps], 1) if taps else None
        return Rows(rms_norm(x, self._norm, self._eps), kept)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] (final-normalised) to [rows, vocabulary], whole on every rank."""
        return self.scores(hidden).whole()

    def scores(self, hidden: Tensor) -> Scores:
        """The same wherever each id's logits lie: what is asked of them is one collective."""
        return self._shared.scores(hidden)


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, named without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def mixer_weights(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """A mixer's tensors by bare name: ``q_proj``, ``A_log``, …"""
    return {name.removesuffix(".weight"): t for name, t in part(weights, prefix).items()}
