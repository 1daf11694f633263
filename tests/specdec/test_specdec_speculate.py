"""The accept step on known cases: prefixes, stop tokens, counters and the adaptive width."""

from __future__ import annotations

import pytest
from specdec.request import Counters, StepStats
from specdec.speculate import Verdict, accept_greedy, commit, next_width, step_counts
from specdec.tally import add_step


@pytest.mark.parametrize(
    ("drafts", "targets", "correct", "token"),
    [
        ([], [9], 0, 9),
        ([1, 2, 3], [1, 2, 3, 4], 3, 4),
        ([1, 2, 3], [1, 5, 3, 4], 1, 5),
        ([1, 2, 3], [7, 2, 3, 4], 0, 7),
        ([1, 2, 3], [1, 2, 9, 4], 2, 9),
    ],
)
def test_greedy_keeps_the_longest_prefix_and_the_targets_own_token(
    drafts: list[int], targets: list[int], correct: int, token: int
) -> None:
    assert accept_greedy(drafts, targets) == Verdict(correct, token)


def test_nothing_after_a_stop_token_is_committed_or_counted_as_correct() -> None:
    done = commit(Verdict(3, 8), [5, 6, 7], {6})
    assert done.visible == (5, 6)
    assert (done.correct, done.trimmed, done.stop) == (2, 1, 6)
    assert not done.rejected


def test_a_stop_token_of_the_targets_own_trims_nothing() -> None:
    done = commit(Verdict(2, 8), [5, 6, 7], {8})
    assert done.visible == (5, 6, 8)
    assert (done.correct, done.trimmed, done.stop, done.rejected) == (2, 0, 8, True)


def test_counts_obey_the_identity_over_mixed_steps() -> None:
    counters = Counters(prefill_tokens=1)
    visible = 1
    steps = [
        (Verdict(3, 4), [1, 2, 3], set()),
        (Verdict(0, 4), [1, 2], set()),
        (Verdict(0, 4), [], set()),
        (Verdict(3, 9), [1, 2, 3], {1}),
    ]
    for verdict, drafts, stops in steps:
        done = commit(verdict, drafts, stops)
        add_step(counters, step_counts(done, len(drafts)))
        visible += len(done.visible)
    assert counters.output_tokens() == visible == 1 + 4 + 1 + 1 + 1
    assert (counters.verify_steps, counters.proposed_drafts, counters.correct_drafts) == (3, 8, 4)
    assert (counters.plain_tokens, counters.trimmed_tokens, counters.rollbacks) == (1, 1, 1)
    assert counters.correct_histogram == [1, 1, 0, 1]
    assert sum(counters.correct_histogram) == counters.verify_steps
    assert sum(i * n for i, n in enumerate(counters.correct_histogram)) == counters.correct_drafts


def test_a_step_without_drafts_is_a_plain_step() -> None:
    assert step_counts(commit(Verdict(0, 4), [], set()), 0) == StepStats(plain_tokens=1)


def test_the_adaptive_width_doubles_after_full_acceptance_and_halves_after_a_rejection() -> None:
    width, seen = 1, []
    for correct in (1, 2, 4, 6, 3, 0, 1, 0):
        seen.append(width)
        width = next_width(width, proposed=width, correct=min(correct, width), most=6)
    assert seen == [1, 2, 4, 6, 6, 3, 1, 2]
    assert next_width(4, proposed=0, correct=0, most=6) == 4
