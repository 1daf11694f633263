"""DFlash2: one pass over a block of masks, then a walk through each position's best candidates.

Row i of a block stands at the anchor's position + i and proposes the token there, so the anchor's
row proposes nothing and a block of b rows gives b - 1 drafts. Candidates are the best ids under the
target's own head; which of them follow each other is the selector's to say (``selector.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.block_backbone import BlockBackbone
from specdec.block_drafter import BlockDrafter
from specdec.block_memory import ContextRows, RingRows, SharedRows, ring_stride
from specdec.contract import RunnerInfo
from specdec.draft_config import BlockConfig, DraftTree, read_block_config
from specdec.draft_facts import DraftFacts
from specdec.draft_tensors import backbone_tensors, read_draft_tensors
from specdec.drafter import Drafts, TargetSide
from specdec.plan import BLOCK
from specdec.request import Sequence
from specdec.selector import Selector, Walk
from specdec.state import ModelState
from specdec.tensors import Expected

ARCHITECTURE = "DFlash2DraftModel"
MOST_DRAFTS = BLOCK - 1  # the anchor and its drafts span two blocks of the recurrence at most


@dataclass(frozen=True)
class DFlash2Config:
    """``block`` and what DFlash2 adds. ``multiplier`` and ``cap`` act on the candidates' logits
    before the selector (a cap of None: none)."""

    block: BlockConfig
    vocab: int
    conv_taps: int
    conv_group: int
    rank: int
    top_k: int
    multiplier: float
    cap: float | None


def read_dflash2_config(tree: DraftTree, side: TargetSide) -> DFlash2Config:
    """The tree's config; misfits are noted in ``tree.problems``."""
    target = side.config
    block = read_block_config(tree, target, side.positions, same_rope=True)
    own = (tree.nested, tree.root)
    config = DFlash2Config(
        block=block,
        vocab=target.vocab_size,
        conv_taps=tree.number("conv_kernel_size", *own),
        conv_group=tree.number("conv_group_size", *own),
        rank=tree.number("selector_rank", *own),
        top_k=tree.number("selector_top_k", *own),
        multiplier=_factor("output_multiplier", *own) or 1.0,
        cap=_factor("final_logit_softcapping", *own),
    )
    tree.must(block.window is not None, "sliding_window is missing: every layer must slide")
    tree.must(
        block.hidden % config.conv_group == 0,
        f"conv_group_size {config.conv_group} does not divide hidden_size {block.hidden}",
    )
    tree.must(
        config.conv_taps <= block.block,
        f"conv_kernel_size {config.conv_taps} is beyond a block of {block.block}",
    )
    tree.must(
        config.top_k <= config.vocab,
        f"selector_top_k {config.top_k} is beyond the vocabulary of {config.vocab}",
    )
    tree.must(
        block.block - 1 <= MOST_DRAFTS,
        f"block_size is {block.block}, a pass verifies at most {MOST_DRAFTS} drafts",
    )
    steps = side.options.draft_steps
    tree.must(
        steps is None or steps < block.block,
        f"a block of {block.block} gives {block.block - 1} drafts, --draft-steps asks for {steps}",
    )
    return config


def dflash2_tensors(config: DFlash2Config) -> Iterator[Expected]:
    """The backbone's tensors, and those of convolutions and selector."""
    block = config.block
    yield from backbone_tensors(block)
    kernels = 2 * config.conv_taps * (block.hidden // config.conv_group)
    for index in range(block.layers):
        for name in ("attention_conv", "mlp_conv"):
            at = f"layers.{index}.{name}."
            yield Expected(f"{at}base_kernel", (2, config.conv_taps, block.hidden))
            yield Expected(f"{at}kernel_projection.weight", (kernels, block.hidden))
    at = "candidate_selector."
    yield Expected(f"{at}predecessor_codebook", (config.vocab, config.rank))
    yield Expected(f"{at}successor_codebook", (config.vocab, config.rank))
    yield Expected(f"{at}hidden_projection.weight", (config.rank, block.hidden))


def load_dflash2(folder: Path, side: TargetSide) -> DFlash2Model:
    """Read and check a checkpoint. Raises CheckpointError with every fault."""
    tree = DraftTree(folder, ARCHITECTURE)
    config = read_dflash2_config(tree, side)
    tree.finish()
    tensors = read_draft_tensors(tree, dflash2_tensors(config), side.device)
    return DFlash2Model(folder, config, tensors, side)


class DFlash2Model:
    """A checkpoint that passed, ready to be given a memory."""

    def __init__(
        self, folder: Path, config: DFlash2Config, tensors: dict[str, Tensor], side: TargetSide
    ) -> None:
        self._config = config
        self._side = side
        self._backbone = BlockBackbone(config.block, tensors, side, config.conv_group)
        at = "candidate_selector."
        self._selector = Selector(
            tensors[f"{at}predecessor_codebook"],
            tensors[f"{at}successor_codebook"],
            tensors[f"{at}hidden_projection.weight"],
            self._backbone.products,
        )
        block, options = config.block, side.options
        assert block.window is not None
        ring = options.draft_kv == "ring"
        shapes = self._backbone.kv_shapes
        self._stride = ring_stride(block.window, block.block, options.page_size)
        rows = options.max_running_requests * self._stride if ring else 0
        numbers = sum(2 * shape.heads * shape.dim for shape in shapes) + block.hidden
        self.facts = DraftFacts(
            name=ARCHITECTURE,
            most=options.draft_steps or block.block - 1,
            taps=block.taps,
            logprobs=False,
            pool_kv=() if ring else shapes,
            own_rows=rows,
            own_bytes=4 * rows * numbers,
            folder=folder,
            parameters=sum(tensor.numel() for tensor in tensors.values()),
            tensors=len(tensors),
            block_size=block.block,
            window=block.window,
            mask_token=block.mask_token,
            kv_kind=options.draft_kv,
        )

    def drafter(self, state: ModelState, info: RunnerInfo) -> DFlash2Drafter:
        block, side = self._config.block, self._side
        memory: ContextRows
        if side.options.draft_kv == "ring":
            assert block.window is not None
            memory = RingRows(
                self._backbone.kv_shapes, block.hidden, block.window, self._stride,
                info.max_running_requests, side.device,
            )  # fmt: skip
        else:
            memory = SharedRows(state.drafter, info.page_size)
        return DFlash2Drafter(
            self.facts, self._backbone, self._selector, memory, self._config, side
        )


class DFlash2Drafter(BlockDrafter):
    """Chooses a block's tokens by the selector."""

    def __init__(
        self,
        facts: DraftFacts,
        backbone: BlockBackbone,
        selector: Selector,
        memory: ContextRows,
        config: DFlash2Config,
        side: TargetSide,
    ) -> None:
        super().__init__(facts, backbone, memory, side.options.adaptive, side.device)
        self._selector = selector
        self._config = config
        self._shared = side.shared

    def choose(self, seqs: Seq[Sequence], hidden: Tensor, widths: Seq[int]) -> list[Drafts]:
        rows = torch.cat([hidden[i, 1 : 1 + width] for i, width in enumerate(widths)])
        starts = [sum(widths[:i]) for i in range(len(widths))]
        scores = self._shared.scores(rows)
        finite, _ = scores.best()
        drafts = [
            Drafts(nonfinite=finite[start : start + width].count(False))
            for start, width in zip(starts, widths, strict=True)
        ]
        good = [i for i, mine in enumerate(drafts) if not mine.nonfinite]
        if not good:
            return drafts
        if len(good) < len(seqs):  # a broken row is no row to look for candidates in
            found = self.choose([seqs[i] for i in good], hidden[good], [widths[i] for i in good])
            for i, mine in zip(good, found, strict=True):
                drafts[i] = mine
            return drafts
        unary, ids = scores.top(self._config.top_k)
        unary, projected = self._scaled(unary), self._selector.project(rows)
        walk = Walk(self._selector, seqs, self._config.vocab)
        before = torch.tensor([seq.token_at(seq.computed) for seq in seqs], device=ids.device)
        active = list(range(len(seqs)))
        for depth in range(max(widths)):
            going = [row for row, i in enumerate(active) if widths[i] > depth]
            active = [active[row] for row in going]
            at = [starts[i] + depth for i in active]
            before = walk.step(active, before[going], projected[at], unary[at], ids[at])
        for i, mine in enumerate(drafts):
            mine.tokens, mine.proposals = walk.tokens[i], walk.proposals[i]
        return drafts

    def _scaled(self, unary: Tensor) -> Tensor:
        unary = unary * self._config.multiplier
        cap = self._config.cap
        return unary if cap is None else cap * torch.tanh(unary / cap)


def _factor(key: str, *places: dict[str, Any]) -> float | None:
    """A number that is declared in one of the places and not zero."""
    found = [place[key] for place in places if place.get(key)]
    return float(found[0]) if found else None
