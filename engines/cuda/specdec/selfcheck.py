"""At start: does the whole model keep its rows independent on this machine, with these weights?

One short sequence of random tokens is computed in three ways (in one prefill pass; row by row
alone; in verify passes of changing width among other sequences) and the logits compared bit by bit.
A wide attention, too wide for a short sequence to show, is compared on its own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.config import ModelConfig
from specdec.contract import Invariance, KvDtype
from specdec.layers.attention import ROW_MULTIPLE
from specdec.layers.linear import Products
from specdec.model import Target
from specdec.plan import BLOCK, KV_BLOCK, Span, plan_pass
from specdec.state import ModelState

PROMPT = 50
LENGTH = 110  # crosses a KV block's edge, and the recurrence's every eighth position
WIDTHS = (1, 4, 8, 2, 7, 3, 5)
NEIGHBOURS = 2
ATTENTION_WIDTH = 2048


def check_rows(
    target: Target,
    config: ModelConfig,
    products: Products,
    device: torch.device,
    kv_dtype: KvDtype = "float32",
) -> Invariance:
    """Run the comparison in a throw-away state. See ``Invariance`` for what is reported."""
    prefill, alone, batched = (
        _Rehearsal(target, config, device, kv_dtype).run(kind)
        for kind in ("prefill", "alone", "batched")
    )
    decode_exact = torch.equal(alone[PROMPT:], batched[PROMPT:])
    wide = wide_attention_is_exact(config, device)
    prefill_exact = decode_exact and wide and torch.equal(prefill, alone)
    worst = float((prefill - alone).abs().max())
    quantum = products.tile_rows or 1
    detail = (
        f"products: {products.kind}; decode rows {'equal' if decode_exact else 'NOT equal'} in "
        f"every width and batch tried; prefill rows {'equal' if prefill_exact else 'NOT equal'} "
        f"to decode rows (largest logit difference {worst:.3g}); "
        f"attention over {ATTENTION_WIDTH} rows {'equal' if wide else 'NOT equal'}"
    )
    # Passes of decode's shape repair prefill only where decode rows agree among themselves.
    rows = BLOCK if decode_exact and not prefill_exact else 0
    return Invariance(decode_exact, prefill_exact, quantum, rows, detail)


def wide_attention_is_exact(config: ModelConfig, device: torch.device) -> bool:
    """Whether attention rows over a long cache are the same in windows of every size.

    On CUDA there is one size only (``layers/attention.py``).
    """
    if device.type != "cpu":
        return True
    generator = torch.Generator().manual_seed(2)
    shape = (1, config.num_key_value_heads, ATTENTION_WIDTH, config.head_dim)
    keys, values = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
    queries = torch.randn(
        (*shape[:2], KV_BLOCK * ROW_MULTIPLE, config.head_dim), generator=generator
    )
    mask = torch.zeros(KV_BLOCK * ROW_MULTIPLE, ATTENTION_WIDTH, device=device)

    def attend(rows: int) -> Tensor:
        part = queries[:, :, :rows].to(device).contiguous()
        return F.scaled_dot_product_attention(part, keys, values, attn_mask=mask[:rows])

    few = attend(ROW_MULTIPLE)
    return all(
        torch.equal(attend(rows)[:, :, :ROW_MULTIPLE], few)
        for rows in (2 * ROW_MULTIPLE, 5 * ROW_MULTIPLE, KV_BLOCK * ROW_MULTIPLE)
    )


class _Rehearsal:
    """A few sequences in a state of their own; the first one's logits are kept."""

    def __init__(
        self, target: Target, config: ModelConfig, device: torch.device, kv_dtype: KvDtype
    ) -> None:
        self._target = target
        self._device = device
        self._taps = config.conv_kernel - 1
        blocks = -(-LENGTH // KV_BLOCK)
        sequences = 1 + NEIGHBOURS
        self._pages = [list(range(i * blocks, (i + 1) * blocks)) for i in range(sequences)]
        rows = sequences * blocks * KV_BLOCK
        self._state = ModelState(config, sequences, rows, (), device, kv_dtype)
        generator = torch.Generator().manual_seed(1)
        shape = (sequences, LENGTH)
        self._ids = torch.randint(config.vocab_size, shape, generator=generator).tolist()
        self._at = [0] * sequences

    def run(self, kind: str) -> Tensor:
        if kind == "prefill":
            return self._step([(0, LENGTH)])
        kept = [self._step([(0, PROMPT)])]
        for neighbour in range(1, 1 + NEIGHBOURS):
            self._step([(neighbour, PROMPT - 11 * neighbour)])
        turn = 0
        while self._at[0] < LENGTH:
            if kind == "alone":
                kept.append(self._step([(0, 1)]))
                continue
            width = min(WIDTHS[turn % len(WIDTHS)], LENGTH - self._at[0])
            others = [(n, WIDTHS[(turn + n) % len(WIDTHS)]) for n in range(1, 1 + NEIGHBOURS)]
            others = [(n, rows) for n, rows in others if self._at[n] + rows <= LENGTH]
            kept.append(self._step([(0, width), *others]))
            turn += 1
        return torch.cat(kept)

    def _step(self, parts: list[tuple[int, int]]) -> Tensor:
        spans = [
            Span(n, self._pages[n], self._at[n], self._ids[n][self._at[n] : self._at[n] + rows])
            for n, rows in parts
        ]
        plan = plan_pass(spans, KV_BLOCK, self._taps, self._device)
        hidden = self._target.hidden(plan, self._state)
        for n, rows in parts:
            self._at[n] += rows
        return self._target.logits(hidden[: parts[0][1]])
