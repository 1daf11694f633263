"""The next token's log probabilities, as each server words them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qualify.engines.llamacpp import LlamaCppProtocol
from qualify.engines.openai import OpenAIProtocol
from qualify.engines.pocketllm import PocketLLMProtocol
from qualify.engines.sglang import SGLangProtocol
from qualify.engines.vllm import VLLMProtocol
from qualify.errors import CellError
from tests.engines.protocols import Desk

URL = "http://127.0.0.1:1"
EXPECTED = ((7, -0.25), (5, -1.5))
SGLANG = {"meta_info": {"output_top_logprobs": [[[-1.5, 5, "b"], [-0.25, 7, None]]]}}
LLAMACPP = {
    "completion_probabilities": [
        {"id": 7, "top_logprobs": [{"id": 7, "logprob": -0.25}, {"id": 5, "logprob": -1.5}]}
    ]
}
VLLM = {"choices": [{"logprobs": {"top_logprobs": [{"token_id:7": -0.25, "token_id:5": -1.5}]}}]}


def asked(protocol: Any, desk: Desk) -> tuple[Any, Any]:
    made = protocol(URL, transport=desk.transport)
    scores = asyncio.run(made.score_next([1, 2, 3], timeout_s=5.0))
    return scores, desk.asked[0][2]


def test_sglang_is_asked_by_ids_for_one_greedy_token() -> None:
    scores, body = asked(SGLangProtocol, Desk({"/generate": [(200, SGLANG)]}))
    assert scores == EXPECTED
    assert body["input_ids"] == [1, 2, 3]
    assert body["sampling_params"]["max_new_tokens"] == 1
    assert body["sampling_params"]["temperature"] == 0
    assert body["return_logprob"] is True


def test_llamacpp_is_asked_for_probabilities_before_sampling() -> None:
    scores, body = asked(LlamaCppProtocol, Desk({"/completion": [(200, LLAMACPP)]}))
    assert scores == EXPECTED
    assert (body["prompt"], body["n_predict"], body["temperature"]) == ([1, 2, 3], 1, 0)
    assert body["post_sampling_probs"] is False


@pytest.mark.parametrize("protocol", [OpenAIProtocol, VLLMProtocol])
def test_vllm_names_tokens_by_their_ids(protocol: Any) -> None:
    scores, body = asked(protocol, Desk({"/v1/completions": [(200, VLLM)]}))
    assert scores == EXPECTED
    assert body["return_tokens_as_token_ids"] is True
    assert (body["prompt"], body["max_tokens"]) == ([1, 2, 3], 1)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {}),
        (200, {"choices": [{"logprobs": {"top_logprobs": [{" the": -0.25}]}}]}),
        (200, {"choices": [{"logprobs": None}]}),
        (200, {"choices": [{"logprobs": {"top_logprobs": [{"token_id:7": None}]}}]}),
        (400, {"error": {"message": "logprobs are off"}}),
        (200, "not JSON"),
    ],
)
def test_a_server_that_gives_none_by_id_is_told_apart(status: int, answer: Any) -> None:
    with pytest.raises(CellError, match="no log probabilities by token id"):
        asked(OpenAIProtocol, Desk({"/v1/completions": [(status, answer)]}))


@pytest.mark.parametrize("answer", [{}, {"meta_info": {"output_top_logprobs": [None]}}])
def test_an_answer_without_a_table_is_none(answer: Any) -> None:
    with pytest.raises(CellError):
        asked(SGLangProtocol, Desk({"/generate": [(200, answer)]}))
    with pytest.raises(CellError):
        asked(LlamaCppProtocol, Desk({"/completion": [(200, answer)]}))
    with pytest.raises(CellError):
        asked(PocketLLMProtocol, Desk({}))
