"""What a scheduler may ask of the engine's core. ``runner.Runner`` is the implementation.

The loop a scheduler runs::

    runner = Runner.load(model_dir, RunnerOptions(mode="mtp"))
    seq = runner.new_sequence("r1", prompt_ids, params)      # RequestRefused: a 400, now
    if runner.can_admit(seq):
        runner.admit(seq)                                    # takes a slot and the prompt's pages
    runner.prefill_step([seq])                               # one chunk; repeat while PREFILL
    while runner.pages_short(decoding) > 0:
        runner.retract(decoding.pop())                       # youngest first; it goes back to wait
    runner.decode_step(decoding)                             # one visible step for the batch

The runner is single-threaded: one thread calls it, and no method blocks on anything but compute.

What is promised, and in which terms
------------------------------------
Every row's arithmetic depends on the tokens before it and on its absolute position, never on the
rows that travel with it, on the chunk size, on the pages it got or on whether it came by prefill,
decode or verify. So the *bits* of the state (KV rows, recurrent state, convolution rows) after
token i are the same in all modes, batches and chunkings, and after a retraction. This rests on
matrix products whose rows are independent of their number; ``RunnerInfo.invariance`` says what
the self-check at start found on this machine. Where it reports that only the decode rows agree
(``prefill_exact`` false), the promise after a retraction is of token ids, up to ties closer than
rounding, and no longer of bits. Sampled requests draw by (seed, position): a retraction repeats
their draws too.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from specdec.draft_facts import DraftFacts
from specdec.request import Finish, SamplingParams, Sequence, StepResult

Mode = Literal["target-only", "mtp", "dflash2", "dspark"]
DraftKv = Literal["shared", "ring"]
Fp8Weights = Literal["stored", "expanded"]
KvDtype = Literal["float32", "fp8"]

DENSE_STEP = 256  # positions between recurrent snapshots up to DENSE_LIMIT
DENSE_LIMIT = 4096


@dataclass(frozen=True)
class RunnerOptions:
    """Launch-time settings; none of them changes a greedy answer but ``kv_cache_dtype`` (FP8 keys
    and values are rounded) and ``attention_window`` (0: none; the newest positions that a row sees
    beside the first ``attention_sink_tokens``).

    ``draft_steps`` counts drafts only, without the anchor (1 to 7); None means 3 for MTP and the
    checkpoint's whole block for others. ``draft_model``: folder of the draft checkpoint (modes
    dflash2 and dspark). ``draft_kv``: whether a block drafter's rows lie beside the target's in
    the pool or in a private ring for each slot. ``max_total_tokens`` is the KV
    pool in tokens (rounded down to whole pages); None means ``max_running_requests`` times the
    context length, at most 65,536. ``context_length`` None means the checkpoint's own.
    ``prefix_cache`` is off here, so that whoever measures the core measures computing; the server
    turns it on. ``snapshot_interval``: positions between recurrent snapshots beyond the first
    4,096, a multiple of 8, 0 for none there.
    """

    mode: Mode = "target-only"
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    draft_steps: int | None = None
    draft_model: Path | None = None
    draft_kv: DraftKv = "shared"
    adaptive: bool = False
    prefill_chunk_tokens: int = 512
    max_total_tokens: int | None = None
    max_running_requests: int = 8
    context_length: int | None = None
    page_size: int = 64
    random_seed: int = 0
    threads: int | None = None  # CPU threads of wide passes (prefill); None: torch's own number
    prefix_cache: bool = False
    snapshot_interval: int = 4096
    max_snapshots: int = 256
    max_snapshot_bytes: int = 1 << 30
    tp_size: int = 1  # ranks that share the model
    tp_timeout_s: float = 120.0  # the longest that one rank may keep the others waiting
    fp8_weights: Fp8Weights = "stored"  # expanded: held in full, faster on a CPU
    kv_cache_dtype: KvDtype = "float32"
    attention_window: int = 0
    attention_sink_tokens: int = 0


@dataclass(frozen=True)
class Invariance:
    """What the self-check at start found about row independence on this machine.

    ``decode_exact``: decode and verify rows are bitwise the same at every batch size and width.
    ``prefill_exact``: prefill rows are too. ``row_quantum``: products run on multiples of this
    many rows. ``prefill_rows``: rows of one prefill tile. ``shares_exact``: outputs of a product
    are bitwise the same when ranks share them; None with one rank.
    """

    decode_exact: bool
    prefill_exact: bool
    row_quantum: int
    prefill_rows: int
    detail: str
    shares_exact: bool | None = None


@dataclass(frozen=True)
class RunnerInfo:
    """Facts for ``/model_info``, ``/server_info`` and the start-up log."""

    model_path: Path
    architecture: str
    mode: Mode
    device: str
    dtype: str
    vocab_size: int
    context_length: int
    eos_token_ids: frozenset[int]
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    state_bytes_per_slot: int  # recurrent state and convolution rows together
    conv_bytes_per_slot: int  # the convolution rows' part of it
    max_total_tokens: int
    max_running_requests: int
    page_size: int
    draft_steps: int
    adaptive: bool
    prefill_chunk_tokens: int
    invariance: Invariance
    prefix_cache: bool = False
    tp_size: int = 1  # bytes above are of one rank
    draft: DraftFacts | None = None  # in every mode that drafts
    layers: int | None = None  # of the target, as they were built
    kv_cache_dtype: KvDtype = "float32"
    weight_scale_bytes: int = 0  # of weights in FP8 blocks, not among weight_bytes


@dataclass(frozen=True)
class CacheSize:
    """What the prefix cache holds now, and tokens evicted since the start. ``idle_pages`` are read
    by no running sequence."""

    pages: int = 0
    idle_pages: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    evicted_tokens: int = 0


@dataclass(frozen=True)
class RankParity:
    """Whether all ``ranks`` committed the same tokens, and how many were compared with each."""

    ranks: int
    tokens: int
    equal: bool


class PagePool(Protocol):
    """KV accounting in tokens; a page belongs to exactly one sequence, or to the prefix cache."""

    @property
    def page_size(self) -> int: ...

    @property
    def total_tokens(self) -> int: ...

    @property
    def free_tokens(self) -> int:
        """Tokens in pages that nobody holds."""
        ...

    @property
    def evictable_tokens(self) -> int:
        """Tokens in cached pages that no sequence reads: as good as free."""
        ...

    @property
    def used_tokens(self) -> int:
        """Tokens in pages that sequences hold or read."""
        ...

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page is free or owned exactly once."""
        ...


class DecodeRunner(Protocol):
    """The engine's core as a scheduler sees it."""

    @classmethod
    def load(cls, model_dir: Path, options: RunnerOptions) -> DecodeRunner:
        """Read a checkpoint strictly and prepare it. Raises CheckpointError."""
        ...

    @property
    def info(self) -> RunnerInfo: ...

    @property
    def pool(self) -> PagePool: ...

    @property
    def free_slots(self) -> int: ...

    @property
    def cache_size(self) -> CacheSize:
        """What the prefix cache holds; all zero without one."""
        ...

    @property
    def rank_parity(self) -> RankParity | None:
        """None where one rank runs the model."""
        ...

    def flush_cache(self) -> None:
        """Forget every snapshot, and every page that no running sequence reads."""
        ...

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page and snapshot is owned once and counts add up."""
        ...

    def new_sequence(
        self,
        request_id: str,
        prompt_ids: Seq[int],
        params: SamplingParams,
        cache_key: Hashable = None,
    ) -> Sequence:
        """Check a request and wrap it; takes nothing. Raises RequestRefused for an empty prompt,
        an unknown token id, parameters out of range, or input + output beyond the context length
        or the whole pool."""
        ...

    def can_admit(self, seq: Sequence) -> bool:
        """A slot is free, and pages for all present tokens and one more."""
        ...

    def admit(self, seq: Sequence) -> None:
        """WAITING to PREFILL: takes a slot and those pages. Raises PoolExhausted."""
        ...

    def next_prefill_tokens(self, seq: Sequence) -> int:
        """How many positions the next ``prefill_step`` would compute for it."""
        ...

    def prefill_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        """One chunk for each sequence, up to the next absolute multiple of the chunk size.

        The chunk that reaches the last position samples the first token (``tokens`` has one id,
        phase DECODE). After a retraction it samples nothing: generated tokens are fed again as
        part of the input and the sequence simply continues.
        """
        ...

    def pages_short(self, seqs: Seq[Sequence]) -> int:
        """Pages missing for one decode step of all ``seqs``, 0 if it can run. Drafts never make it
        positive: a step proposes fewer when the pool is tight."""
        ...

    def decode_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        """One visible step: draft, verify, accept, commit; results in the order of ``seqs``.

        Each running sequence gains at least one token. A sequence with non-finite draft or target
        logits ends with ``Finish("abort", message=...)``. Raises PoolExhausted before any change.
        """
        ...

    def retract(self, seq: Sequence) -> None:
        """Back to WAITING: gives back slot and pages, keeps output and counters, counts it."""
        ...

    def release(self, seq: Sequence, finish: Finish) -> None:
        """End a sequence in any phase (abort, stop string) and give back what it holds; a second
        call does nothing."""
        ...

    def trim(self, seq: Sequence, tokens: int) -> None:
        """Discard the last ``tokens`` output ids of a finished sequence (a stop string matched
        before them); they are counted in W."""
        ...

    def close(self) -> None:
        """Give back processes and devices; nothing is called after it."""
        ...
