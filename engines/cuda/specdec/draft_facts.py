"""What a draft model says of itself. Free of torch: the server reads it, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KvShape:
    """Keys and values of one draft layer that has a row for every row of the pool."""

    heads: int
    dim: int


@dataclass(frozen=True)
class DraftFacts:
    """What a draft model says of itself, for the runner and for ``/server_info``.

    ``name``: the class that its checkpoint declares. ``most``: drafts of a full proposal, without
    the anchor. ``taps``: target layers whose rows it wants. ``follows``: its row of a position
    also depends on the token after it, so that pages are shared only where that token agrees.
    ``logprobs``: requests may ask for log-probabilities. ``pool_kv``: its layers with a row for
    each row of the pool. ``own_rows``: rows of a memory of its own, of all slots together, and
    ``own_bytes`` what they take.
    """

    name: str
    most: int
    taps: tuple[int, ...] = ()
    follows: bool = False
    logprobs: bool = True
    pool_kv: tuple[KvShape, ...] = ()
    own_rows: int = 0
    own_bytes: int = 0
    folder: Path | None = None
    parameters: int = 0
    tensors: int = 0
    block_size: int | None = None
    window: int | None = None
    mask_token: int | None = None
    kv_kind: str | None = None
