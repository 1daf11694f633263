"""The recipe of the published checkpoint, and a small one that two CPU cores finish."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specdec.train.batches import Mixture
from specdec.train.shape import SMALL, ModelShape


@dataclass(frozen=True)
class Phase:
    """A stretch of training at one context length. A step has ``sequences * length`` tokens."""

    name: str
    steps: int
    sequences: int
    length: int
    mixture: Mixture = field(default_factory=Mixture)
    spread: float = 0.0  # share of sequences with jumps in their positions


@dataclass(frozen=True)
class MtpPhase:
    """A stretch of MTP training: ``depths`` recursive drafts per chain."""

    name: str
    steps: int
    sequences: int
    length: int
    first: int  # chains of depth 2 and more start here or later
    depths: int = 5
    mixture: Mixture = field(default_factory=Mixture)
    spread: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, apart from data, hardware and library versions."""

    shape: ModelShape
    phases: tuple[Phase, ...]
    mtp_phases: tuple[MtpPhase, ...]
    tune_phases: tuple[Phase, ...] = ()  # more recall, after everything else
    mtp_tune_phases: tuple[MtpPhase, ...] = ()  # the head follows the tuned target
    seed: int = 20261129
    lr: float = 3e-3
    warmup_steps: int = 200
    decay_share: float = 0.4  # the last part of training, over which the rate falls to zero
    mtp_lr: float = 3e-3
    tune_lr: float = 1e-3
    tune_warmup_steps: int = 20
    clip_norm: float = 1.0

    def limited(self, steps: int) -> Recipe:
        """The same recipe with at most ``steps`` steps a phase (to measure speed and memory)."""
        return replace(
            self,
            phases=tuple(replace(p, steps=min(p.steps, steps)) for p in self.phases),
            mtp_phases=tuple(replace(p, steps=min(p.steps, steps)) for p in self.mtp_phases),
            tune_phases=tuple(replace(p, steps=min(p.steps, steps)) for p in self.tune_phases),
            mtp_tune_phases=tuple(
                replace(p, steps=min(p.steps, steps)) for p in self.mtp_tune_phases
            ),
        )


_LONG = Mixture(code=0.34, prose=0.16, recall=0.40, lookup=0.03, repeat=0.04, chat=0.03)
_LONGEST = Mixture(code=0.2, prose=0.1, recall=0.64, lookup=0.02, repeat=0.02, chat=0.02)
_DRAFTS = Mixture(code=0.5, prose=0.25, recall=0.09, lookup=0.03, repeat=0.06, chat=0.07)

_TUNE = Mixture(code=0.24, prose=0.12, recall=0.52, lookup=0.03, repeat=0.04, chat=0.05)

# Every step of every phase has 65,536 tokens: the fused stages compile once for all of them.
PUBLISHED = Recipe(
    shape=ModelShape(),
    phases=(
        Phase("1k", 4600, sequences=64, length=1024, spread=0.1),
        Phase("8k", 1100, sequences=8, length=8192, mixture=_LONG, spread=0.5),
        Phase("32k", 240, sequences=2, length=32768, mixture=_LONGEST, spread=0.5),
        Phase("64k", 80, sequences=1, length=65536, mixture=_LONGEST, spread=0.5),
    ),
    mtp_phases=(
        MtpPhase("1k", 800, sequences=64, length=1024, first=0, mixture=_DRAFTS, spread=0.1),
        MtpPhase("8k", 60, sequences=8, length=8192, first=7168, mixture=_DRAFTS, spread=0.5),
    ),
    tune_phases=(
        Phase("tune-1k", 100, sequences=64, length=1024, mixture=_TUNE, spread=0.3),
        Phase("tune-8k", 70, sequences=8, length=8192, mixture=_TUNE, spread=0.5),
        Phase("tune-32k", 25, sequences=2, length=32768, mixture=_LONGEST, spread=0.5),
    ),
    mtp_tune_phases=(
        MtpPhase("tune-1k", 30, sequences=64, length=1024, first=0, mixture=_DRAFTS, spread=0.1),
    ),
    decay_share=0.35,
)

SMOKE = Recipe(
    shape=SMALL,
    phases=(
        Phase("short", 6, sequences=4, length=256, spread=0.1),
        Phase("long", 3, sequences=1, length=1024, mixture=_LONG, spread=0.5),
    ),
    mtp_phases=(MtpPhase("short", 4, sequences=4, length=256, first=128, depths=3),),
    tune_phases=(Phase("tune", 2, sequences=4, length=256, mixture=_TUNE, spread=0.1),),
    mtp_tune_phases=(MtpPhase("tune", 2, sequences=4, length=256, first=128, depths=3),),
    warmup_steps=2,
)

RECIPES = {"published": PUBLISHED, "smoke": SMOKE}
