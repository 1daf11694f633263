"""The multi-token-prediction head: one full-attention layer over [embedding, hidden].

Row i joins the embedding of token i + 1 with the target's final-normalised hidden row i and
predicts token i + 2. Its keys and values have the target's positions and pages, in rows of their
own. The recursion feeds back the layer's normalised output in the hidden row's place (sources:
Qwen3.5's ``mtp.*`` tensors as SGLang's and vLLM's predictors use them).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specdec.config import ModelConfig
from specdec.layers.attention import Attention
from specdec.layers.linear import Products
from specdec.layers.norm import rms_norm
from specdec.model import Shared, Shell, mixer_weights, part
from specdec.parallel.joined import Joined
from specdec.parallel.scores import Scores
from specdec.plan import AttentionJob
from specdec.state import KvState


class MtpHead:
    """Stateless; its keys and values live in ``ModelState.drafter``."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: dict[str, Tensor],
        products: Products,
        shared: Shared,
    ) -> None:
        own = part(tensors, "mtp.")
        layer = part(own, "layers.0.")
        self._eps = config.rms_norm_eps
        self._shared = shared
        self._embedding_norm = own["pre_fc_norm_embedding.weight"] + 1.0
        self._hidden_norm = own["pre_fc_norm_hidden.weight"] + 1.0
        self._norm = own["norm.weight"] + 1.0
        self._fc = Joined(own["fc.weight"], products, spread=False)
        self._shell = Shell(config, layer, products)
        self._attention = Attention(
            config, mixer_weights(layer, "self_attn."), products, shared.rope
        )

    def prime(
        self, next_ids: Tensor, hidden: Tensor, positions: Tensor, kv_rows: Tensor, kv: KvState
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Write the rows' keys and values: all that later drafts need of them.

        ``next_ids`` [rows]: the token after each row; ``hidden`` [rows, hidden]. Returns the
        layer's input, queries and gates for whoever goes on to ``predict`` some of the rows.
        """
        self._shared.threads.use_for(len(next_ids))
        embedded = rms_norm(self._shared.embed(next_ids), self._embedding_norm, self._eps)
        x = self._fc(torch.cat((embedded, rms_norm(hidden, self._hidden_norm, self._eps)), 1))
        cos, sin = self._shared.rope.rows(positions)
        queries, keys, values, gates = self._attention.project(self._shell.enter(x), cos, sin)
        kv.write(kv_rows, keys, values)
        return x, queries, gates

    def predict(
        self, x: Tensor, queries: Tensor, gates: Tensor, jobs: Seq[AttentionJob], kv: KvState
    ) -> tuple[Tensor, Scores]:
        """Finish rows that ``prime`` began: (next hidden [rows, hidden], logits)."""
        mixed = self._attention.attend(queries, gates, jobs, kv, self._shared.mask)
        hidden = rms_norm(self._shell.leave(x, mixed), self._norm, self._eps)
        return hidden, self._shared.scores(hidden)
