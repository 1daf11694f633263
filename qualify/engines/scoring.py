"""How likely each next token is, asked of a server: what its log probabilities look like.

One token is generated after exact ids, greedily and unstreamed; nothing of it is timed. Only a
launch without speculation is asked: under speculation engines make such figures up.
Sources: engine-protocols of SGLang 0.5.17 to 0.5.23, vLLM 0.32, llama.cpp's server README.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qualify.engines.control import Answer, integer
from qualify.engines.protocol import Scores
from qualify.errors import CellError

ASKED = 20  # the most that vLLM and the bundled engine give by default
_ID_PREFIX = "token_id:"


def sglang_body(ids: Sequence[int]) -> dict[str, Any]:
    return {
        "input_ids": list(ids),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
        "return_logprob": True,
        "top_logprobs_num": ASKED,
        "stream": False,
    }


def sglang_scores(answer: Answer) -> Scores:
    """`meta_info.output_top_logprobs`: for each token a list of [logprob, id, text]."""
    meta = answer.mapping().get("meta_info")
    table = meta.get("output_top_logprobs") if isinstance(meta, Mapping) else None
    row = table[0] if isinstance(table, list) and table else None
    entries = row if isinstance(row, list) else []
    return _sorted(
        answer, ((e[1], e[0]) for e in entries if isinstance(e, list | tuple) and len(e) >= 2)
    )


def llamacpp_body(ids: Sequence[int]) -> dict[str, Any]:
    return {
        "prompt": list(ids),
        "n_predict": 1,
        "temperature": 0,
        "ignore_eos": True,
        "n_probs": ASKED,
        "post_sampling_probs": False,
        "cache_prompt": False,
        "stream": False,
    }


def llamacpp_scores(answer: Answer) -> Scores:
    """`completion_probabilities[0].top_logprobs`: objects with `id` and `logprob`."""
    table = answer.mapping().get("completion_probabilities")
    first = table[0] if isinstance(table, list) and table else None
    row = first.get("top_logprobs") if isinstance(first, Mapping) else None
    entries = [e for e in row if isinstance(e, Mapping)] if isinstance(row, list) else []
    return _sorted(answer, ((e.get("id"), e.get("logprob")) for e in entries))


def openai_body(model: str | None, ids: Sequence[int]) -> dict[str, Any]:
    """vLLM's extension names tokens by id; a server without it names them by text."""
    return {
        "model": model or "default",
        "prompt": list(ids),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": ASKED,
        "return_tokens_as_token_ids": True,
    }


def openai_scores(answer: Answer) -> Scores:
    """`choices[0].logprobs.top_logprobs[0]`: "token_id:N" -> logprob."""
    choices = answer.mapping().get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    told = first.get("logprobs") if isinstance(first, Mapping) else None
    table = told.get("top_logprobs") if isinstance(told, Mapping) else None
    row = table[0] if isinstance(table, list) and table else None
    entries = row.items() if isinstance(row, Mapping) else ()
    named = [(str(name), logprob) for name, logprob in entries]
    return _sorted(
        answer,
        (
            (int(name.removeprefix(_ID_PREFIX)), logprob)
            for name, logprob in named
            if name.startswith(_ID_PREFIX) and name.removeprefix(_ID_PREFIX).isdecimal()
        ),
    )


def _sorted(answer: Answer, entries: Iterable[tuple[Any, Any]]) -> Scores:
    """Raises CellError where the server gave none."""
    found = {
        token: float(logprob)
        for name, logprob in entries
        if (token := integer(name)) is not None
        and isinstance(logprob, int | float)
        and math.isfinite(logprob)
    }
    if not found:
        said = f"{answer.status}: {answer.text.strip()[:200]}" if not answer.ok else "none"
        raise CellError(
            f"The server gives no log probabilities by token id ({said}).",
            "A margin needs them; sglang, vllm and llama.cpp give them.",
        )
    return tuple(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))
