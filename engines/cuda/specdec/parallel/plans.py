"""What rank 0 tells the others to do, and what they answer.

Every rank holds the same sequences, pages and cache entries, each with its own share of the heads,
so a plan names sequences by the numbers under which rank 0 admitted them and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from specdec.contract import RunnerOptions
from specdec.request import Finish, SamplingParams


@dataclass(frozen=True)
class Begin:
    """Who a rank is, at which file it meets the others, and what it loads."""

    rank: int
    size: int
    meeting: Path
    model: Path
    options: RunnerOptions
    log_level: str


@dataclass(frozen=True)
class NewSequence:
    """A request that was checked; ``params`` carries the seed."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    cache_key: Hashable


@dataclass(frozen=True)
class Admit:
    """``new`` at the first admission, None after a retraction."""

    number: int
    new: NewSequence | None


@dataclass(frozen=True)
class Prefill:
    """One chunk of each; answered with a ``Report``."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Decode:
    """One step of all; answered with a ``Report``."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Retract:
    number: int


@dataclass(frozen=True)
class Release:
    number: int
    finish: Finish


@dataclass(frozen=True)
class Flush:
    """Forget what requests left behind, then check."""


@dataclass(frozen=True)
class End:
    """Leave."""


Plan = Admit | Prefill | Decode | Retract | Release | Flush | End


@dataclass(frozen=True)
class Ready:
    """A rank has come up to the point that rank 0 waits for."""


@dataclass(frozen=True)
class Report:
    """What a step gave on one rank: each sequence's new tokens, and what is left of the pool."""

    tokens: tuple[tuple[int, ...], ...]
    free_tokens: int
    free_slots: int


@dataclass(frozen=True)
class Failure:
    """A rank cannot go on."""

    sentence: str


Answer = Ready | Report | Failure
