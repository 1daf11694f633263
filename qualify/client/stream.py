"""Timed bytes -> Reply: the three functions that an engine's protocol calls.

Each is pure: no clock, no network. A reply's `failure` is None only when the stream ended
as its framing promised, said why generation ended, carried tokens and reported the server's
own count of them; whatever text had arrived is kept in every case.
"""

from __future__ import annotations

from typing import Literal

from qualify.client.dialects.llamacpp import LlamaCppFolder
from qualify.client.dialects.openai import OpenAIFolder
from qualify.client.dialects.sglang import SGLangFolder
from qualify.client.fold import fold
from qualify.client.reply import RawReply, Reply

OpenAIApi = Literal["completions", "chat"]


def fold_openai(raw: RawReply, *, api: OpenAIApi | None = None) -> Reply:
    """An answer of `/v1/completions` or `/v1/chat/completions`, of any server.

    api: only checked against what came, never needed (events say which one they are).
    Counts: `usage`, running or final, with or without choices. Tokens of an event: its
    `token_ids`, else a running count (`usage`, llama.cpp's `timings.predicted_n`), else the
    entries of its logprobs. `extras` keeps usage, metrics, timings, sglext as they came.
    """
    return fold(raw, OpenAIFolder(api))


def fold_sglang(raw: RawReply, *, cumulative: bool | None = None) -> Reply:
    """An answer of SGLang's native `/generate`.

    cumulative: whether `text` and `output_ids` repeat everything so far (the default of the
    server) or are deltas (`--incremental-streaming-output`); None finds out from the stream.
    `extras["meta_info"]` is the last event's meta_info, with the speculation counters.
    """
    return fold(raw, SGLangFolder(cumulative))


def fold_llamacpp(raw: RawReply) -> Reply:
    """An answer of llama.cpp's native `/completion`.

    `extras["timings"]` holds cache_n, prompt_n, predicted_n and, where drafts were proposed,
    draft_n and draft_n_accepted; cached_tokens is timings.cache_n, never `tokens_cached`
    (which is the fill of the slot after the request).
    """
    return fold(raw, LlamaCppFolder())
