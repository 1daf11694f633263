"""One chunk of one sequence's prompt, in passes that end at absolute positions."""

from __future__ import annotations

import time
from dataclasses import dataclass

from specdec.core import Core
from specdec.drafter import Drafts
from specdec.judge import Judged, judge_rows
from specdec.request import Phase, Sequence, StepStats
from specdec.rows import Rows, join


@dataclass(frozen=True)
class Chunk:
    """``whole``: the last position was among those computed, and ``judged`` is its outcome (None
    where it is not finite). ``reused``: positions that the cache gave, told by the first chunk."""

    tokens: int
    reused: int
    whole: bool
    judged: Judged | None
    stats: StepStats


def next_tokens(core: Core, seq: Sequence) -> int:
    """Positions up to the next absolute multiple of the chunk size, or the last one."""
    chunk = core.info.prefill_chunk_tokens
    return min((seq.computed // chunk + 1) * chunk, seq.prefill_goal) - seq.computed


def prefill_chunk(core: Core, seq: Sequence) -> Chunk:
    """Compute the next chunk; the drafter and the cache learn of its rows."""
    assert seq.phase is Phase.PREFILL
    begin = time.perf_counter()
    first = seq.computed
    stop = first + next_tokens(core, seq)
    rows = _forward(core, seq, stop)
    whole = stop == seq.prefill_goal
    judged = None
    if whole:
        last = core.target.scores(rows.hidden[-1:])
        judged = judge_rows([seq], [Drafts()], last, core.info.eos_token_ids)[0]
    middle = time.perf_counter()
    if core.keeper is not None:
        core.keeper.after_chunk(seq, rows, core.drafter)
    if core.drafter is not None:
        core.drafter.prime(seq)
    if core.keeper is not None:
        core.keeper.publish(seq)
    stats = StepStats(prefill_s=middle - begin, priming_s=time.perf_counter() - middle)
    reused = first if first == seq.resumed_at else 0
    return Chunk(stop - first, reused, whole, judged, stats)


def _forward(core: Core, seq: Sequence, stop: int) -> Rows:
    """Rows up to position ``stop``; in one pass where prefill rows are exact."""
    pieces: list[Rows] = []
    while seq.computed < stop:
        begin, end = seq.computed, _piece_end(core, seq.computed, stop)
        pieces.append(core.forward([core.span(seq, seq.tokens(begin, end))]))
        seq.computed = end
        if core.drafter is not None:
            core.drafter.remember(seq, pieces[-1])
        if core.keeper is not None:
            core.keeper.after_piece(seq, begin, core.drafter)
    return join(pieces)


def _piece_end(core: Core, position: int, stop: int) -> int:
    """Where a pass from ``position`` ends: an absolute edge, whatever was computed before."""
    rows = core.info.invariance.prefill_rows
    edge = None if core.keeper is None else core.keeper.edge(position)
    return min(stop, (position // rows + 1) * rows, stop if edge is None else edge)
