"""Turn the target's logits into committed tokens, for a batch of sequences."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor

from specdec.drafter import Drafts
from specdec.parallel.scores import Scores
from specdec.request import Finish, Sequence, TokenLogprob
from specdec.sampling import Purpose, distribution, token_logprob, uniform
from specdec.speculate import Commit, Verdict, accept_greedy, accept_sampled, commit


@dataclass(frozen=True)
class Judged:
    """One sequence's outcome of a pass; ``finish`` if the committed tokens end it."""

    done: Commit
    logprobs: tuple[TokenLogprob, ...] | None
    finish: Finish | None


def judge_rows(
    seqs: Seq[Sequence], drafts: Seq[Drafts], scores: Scores, end_tokens: frozenset[int]
) -> list[Judged | None]:
    """Judge every sequence's rows of the logits: its anchor's and its drafts', in order. None where
    a row is not finite. Whole rows are only put together where more than the best id is asked."""
    finite, best = scores.best()
    logits = scores.whole() if any(_reads_rows(seq) for seq in seqs) else scores.local
    out: list[Judged | None] = []
    first = 0
    for seq, mine in zip(seqs, drafts, strict=True):
        stop = first + 1 + len(mine.tokens)
        if all(finite[first:stop]):
            rows = logits[first:stop]
            verdict = _verdict(seq, mine, rows, best[first:stop])
            done = commit(verdict, mine.tokens, _stops(seq, end_tokens))
            out.append(Judged(done, _logprobs(seq, rows, done.visible), _finish(seq, done)))
        else:
            out.append(None)
        first = stop
    return out


def _reads_rows(seq: Sequence) -> bool:
    return seq.params.temperature > 0 or seq.params.top_logprobs is not None


def _verdict(seq: Sequence, mine: Drafts, logits: Tensor, best: list[int]) -> Verdict:
    if seq.params.temperature <= 0:
        return accept_greedy(mine.tokens, best)
    targets = [distribution(row, seq.params) for row in logits]
    start = seq.total_tokens

    def number(offset: int, purpose: Purpose) -> float:
        return uniform(seq.seed, start + offset, purpose)

    return accept_sampled(mine.tokens, mine.proposals, targets, number)


def _stops(seq: Sequence, end_tokens: frozenset[int]) -> frozenset[int]:
    own = frozenset() if seq.params.ignore_eos else end_tokens
    return seq.params.stop_token_ids | own


def _finish(seq: Sequence, done: Commit) -> Finish | None:
    if done.stop is not None:
        return Finish("stop", matched=done.stop)
    if len(done.visible) == seq.remaining:
        return Finish("length", length=seq.params.max_new_tokens)
    return None


def _logprobs(seq: Sequence, logits: Tensor, tokens: Seq[int]) -> tuple[TokenLogprob, ...] | None:
    top = seq.params.top_logprobs
    if top is None:
        return None
    return tuple(token_logprob(row, token, top) for row, token in zip(logits, tokens, strict=False))
