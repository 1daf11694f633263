"""Add a step's counts to a request's."""

from __future__ import annotations

from specdec.request import Counters, StepStats


def add_step(counters: Counters, step: StepStats) -> None:
    """Every field, and the histogram of correct drafts for a verify step."""
    counters.verify_steps += step.verify_steps
    counters.proposed_drafts += step.proposed_drafts
    counters.correct_drafts += step.correct_drafts
    counters.plain_tokens += step.plain_tokens
    counters.trimmed_tokens += step.trimmed_tokens
    counters.rollbacks += step.rollbacks
    counters.replayed_tokens += step.replayed_tokens
    counters.nonfinite_draft_logits += step.nonfinite_draft_logits
    counters.prefill_s += step.prefill_s
    counters.priming_s += step.priming_s
    counters.draft_s += step.draft_s
    counters.verify_s += step.verify_s
    counters.replay_s += step.replay_s
    if step.confidences:
        _add_confidences(counters, step.confidences)
    if step.verify_steps:
        short = step.correct_drafts + 1 - len(counters.correct_histogram)
        counters.correct_histogram += [0] * max(0, short)
        counters.correct_histogram[step.correct_drafts] += step.verify_steps


def _add_confidences(counters: Counters, new: tuple[float, ...]) -> None:
    before = counters.confidence_count * (counters.confidence_mean or 0.0)
    counters.confidence_count += len(new)
    counters.confidence_mean = (before + sum(new)) / counters.confidence_count
    least, most = counters.confidence_min, counters.confidence_max
    counters.confidence_min = min(new) if least is None else min(least, *new)
    counters.confidence_max = max(new) if most is None else max(most, *new)
