"""The training loops: deterministic data, restartable state, a wall-clock limit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from specdec.train.batches import Batch, BatchPlan
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead, MtpStages, unroll
from specdec.train.optim import Optimisers
from specdec.train.recipe import MtpPhase, Phase, Recipe
from specdec.train.stages import Stages, project, stages
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

AnyPhase = TypeVar("AnyPhase", Phase, MtpPhase)


@dataclass(frozen=True)
class Place:
    """Where things lie and what they run on."""

    data: Path
    state: Path
    log: Path
    device: torch.device
    workers: int
    deadline: float  # time.monotonic() at which to save and stop

    def note(self, **fields: Any) -> None:
        line = json.dumps(fields)
        print(line, flush=True)
        with self.log.open("a") as handle:
            handle.write(line + "\n")


def cross_entropy(
    hidden: Tensor, head: Tensor, targets: Tensor, weights: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(weighted mean loss, plain mean loss) of rows [N, hidden] for targets [N]."""
    logits = project(hidden, head, dtype).float()
    loss = logits.logsumexp(-1) - logits.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)
    weights = weights.float()
    return (loss * weights).sum() / weights.sum(), loss.detach().mean()


def rate_factor(step: int, total: int, recipe_warmup: int, decay_share: float) -> float:
    """Learning-rate factor: linear warm-up, constant, linear decay to zero."""
    decay_steps = max(1, int(total * decay_share))
    return min(1.0, (step + 1) / max(1, recipe_warmup), (total - step) / decay_steps)


def batches(
    place: Place, recipe: Recipe, phase: Phase | MtpPhase, kind: str, start: int
) -> Iterator[Batch]:
    """Batches ``start`` and on of one phase."""
    plan = BatchPlan(
        place.data,
        place.data / "tokenizer.json",
        mixture=phase.mixture,
        sequences=phase.sequences,
        length=phase.length,
        spread=phase.spread,
        position_limit=recipe.shape.max_positions,
        seed=f"{recipe.seed}/{kind}/{phase.name}",
        steps=phase.steps,
    )
    loader = DataLoader(
        Subset(plan, range(start, phase.steps)),
        batch_size=None,
        num_workers=place.workers,
        prefetch_factor=4 if place.workers else None,
    )
    for batch in loader:
        yield batch.to(place.device)


def locate(phases: tuple[AnyPhase, ...], step: int) -> Iterator[tuple[AnyPhase, int]]:
    """The phases still to run from a global step on, each with its first local step."""
    for phase in phases:
        if step < phase.steps:
            yield phase, max(0, step)
        step -= phase.steps


def save_state(path: Path, module: nn.Module, optimisers: Optimisers, step: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    torch.save(
        {"module": module.state_dict(), "optimisers": optimisers.state_dict(), "step": step}, fresh
    )
    fresh.replace(path)


def load_state(path: Path, module: nn.Module, optimisers: Optimisers, device: torch.device) -> int:
    """Resume from a saved state; 0 when there is none. Weights alone are accepted too."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=False)
    module.load_state_dict(state["module"])
    if "optimisers" in state:
        optimisers.load_state_dict(state["optimisers"])
    return int(state["step"])


def _train(
    place: Place,
    recipe: Recipe,
    kind: str,
    phases: tuple[AnyPhase, ...],
    module: nn.Module,
    lr: float,
    warmup: int,
    loss_of: Callable[[AnyPhase, Batch], tuple[Tensor, dict[str, Tensor]]],
) -> bool:
    """Run the phases to their end (True) or to the deadline (False)."""
    optimisers = Optimisers.make(module, lr)
    path = place.state / f"{kind}.pt"
    step = load_state(path, module, optimisers, place.device)
    total = sum(phase.steps for phase in phases)
    decay = recipe.decay_share if kind in ("target", "mtp") else 0.9
    began, tokens, last = time.monotonic(), 0, step
    totals: dict[str, Tensor | float] = {}
    for phase, start in locate(phases, step):
        edges = (step + 2, step + phase.steps - start)  # after warm-up, and at the phase's end
        for batch in batches(place, recipe, phase, kind, start):
            loss, shown = loss_of(phase, batch)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(module.parameters(), recipe.clip_norm)
            optimisers.step(rate_factor(step, total, warmup, decay))
            step += 1
            tokens += batch.weights.numel()
            for name, value in {**shown, "grad_norm": norm}.items():
                totals[name] = (
                    totals.get(name, torch.zeros((), device=place.device)) + value.detach()
                )
            due = step - last >= 50 or step in edges
            late = (step % 10 == 0 or phase.length > 8192) and time.monotonic() > place.deadline
            if due or late:
                figures = {
                    name: round(float(value) / (step - last), 4) for name, value in totals.items()
                }
                if not all(math.isfinite(value) for value in figures.values()):
                    raise FloatingPointError(
                        f"Step {step} of {kind} gave {figures}; nothing saved."
                    )
                rate = round(tokens / (time.monotonic() - began))
                place.note(kind=kind, phase=phase.name, step=step, **figures, tokens_per_s=rate)
                totals, began, tokens, last = {}, time.monotonic(), 0, step
            if late:
                save_state(path, module, optimisers, step)
                return False
        save_state(path, module, optimisers, step)
        began = time.monotonic()
    return True


def train_target(
    place: Place,
    recipe: Recipe,
    model: HybridModel,
    run: Stages,
    compiled: bool,
    tune: bool = False,
) -> bool:
    """Train the target (or tune it); True when its last step is done."""
    model.requires_grad_(True)
    loss_stage = torch.compile(cross_entropy, dynamic=False) if compiled else cross_entropy

    def loss_of(phase: Phase, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch.ids[:, :-1], batch.positions, run)
        head = model.model.embed_tokens.weight
        loss, plain = loss_stage(
            hidden, head, batch.ids[:, 1:].flatten(), batch.weights.flatten(), model.dtype
        )
        return loss, {"loss": loss, "plain_loss": plain}

    if tune:
        phases, lr, warmup = recipe.tune_phases, recipe.tune_lr, recipe.tune_warmup_steps
        return _train(place, recipe, "tune", phases, model, lr, warmup, loss_of)
    lr, warmup = recipe.lr, recipe.warmup_steps
    return _train(place, recipe, "target", recipe.phases, model, lr, warmup, loss_of)


def train_mtp(
    place: Place,
    recipe: Recipe,
    model: HybridModel,
    head: MtpHead,
    run: Stages,
    mtp_run: MtpStages,
    tune: bool = False,
) -> bool:
    """Train (or tune) the MTP head on the frozen target's own distribution."""
    model.requires_grad_(False)
    plain, plain_mtp = stages(False), MtpStages.make(False)

    def loss_of(phase: MtpPhase, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        # A windowed phase has other shapes and is short: compiling for it would not pay.
        result = unroll(
            model,
            head,
            batch.ids,
            batch.positions,
            depths=phase.depths,
            first=phase.first,
            run=plain if phase.first else run,
            mtp_run=plain_mtp if phase.first else mtp_run,
            target_run=run,
        )
        loss = torch.stack(result.losses).mean()
        shown = {f"agree_{depth + 1}": value for depth, value in enumerate(result.agreement)}
        return loss, {"loss": loss, **shown}

    if tune:
        phases, lr, warmup = recipe.mtp_tune_phases, recipe.tune_lr, recipe.tune_warmup_steps
        return _train(place, recipe, "mtp-tune", phases, head, lr, warmup, loss_of)
    lr, warmup = recipe.mtp_lr, recipe.warmup_steps
    return _train(place, recipe, "mtp", recipe.mtp_phases, head, lr, warmup, loss_of)
