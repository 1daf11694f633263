"""What an answer says about itself: SGLang's `meta_info`, OpenAI's `usage`, the exact counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from specdec.job import Delta
from specdec.request import Counters, Finish, TokenLogprob


def finish_reason(finish: Finish | None) -> dict[str, Any] | None:
    """SGLang's object; None while the request runs."""
    if finish is None:
        return None
    if finish.kind == "stop":
        return {"type": "stop", "matched": finish.matched}
    if finish.kind == "length":
        return {"type": "length", "length": finish.length}
    return {"type": "abort", "message": finish.message, "status_code": None, "err_type": None}


def meta_info(rid: str, delta: Delta) -> dict[str, Any]:
    """`meta_info` of one delta; the last one carries the latency and the counts.

    The `spec_*` names keep SGLang's meanings, so `spec_accept_length` is N/V (prefill's token and
    plain tokens included) and not the canonical 1 + C/V; they are absent where nothing was
    verified. The exact integers of `exact_counts` come in every mode.
    """
    meta: dict[str, Any] = {
        "id": rid,
        "finish_reason": finish_reason(delta.finish),
        "prompt_tokens": delta.prompt_tokens,
        "weight_version": "default",
        "num_retractions": delta.retractions,
        "reasoning_tokens": 0,
        "completion_tokens": delta.completion_tokens,
        "cached_tokens": delta.cached_tokens,
        "cached_tokens_details": {"device": delta.cached_tokens, "host": 0},
        "prefix_matched_tokens": delta.matched_tokens,
        "prefix_resume_source": delta.resume_source,
        "dp_rank": None,
    }
    if delta.rank_token_parity is not None:
        meta["rank_token_parity"] = delta.rank_token_parity
    if delta.counters is not None:
        meta.update(spec_tokens_details(delta.counters, delta.completion_tokens) or {})
        meta.update(exact_counts(delta))
    if delta.timing is not None:
        meta["e2e_latency"] = delta.timing.finished_s - delta.timing.received_s
    return meta


def spec_tokens_details(counters: Counters, completion_tokens: int) -> dict[str, Any] | None:
    """SGLang's per-request speculation figures; None where nothing was verified."""
    if counters.verify_steps == 0:
        return None
    proposed = counters.proposed_drafts
    return {
        "spec_accept_rate": counters.correct_drafts / proposed if proposed else None,
        "spec_accept_length": completion_tokens / counters.verify_steps,
        "spec_num_correct_drafts": counters.correct_drafts,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": counters.verify_steps,
        "spec_correct_drafts_histogram": list(counters.correct_histogram),
    }


def exact_counts(delta: Delta) -> dict[str, Any]:
    """The counts of `request.Counters` under their own names, and seconds.

    completion_tokens = prefill_tokens + correct_drafts + verify_steps + plain_tokens
    - trimmed_tokens. `queue_s` and `first_token_s` are counted from receipt.
    """
    counters, timing = delta.counters, delta.timing
    assert counters is not None
    assert timing is not None
    told = counters.confidence_count > 0
    names = [
        f.name
        for f in fields(counters)
        if f.name not in ("retractions", "correct_histogram")
        and (told or not f.name.startswith("confidence_"))
    ]
    admitted_s, first_s = timing.admitted_s, timing.first_token_s
    return {
        **{name: getattr(counters, name) for name in names},
        "correct_drafts_histogram": list(counters.correct_histogram),
        "queue_s": None if admitted_s is None else admitted_s - timing.received_s,
        "first_token_s": None if first_s is None else first_s - timing.received_s,
    }


def logprob_fields(
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprob],
    top: int,
    show: Callable[[int], str | None],
) -> dict[str, Any]:
    """`output_token_logprobs` as SGLang writes them: [logprob, token id, text or null]."""
    written: dict[str, Any] = {
        "input_token_logprobs": [],
        "output_token_logprobs": [
            [entry.logprob, token, show(token)]
            for token, entry in zip(token_ids, logprobs, strict=True)
        ],
        "output_token_logprobs_length": len(token_ids),
    }
    if top:
        written["input_top_logprobs"] = []
        written["output_top_logprobs"] = [
            [[logprob, token, show(token)] for token, logprob in entry.top] for entry in logprobs
        ]
    return written


def usage(deltas: list[Delta], cache_report: bool) -> dict[str, Any]:
    """OpenAI's `usage`, summed over the prompts of one request."""
    prompt = sum(delta.prompt_tokens for delta in deltas)
    completion = sum(delta.completion_tokens for delta in deltas)
    cached = sum(delta.cached_tokens for delta in deltas)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if cache_report else None,
        "reasoning_tokens": 0,
    }


def sglext(delta: Delta, *, cached: bool, spec: bool) -> dict[str, Any] | None:
    """SGLang's extension object for the OpenAI-style routes; None when nothing was asked."""
    asked: dict[str, Any] = {}
    if cached:
        asked["cached_tokens_details"] = {"device": delta.cached_tokens, "host": 0}
    if spec and delta.counters is not None:
        asked["spec_tokens_details"] = spec_tokens_details(delta.counters, delta.completion_tokens)
    return asked or None
