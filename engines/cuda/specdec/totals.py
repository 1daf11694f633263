"""Counts over all requests, since the start and since the last flush or log line."""

from __future__ import annotations

from dataclasses import dataclass, fields

from specdec.request import StepResult


@dataclass
class Totals:
    """Running sums. Letters as in `request`: V, P, C, T, W. Only the scheduler's thread adds."""

    requests: int = 0
    aborted_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    retractions: int = 0
    retracted_input_tokens: int = 0
    retracted_output_tokens: int = 0
    verify_steps: int = 0
    proposed_drafts: int = 0
    correct_drafts: int = 0
    plain_tokens: int = 0
    trimmed_tokens: int = 0
    rollbacks: int = 0
    replayed_tokens: int = 0
    nonfinite_draft_logits: int = 0
    prefill_s: float = 0.0
    priming_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    replay_s: float = 0.0

    def add_step(self, results: list[StepResult]) -> None:
        """Add what one step did.

        A prefill step computes its sequences one after another, so their seconds add up; a decode
        step is lived through by all of its sequences together, so its seconds count once.
        """
        for result in results:
            stats = result.stats
            self.prefilled_tokens += result.prefilled_tokens
            self.verify_steps += stats.verify_steps
            self.proposed_drafts += stats.proposed_drafts
            self.correct_drafts += stats.correct_drafts
            self.plain_tokens += stats.plain_tokens
            self.trimmed_tokens += stats.trimmed_tokens
            self.rollbacks += stats.rollbacks
            self.replayed_tokens += stats.replayed_tokens
            self.nonfinite_draft_logits += stats.nonfinite_draft_logits
            self.prefill_s += stats.prefill_s
            self.priming_s += stats.priming_s
        every = [result.stats for result in results]
        self.draft_s += max((stats.draft_s for stats in every), default=0.0)
        self.verify_s += max((stats.verify_s for stats in every), default=0.0)
        self.replay_s += max((stats.replay_s for stats in every), default=0.0)

    def since(self, earlier: Totals) -> Totals:
        """The difference to an earlier copy."""
        return Totals(
            **{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        )

    def copy(self) -> Totals:
        """A copy to subtract later."""
        return self.since(Totals())

    @property
    def accept_length(self) -> float | None:
        """1 + C/V, the bonus token included; None where nothing was verified."""
        return 1 + self.correct_drafts / self.verify_steps if self.verify_steps else None

    @property
    def accept_rate(self) -> float | None:
        """C/P, without the bonus token; None where nothing was proposed."""
        return self.correct_drafts / self.proposed_drafts if self.proposed_drafts else None
