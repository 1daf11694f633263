"""The drafters' training loop: both on one pass of the target, restartable, bounded in time."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from specdec.train.continuations import Round
from specdec.train.drafter_blocks import draw_anchors, look, loss_of
from specdec.train.drafter_heads import DFlash2, DSpark
from specdec.train.loop import Place, load_state, rate_factor, save_state
from specdec.train.model import HybridModel
from specdec.train.optim import Optimisers
from specdec.train.stages import Stages
from torch import nn

MOST_ANCHORS = 256  # a sequence; more would stand at the same tokens
TABLES = ("embed", "codebook", "markov")  # rows by token: AdamW's, not Muon's


@dataclass(frozen=True)
class DraftRecipe:
    """What decides the weights besides the data. A step has ``tokens`` context rows in sequences
    of one round, and ``blocks`` blocks spread over the first ``reach`` tokens of continuation."""

    steps: int = 1320
    tokens: int = 32_768
    blocks: int = 4096
    reach: int = 320
    lr: float = 3e-3
    warmup: int = 60
    decay_share: float = 0.6
    clip_norm: float = 1.0
    seed: int = 20261130


class Timetable:
    """Fits the number of steps to the time there is, so that the rate still falls to zero.

    Speed counts from step 30 on (what comes first compiles); it is looked at again at each
    doubling of the steps done.
    """

    def __init__(self, place: Place, seconds: float, first: int) -> None:
        self._place, self._end, self._first = place, time.monotonic() + seconds, first
        self._begin: float | None = None
        self._next = 60

    def fit(self, recipe: DraftRecipe, step: int) -> DraftRecipe:
        """Called before each step; the recipe with as many steps as will do."""
        done = step - self._first
        if math.isinf(self._end) or done not in (30, self._next):
            return recipe
        if self._place.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.monotonic()
        if self._begin is None:
            self._begin = now
            return recipe
        self._next *= 2
        pace = (now - self._begin) / (done - 30)
        steps = step + max(1, int((self._end - now) / pace))
        self._place.note(kind="drafters", step=step, steps=steps, step_s=round(pace, 4))
        return replace(recipe, steps=steps)


def batches(rounds: list[Path], recipe: DraftRecipe, start: int) -> Iterator[Round]:
    """Batch after batch from step ``start`` on: a round by its size, then sequences of it."""
    held = [Round.load(path) for path in rounds]
    sizes = [round_.ids.numel() for round_ in held]
    step = start
    while True:
        rng = random.Random(f"{recipe.seed}/batch/{step}")
        chosen = held[rng.choices(range(len(held)), sizes)[0]]
        count = max(1, min(len(chosen.ids), recipe.tokens // chosen.ids.shape[1]))
        rows = torch.tensor(rng.sample(range(len(chosen.ids)), count))
        yield Round(chosen.ids[rows], chosen.positions[rows], chosen.starts[rows])
        step += 1


class Learner:
    """One drafter with its optimisers and its running figures."""

    def __init__(self, drafter: DFlash2 | DSpark, recipe: DraftRecipe) -> None:
        self.drafter, self.recipe = drafter, recipe
        self.optimisers = Optimisers.make(drafter, recipe.lr, TABLES)
        self.totals: dict[str, torch.Tensor] = {}

    @property
    def kind(self) -> str:
        return self.drafter.shape.kind

    def learn(self, loss: torch.Tensor, shown: dict[str, torch.Tensor], factor: float) -> None:
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.drafter.parameters(), self.recipe.clip_norm)
        self.optimisers.step(factor)
        for name, value in {"loss": loss.detach(), **shown, "grad_norm": norm}.items():
            self.totals[name] = self.totals.get(name, torch.zeros_like(value)) + value

    def figures(self, steps: int) -> dict[str, float]:
        """Means since the last call. Raises FloatingPointError if one is not finite."""
        found = {name: round(float(total) / steps, 4) for name, total in self.totals.items()}
        self.totals = {}
        if not all(math.isfinite(value) for value in found.values()):
            raise FloatingPointError(f"{self.kind} gave {found}; nothing saved.")
        return found


def train_drafters(
    place: Place,
    recipe: DraftRecipe,
    model: HybridModel,
    drafters: list[DFlash2 | DSpark],
    rounds: list[Path],
    run: Stages,
    seconds: float = math.inf,
) -> bool:
    """Train to the last step (True) or to the deadline (False).

    With ``seconds`` the number of steps is fitted to the time.
    """
    model.requires_grad_(False)
    embedding = model.model.embed_tokens.weight.detach()
    taps = {layer for drafter in drafters for layer in drafter.shape.taps}
    learners = [Learner(drafter, recipe) for drafter in drafters]
    step = min(load(place, learner) for learner in learners)
    last, timetable = step, Timetable(place, seconds, step)
    for batch in batches(rounds, recipe, step):
        recipe = timetable.fit(recipe, step)
        if step >= recipe.steps:
            break
        count = max(1, min(MOST_ANCHORS, recipe.blocks // len(batch.ids)))
        generator = torch.Generator().manual_seed(recipe.seed + step)
        anchors = draw_anchors(batch, count, recipe.reach, generator).to(place.device)
        ids, positions = (x.to(place.device) for x in (batch.ids, batch.positions))
        seen = look(model, ids, positions, run, taps)
        factor = rate_factor(step, recipe.steps, recipe.warmup, recipe.decay_share)
        for learner in learners:
            learner.learn(*loss_of(learner.drafter, embedding, seen, anchors), factor)
        step += 1
        late = step % 10 == 0 and time.monotonic() > place.deadline
        if step % 50 == 0 or step == recipe.steps or late:
            for learner in learners:
                place.note(kind=learner.kind, step=step, **learner.figures(step - last))
            last = step
        if late:
            break
    keep(place, learners, step)
    return step >= recipe.steps


def load(place: Place, learner: Learner) -> int:
    path = place.state / f"{learner.kind}.pt"
    return load_state(path, learner.drafter, learner.optimisers, place.device)


def keep(place: Place, learners: list[Learner], step: int) -> None:
    for learner in learners:
        path = place.state / f"{learner.kind}.pt"
        save_state(path, learner.drafter, learner.optimisers, step)
