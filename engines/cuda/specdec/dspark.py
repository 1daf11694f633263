"""DSpark: one pass over a block of masks, then each position's logits biased by the token before.

Row i of a block stands at the anchor's position + i and proposes the token *after* it, so every row
proposes one and a block of b rows gives b drafts:

    logits of draft i + 1 = head(h_i) + W2 W1[draft i],  draft 0 being the anchor

The checkpoint's block is proposed whole or not at all: with fewer tokens than that left, steps are
ordinary ones. The confidence head's sigmoid(w [h_i ; W1[draft i]] + b) is reported and decides
nothing, as neither checkpoint nor its published use gives it a threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specdec.block_backbone import BlockBackbone
from specdec.block_drafter import BlockDrafter
from specdec.block_memory import SharedRows
from specdec.contract import RunnerInfo
from specdec.draft_config import BlockConfig, DraftTree, read_block_config
from specdec.draft_facts import DraftFacts
from specdec.draft_tensors import backbone_tensors, read_draft_tensors
from specdec.drafter import Drafts, TargetSide
from specdec.layers.linear import Products, Projection
from specdec.plan import BLOCK
from specdec.request import Sequence
from specdec.sampling import Purpose, distribution, draw, uniform
from specdec.state import ModelState
from specdec.tensors import Expected

ARCHITECTURE = "DSparkDraftModel"
MOST_DRAFTS = BLOCK - 1  # the anchor and its drafts span two blocks of the recurrence at most


@dataclass(frozen=True)
class DSparkConfig:
    """``block`` and the rank of the Markov head."""

    block: BlockConfig
    vocab: int
    rank: int


def read_dspark_config(tree: DraftTree, side: TargetSide) -> DSparkConfig:
    """The tree's config; misfits are noted in ``tree.problems``. Rotary settings are its own."""
    block = read_block_config(tree, side.config, side.positions, same_rope=False)
    places, must = (tree.root, tree.nested), tree.must
    config = DSparkConfig(block, side.config.vocab_size, tree.number("markov_rank", *places))

    def word(key: str) -> object:
        return tree.root.get(key, tree.nested.get(key))

    kind = word("markov_head_type")
    must(kind == "vanilla", f"markov_head_type is {kind!r}, only 'vanilla' is served")
    must(word("enable_confidence_head") is True, "enable_confidence_head must be true")
    must(word("confidence_head_with_markov") is True, "confidence_head_with_markov must be true")
    must(
        block.block <= MOST_DRAFTS,
        f"block_size is {block.block}, a pass verifies at most {MOST_DRAFTS} drafts",
    )
    options = side.options
    must(
        options.draft_steps in (None, block.block),
        f"its block of {block.block} drafts is fixed, --draft-steps asks for {options.draft_steps}",
    )
    must(not options.adaptive, "its block is fixed, --draft-adaptive cannot narrow it")
    must(
        options.draft_kv == "shared",
        "--draft-kv ring is for a drafter whose every layer slides; use --draft-kv shared",
    )
    return config


def dspark_tensors(config: DSparkConfig) -> Iterator[Expected]:
    """The backbone's tensors, the Markov head's two and the confidence head's two."""
    yield from backbone_tensors(config.block)
    yield Expected("markov_head.markov_w1.weight", (config.vocab, config.rank))
    yield Expected("markov_head.markov_w2.weight", (config.vocab, config.rank))
    yield Expected("confidence_head.proj.weight", (1, config.block.hidden + config.rank))
    yield Expected("confidence_head.proj.bias", (1,))


def load_dspark(folder: Path, side: TargetSide) -> DSparkModel:
    """Read and check a checkpoint. Raises CheckpointError with every fault."""
    tree = DraftTree(folder, ARCHITECTURE)
    config = read_dspark_config(tree, side)
    tree.finish()
    tensors = read_draft_tensors(tree, dspark_tensors(config), side.device)
    return DSparkModel(folder, config, tensors, side)


class MarkovHead:
    """What the token before adds to a position's logits, and the confidence in what follows."""

    def __init__(self, tensors: dict[str, Tensor], products: Products) -> None:
        self._before = tensors["markov_head.markov_w1.weight"]
        self._bias = Projection(tensors["markov_head.markov_w2.weight"], products)
        self._weight = tensors["confidence_head.proj.weight"][0]
        self._offset = tensors["confidence_head.proj.bias"]

    def step(self, before: Tensor, logits: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Ids before the position [n], the backbone's logits [n, vocabulary] and rows [n, hidden]
        of it: biased logits, and the confidence [n], 0 to 1."""
        embedded = self._before[before]
        sure = (torch.cat((hidden, embedded), 1) * self._weight).sum(1) + self._offset
        return logits + self._bias(embedded), sure.sigmoid()


class DSparkModel:
    """A checkpoint that passed, ready to be given a memory."""

    def __init__(
        self, folder: Path, config: DSparkConfig, tensors: dict[str, Tensor], side: TargetSide
    ) -> None:
        self._side = side
        self._backbone = BlockBackbone(config.block, tensors, side)
        self._head = MarkovHead(tensors, self._backbone.products)
        block = config.block
        self.facts = DraftFacts(
            name=ARCHITECTURE,
            most=block.block,
            taps=block.taps,
            pool_kv=self._backbone.kv_shapes,
            folder=folder,
            parameters=sum(tensor.numel() for tensor in tensors.values()),
            tensors=len(tensors),
            block_size=block.block,
            window=block.window,
            mask_token=block.mask_token,
            kv_kind="shared",
        )

    def drafter(self, state: ModelState, info: RunnerInfo) -> DSparkDrafter:
        memory = SharedRows(state.drafter, info.page_size)
        return DSparkDrafter(self.facts, self._backbone, self._head, memory, self._side)


class DSparkDrafter(BlockDrafter):
    """Chooses a block's tokens one after another by the Markov head."""

    def __init__(
        self,
        facts: DraftFacts,
        backbone: BlockBackbone,
        head: MarkovHead,
        memory: SharedRows,
        side: TargetSide,
    ) -> None:
        super().__init__(facts, backbone, memory, False, side.device)
        self._head = head
        self._shared = side.shared

    def wanted(self, seq: Sequence) -> int:
        """The whole block where it and the target's own token still fit, else none."""
        most = self.facts.most
        return most if seq.remaining > most else 0

    def choose(self, seqs: Seq[Sequence], hidden: Tensor, widths: Seq[int]) -> list[Drafts]:
        """Only a tight pool makes ``widths`` less than the block, which is then cut short."""
        count, rows = hidden.shape[:2]
        logits = self._shared.scores(hidden.flatten(0, 1)).whole().view(count, rows, -1)
        drafts = [Drafts() for _ in seqs]
        before = torch.tensor([seq.token_at(seq.computed) for seq in seqs], device=logits.device)
        active = list(range(count))
        for depth in range(max(widths)):
            going = [row for row, i in enumerate(active) if widths[i] > depth]
            going = [row for row in going if not drafts[active[row]].nonfinite]
            if not going:
                break
            active = [active[row] for row in going]
            biased, sure = self._head.step(
                before[going], logits[active, depth], hidden[active, depth]
            )
            before = self._take(seqs, active, biased, sure, drafts)
        return drafts

    def _take(
        self,
        seqs: Seq[Sequence],
        active: Seq[int],
        logits: Tensor,
        sure: Tensor,
        drafts: Seq[Drafts],
    ) -> Tensor:
        """Add a token to the drafts of ``active``; their ids [n], 0 where logits are not finite."""
        finite, best = torch.isfinite(logits).all(1).tolist(), logits.argmax(1).tolist()
        confidences = sure.tolist()
        chosen: list[int] = []
        for row, i in enumerate(active):
            seq, mine = seqs[i], drafts[i]
            if not finite[row]:
                mine.nonfinite += 1
                chosen.append(0)
                continue
            token = best[row]
            if seq.params.temperature > 0:
                proposal = distribution(logits[row], seq.params)
                position = seq.total_tokens + len(mine.tokens)
                token = draw(proposal, uniform(seq.seed, position, Purpose.DRAFT))
                mine.proposals.append(proposal)
            mine.tokens.append(token)
            mine.confidences.append(confidences[row])
            chosen.append(token)
        return torch.tensor(chosen, device=logits.device)
