"""Training batches as a pure function of (seed, phase, step): restarts repeat the same data."""

from __future__ import annotations

import functools
import lzma
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from specdec.train.chat import chat_sequence
from specdec.train.recall import Encode, Ids, lookup_sequence, recall_sequence, repeat_sequence
from specdec.train.vocabulary import Encoder
from torch import Tensor

_GENERATORS = {
    "recall": recall_sequence,
    "lookup": lookup_sequence,
    "repeat": repeat_sequence,
    "chat": chat_sequence,
}


@dataclass(frozen=True)
class Mixture:
    """Relative weight of each kind of sequence."""

    code: float = 0.55
    prose: float = 0.2
    recall: float = 0.1
    lookup: float = 0.03
    repeat: float = 0.06
    chat: float = 0.06

    def draw(self, rng: random.Random) -> str:
        kinds = tuple(vars(self))
        return rng.choices(kinds, [vars(self)[kind] for kind in kinds])[0]


@dataclass(frozen=True)
class Corpus:
    """The training streams: documents of one domain joined by end-of-text tokens."""

    code: Ids
    prose: Ids

    @classmethod
    @functools.lru_cache(maxsize=1)  # seconds of unpacking that every phase would repeat
    def load(cls, folder: Path) -> Corpus:
        return cls(*(read_stream(folder / f"{name}.u16.xz") for name in ("code", "prose")))

    def slice(self, rng: random.Random, domain: str, length: int) -> Ids:
        """``length`` consecutive tokens from a random place."""
        stream: Ids = getattr(self, domain)
        if length >= len(stream):
            stream = np.tile(stream, length // len(stream) + 1)
        start = rng.randrange(len(stream) - length) if len(stream) > length else 0
        return stream[start : start + length]


def write_stream(path: Path, ids: Ids) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(ids.astype("<u2").tobytes(), preset=9))


def read_stream(path: Path) -> Ids:
    return np.frombuffer(lzma.decompress(path.read_bytes()), dtype="<u2").astype(np.uint16)


@dataclass(frozen=True)
class Batch:
    """ids [B, T+1]; weights [B, T] of the targets ids[:, 1:]; positions [B, T]."""

    ids: Tensor
    weights: Tensor
    positions: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(
            *(x.to(device, non_blocking=True) for x in (self.ids, self.weights, self.positions))
        )

    def pinned(self) -> Batch:
        return Batch(self.ids.pin_memory(), self.weights.pin_memory(), self.positions.pin_memory())


def spread_positions(rng: random.Random, length: int, limit: int) -> NDArray[np.int32]:
    """Increasing positions with a few jumps, so that far rotary phases are seen in short text."""
    positions = np.arange(length, dtype=np.int64)
    room = max(1, limit - length)
    for _ in range(rng.randint(1, 6)):
        jump = int(min(room, 2 ** rng.uniform(4, np.log2(room + 1))))
        positions[rng.randrange(length) :] += jump
        room = max(1, room - jump)
    return positions.astype(np.int32)


def sequence(
    rng: random.Random, kind: str, length: int, corpus: Corpus, encode: Encode
) -> tuple[Ids, NDArray[np.uint8]]:
    """Exactly ``length`` tokens of one kind with their loss weights."""
    if kind in ("code", "prose"):
        return corpus.slice(rng, kind, length), np.ones(length, np.uint8)
    domain = "prose" if rng.random() < 0.65 else "code"
    ids, weights = _GENERATORS[kind](rng, length, encode, lambda n: corpus.slice(rng, domain, n))
    missing = length - len(ids)
    if missing > 0:
        ids = np.concatenate([ids, corpus.slice(rng, domain, missing)])
        weights = np.concatenate([weights, np.ones(missing, np.uint8)])
    return ids, weights


class BatchPlan(torch.utils.data.Dataset[Batch]):
    """``plan[step]`` is the batch of that step of one phase."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Path,
        *,
        mixture: Mixture,
        sequences: int,
        length: int,
        spread: float,
        position_limit: int,
        seed: str,
        steps: int,
    ) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        self.mixture, self.sequences, self.length = mixture, sequences, length
        self.spread, self.position_limit = spread, position_limit
        self.seed, self.steps = seed, steps
        self.corpus = Corpus.load(folder)
        self._encode: Encoder | None = None

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        if self._encode is None:  # made in the worker: tokenizers do not survive a fork well
            self._encode = Encoder(self.tokenizer)
        rng = random.Random(f"{self.seed}/{step}")
        ids = np.empty((self.sequences, self.length + 1), np.int64)
        weights = np.empty((self.sequences, self.length), np.uint8)
        positions = np.tile(np.arange(self.length, dtype=np.int32), (self.sequences, 1))
        for row in range(self.sequences):
            kind = self.mixture.draw(rng)
            tokens, weight = sequence(rng, kind, self.length + 1, self.corpus, self._encode)
            ids[row], weights[row] = tokens, weight[1:]
            if rng.random() < self.spread:
                positions[row] = spread_positions(rng, self.length, self.position_limit)
        return Batch(
            torch.from_numpy(ids.astype(np.int32)),
            torch.from_numpy(weights),
            torch.from_numpy(positions),
        )
