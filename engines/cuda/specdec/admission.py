"""Checks of a request before it takes anything: each refusal is a sentence and a remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq

from specdec.contract import RunnerInfo
from specdec.errors import RequestRefused
from specdec.request import SamplingParams


def check_request(prompt_ids: Seq[int], params: SamplingParams, info: RunnerInfo) -> None:
    """Raise RequestRefused unless the request can be served whole."""
    if not prompt_ids:
        raise RequestRefused("The prompt is empty.", "Send at least one token.")
    for position, token in enumerate(prompt_ids):
        if not 0 <= token < info.vocab_size:
            raise RequestRefused(
                f"Token id {token} at position {position} is outside the vocabulary of "
                f"{info.vocab_size}.",
                "Send ids of this checkpoint's tokenizer.",
            )
    _check_params(params)
    if params.top_logprobs is not None and info.draft is not None and not info.draft.logprobs:
        raise RequestRefused(
            f"Log-probabilities are not returned in mode {info.mode}.",
            "Leave them out, or start the server in another mode.",
        )
    total = len(prompt_ids) + params.max_new_tokens
    if total > info.context_length:
        raise RequestRefused(
            f"The prompt's {len(prompt_ids)} tokens and {params.max_new_tokens} new ones are "
            f"{total}, beyond the context length of {info.context_length}.",
            "Shorten the prompt or ask for fewer tokens.",
        )
    if total > info.max_total_tokens:
        raise RequestRefused(
            f"The prompt and the new tokens are {total}, beyond the KV pool of "
            f"{info.max_total_tokens} tokens.",
            "Ask for fewer tokens, or start the server with a larger --max-total-tokens.",
        )


def _check_params(params: SamplingParams) -> None:
    ranges = [
        ("max_new_tokens", params.max_new_tokens, params.max_new_tokens >= 1, "at least 1"),
        ("temperature", params.temperature, params.temperature >= 0.0, "0 or more"),
        ("top_p", params.top_p, 0.0 < params.top_p <= 1.0, "above 0 and at most 1"),
        ("top_k", params.top_k, params.top_k >= 0, "0 (no limit) or more"),
        ("min_p", params.min_p, 0.0 <= params.min_p <= 1.0, "from 0 to 1"),
    ]
    for name, value, fits, wanted in ranges:
        if not (math.isfinite(value) and fits):
            raise RequestRefused(f"{name} is {value}.", f"Send a value that is {wanted}.")
