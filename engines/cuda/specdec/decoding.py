"""One visible step of a batch: how many drafts, which, and what the target makes of them."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from specdec.core import Core
from specdec.drafter import Drafts
from specdec.judge import Judged, judge_rows
from specdec.request import Phase, Sequence, StepStats
from specdec.speculate import step_counts


@dataclass(frozen=True)
class Decoded:
    """One sequence's part of a step; ``judged`` is None where logits were not finite, the
    drafter's if ``stats`` counts any."""

    judged: Judged | None
    stats: StepStats


def decode_batch(core: Core, seqs: Seq[Sequence]) -> list[Decoded]:
    """Draft, verify, accept; sequences move on by what they commit. Pages must suffice for one row
    of each."""
    assert all(seq.phase is Phase.DECODE for seq in seqs)
    begin = time.perf_counter()
    drafts = _propose(core, seqs, _widths(core, seqs))
    middle = time.perf_counter()
    running = [i for i, mine in enumerate(drafts) if not mine.nonfinite]
    found = _verify(core, [seqs[i] for i in running], [drafts[i] for i in running])
    judged = dict(zip(running, found, strict=True))
    seconds = StepStats(draft_s=middle - begin, verify_s=time.perf_counter() - middle)
    return [_count(core, seq, drafts[i], judged.get(i), seconds) for i, seq in enumerate(seqs)]


def _widths(core: Core, seqs: Seq[Sequence]) -> list[int]:
    """Drafts to propose for each sequence, and pages for all of the step's rows."""
    for seq in seqs:
        core.seats.grow(seq, seq.total_tokens)
    if core.drafter is None:
        return [0 for _ in seqs]
    return [core.seats.grow_for_drafts(seq, core.drafter.wanted(seq)) for seq in seqs]


def _propose(core: Core, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
    drafts = [Drafts() for _ in seqs]
    drafting = [i for i, width in enumerate(widths) if width]
    if core.drafter is not None and drafting:
        found = core.drafter.propose([seqs[i] for i in drafting], [widths[i] for i in drafting])
        for i, mine in zip(drafting, found, strict=True):
            drafts[i] = mine
    return drafts


def _verify(core: Core, seqs: list[Sequence], drafts: list[Drafts]) -> list[Judged | None]:
    """One target forward over every sequence's anchor and drafts; None: not finite."""
    if not seqs:
        return []
    rows = core.forward(
        [
            core.span(seq, [seq.token_at(seq.computed), *mine.tokens])
            for seq, mine in zip(seqs, drafts, strict=True)
        ]
    )
    scores = core.target.scores(rows.hidden)
    found = judge_rows(seqs, drafts, scores, core.info.eos_token_ids)
    first = 0
    for seq, mine, judged in zip(seqs, drafts, found, strict=True):
        if judged is not None:
            kept = rows.cut(first, first + len(judged.done.visible))
            seq.computed += len(kept)
            if core.drafter is not None:
                core.drafter.remember(seq, kept)
            if core.keeper is not None:
                core.keeper.after_step(seq, len(kept), core.drafter)
        first += 1 + len(mine.tokens)
    return found


def _count(
    core: Core, seq: Sequence, mine: Drafts, judged: Judged | None, seconds: StepStats
) -> Decoded:
    if judged is None:
        return Decoded(None, replace(seconds, nonfinite_draft_logits=mine.nonfinite))
    proposed = len(mine.tokens)
    if core.drafter is not None:
        core.drafter.learn(seq, proposed, judged.done.correct)
    counts = step_counts(judged.done, proposed)
    stats = replace(
        counts,
        draft_s=seconds.draft_s,
        verify_s=seconds.verify_s,
        confidences=tuple(mine.confidences),
    )
    return Decoded(judged, stats)
