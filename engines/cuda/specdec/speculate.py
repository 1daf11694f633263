"""The accept step: which drafts the target confirms, and what of them becomes visible.

Pure functions of token ids and probabilities; nothing here touches state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor

from specdec.request import StepStats
from specdec.sampling import Purpose, draw


@dataclass(frozen=True)
class Verdict:
    """The longest confirmed prefix of the drafts, and the target's own token after it."""

    correct: int
    token: int


@dataclass(frozen=True)
class Commit:
    """What a step commits: ``visible`` tokens, how many drafts count as correct (none past a stop
    token), tokens trimmed, whether drafts were rejected, and the stop token met, if any."""

    visible: tuple[int, ...]
    correct: int
    trimmed: int
    rejected: bool
    stop: int | None


def accept_greedy(drafts: Seq[int], targets: Seq[int]) -> Verdict:
    """``targets[i]``: the target's choice after the anchor and i drafts; one more than drafts."""
    correct = 0
    while correct < len(drafts) and drafts[correct] == targets[correct]:
        correct += 1
    return Verdict(correct, targets[correct])


def accept_sampled(
    drafts: Seq[int],
    proposals: Seq[Tensor],
    targets: Seq[Tensor],
    number: Callable[[int, Purpose], float],
) -> Verdict:
    """Rejection sampling: each token is distributed as the target alone would have it.

    ``proposals[i]`` and ``targets[i]``: the distributions [vocabulary] at the i-th new position, as
    the drafter drew from it and as the target has it (one more target than drafts). Draft d is kept
    with probability min(1, p(d) / q(d)); the first one refused is replaced by a draw from the
    positive part of p - q (Leviathan et al. 2023; Chen et al. 2023).
    """
    for i, draft in enumerate(drafts):
        p, q = targets[i], proposals[i]
        if number(i, Purpose.ACCEPT) * float(q[draft]) < float(p[draft]):
            continue
        residual = (p - q).clamp_(min=0.0)
        # p == q up to rounding leaves nothing over; then p itself is the answer.
        source = residual if float(residual.sum()) > 0.0 else p
        return Verdict(i, draw(source, number(i, Purpose.TARGET)))
    last = len(drafts)
    return Verdict(last, draw(targets[last], number(last, Purpose.TARGET)))


def commit(verdict: Verdict, drafts: Seq[int], stops: Collection[int]) -> Commit:
    """Cut a verdict at the first stop token. The caller has already kept the number of drafts
    below the remaining output, so that length never cuts."""
    tokens = (*drafts[: verdict.correct], verdict.token)
    rejected = verdict.correct < len(drafts)
    for i, token in enumerate(tokens):
        if token in stops:
            correct = min(i + 1, verdict.correct)
            # One token a step is the target's own, wherever the stop token fell.
            return Commit(tokens[: i + 1], correct, correct + 1 - (i + 1), rejected, token)
    return Commit(tokens, verdict.correct, 0, rejected, None)


def step_counts(done: Commit, proposed: int) -> StepStats:
    """The integers of one step; with no draft it is a plain step."""
    if proposed == 0:
        return StepStats(plain_tokens=1)
    return StepStats(
        verify_steps=1,
        proposed_drafts=proposed,
        correct_drafts=done.correct,
        trimmed_tokens=done.trimmed,
        rollbacks=int(done.rejected),
    )


def next_width(width: int, proposed: int, correct: int, most: int) -> int:
    """The adaptive policy: double after full acceptance, halve after a rejection, at least 1."""
    if proposed == 0:
        return width
    return min(2 * width, most) if correct == proposed else max(1, width // 2)


AVERAGE_WEIGHT = 0.25  # of the newest step
FEWEST_ROWS = 2  # the anchor and one draft


def next_average(average: float, correct: int) -> float:
    """Exponentially weighted count of correct drafts after one more step."""
    return average + AVERAGE_WEIGHT * (correct - average)


def width_of(average: float, most: int) -> int:
    """Drafts for a step that verifies ``average`` + 1.5 rows, the anchor among them, rounded up so
    that a width whose drafts are all correct grows again; at least one draft."""
    rows = max(FEWEST_ROWS, math.ceil(average + 1.5))
    return min(rows - 1, most)
