"""The target's own greedy continuations: the text that drafters learn on.

A round is many sequences of one length. Each begins with a stretch of training text, at whose end
(or, in generated question-and-answer text, at the start of one of the answers) the target takes
over until the round's length is reached.
"""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from specdec.train.batches import Corpus, Mixture, sequence, spread_positions
from specdec.train.model import HybridModel
from specdec.train.recall import Encode, Ids
from specdec.train.stepping import Stepper
from specdec.train.vocabulary import Encoder
from torch import Tensor

LEAST_PROMPT = 32
DRAFTS = Mixture(code=0.5, prose=0.25, recall=0.09, lookup=0.03, repeat=0.06, chat=0.07)


@dataclass(frozen=True)
class Plan:
    """One kind of round: sequences of ``length`` tokens, of which at least ``fresh`` are the
    target's own."""

    length: int
    sequences: int
    fresh: int = 256
    mixture: Mixture = field(default_factory=lambda: DRAFTS)
    spread: float = 0.1  # share of sequences with jumps in their positions


@dataclass(frozen=True)
class Round:
    """ids, positions [sequences, length] int32; starts [sequences]: where the target took over."""

    ids: Tensor
    positions: Tensor
    starts: Tensor

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        torch.save((self.ids, self.positions, self.starts), fresh)
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> Round:
        return cls(*torch.load(path, map_location="cpu"))


def take_over(rng: random.Random, weights: NDArray[np.uint8]) -> int:
    """Where the continuation begins: an answer's first token where there are answers."""
    answers = np.flatnonzero((weights[1:] > 1) & (weights[:-1] <= 1)) + 1
    answers = answers[answers >= LEAST_PROMPT]
    if len(answers) and rng.random() < 0.8:
        return int(rng.choice(answers.tolist()))
    return len(weights) - rng.randrange(max(1, min(64, len(weights) - LEAST_PROMPT)))


class PromptPlan(torch.utils.data.Dataset[Round]):
    """``plan[i]``: prompts of round i (the rest of ``ids`` is zero), a function of the seed.

    Rounds take the plans in turn.
    """

    def __init__(
        self, folder: Path, plans: Seq[Plan], rounds: int, seed: str, position_limit: int
    ) -> None:
        self.folder, self.plans, self.rounds = folder, plans, rounds
        self.seed, self.position_limit = seed, position_limit
        self.corpus = Corpus.load(folder)
        self._encode: Encoder | None = None

    def __len__(self) -> int:
        return self.rounds

    def __getitem__(self, index: int) -> Round:
        if self._encode is None:  # made in the worker: tokenizers do not survive a fork well
            self._encode = Encoder(self.folder / "tokenizer.json")
        plan = self.plans[index % len(self.plans)]
        rng = random.Random(f"{self.seed}/{index}")
        ids = np.zeros((plan.sequences, plan.length), np.int32)
        positions = np.tile(np.arange(plan.length, dtype=np.int32), (plan.sequences, 1))
        starts = np.empty(plan.sequences, np.int32)
        for row in range(plan.sequences):
            text, starts[row] = prompt(rng, plan, self.corpus, self._encode)
            ids[row, : len(text)] = text
            if rng.random() < plan.spread:
                positions[row] = spread_positions(rng, plan.length, self.position_limit)
        return Round(*(torch.from_numpy(part) for part in (ids, positions, starts)))


def prompt(rng: random.Random, plan: Plan, corpus: Corpus, encode: Encode) -> tuple[Ids, int]:
    """Text of ``plan.length - plan.fresh`` tokens and where in it the target takes over."""
    kind = plan.mixture.draw(rng)
    ids, weights = sequence(rng, kind, plan.length - plan.fresh, corpus, encode)
    return ids, take_over(rng, weights)


@torch.no_grad()
def continue_round(model: HybridModel, given: Round) -> Round:
    """Replace everything from ``starts`` on by the target's greedy choices."""
    device = model.model.embed_tokens.weight.device
    ids, positions, starts = (x.to(device) for x in (given.ids, given.positions, given.starts))
    ids = ids.clone()
    count, length = ids.shape
    stepper = Stepper(model, count, length)
    first = int(given.starts.min())
    for place in range(length - 1):
        hidden = stepper.step(ids[:, place], positions[:, place])
        if place + 1 >= first:
            chosen = model.logits(hidden).argmax(-1).to(ids.dtype)
            ids[:, place + 1] = torch.where(starts <= place + 1, chosen, ids[:, place + 1])
    return Round(ids.cpu(), given.positions, given.starts)
