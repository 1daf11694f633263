"""Whatever a client sends, it gets a 4xx with a sentence, and the next request works."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_runner import ScriptedRunner
from server_live import Live, serve, with_settings
from specdec.tokenizer import Tokenizer

LIMIT = 200_000
GENERATING = ["/generate", "/v1/completions", "/v1/chat/completions"]
POSTING = [*GENERATING, "/tokenize", "/detokenize", "/abort_request"]
GOOD: dict[str, dict[str, Any]] = {
    "/generate": {"input_ids": [40, 41], "sampling_params": {"max_new_tokens": 2}},
    "/v1/completions": {"prompt": [40, 41], "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [40]},
    "/abort_request": {"rid": "nobody"},
}


@pytest.fixture(scope="module")
def live(tokenizer: Tokenizer) -> Iterator[Live]:
    chosen = with_settings(max_body_bytes=LIMIT)
    with serve(lambda: ScriptedRunner(drafts=2), tokenizer, chosen) as server:
        yield server


def message_of(body: Any) -> str:
    """The sentence of an error, in the shape of either kind of route."""
    if "object" in body:
        assert body["object"] == "error"
        assert body["param"] is None
        return str(body["message"])
    return str(body["error"]["message"])


def refused(live: Live, path: str, status: int = 400, **request: Any) -> str:
    answer = live.client.post(path, **request)
    assert answer.status_code == status, answer.text
    message = message_of(answer.json())
    assert len(message) > 10
    assert message.rstrip()[-1] in ".'}", message
    return message


def still_works(live: Live) -> None:
    answer = live.client.post("/generate", json=GOOD["/generate"])
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", POSTING)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{",
        b"[1, 2]",
        b'"text"',
        b"null",
        b"\xff\xfe\x00",
        b'{"rid": "\xc3\x28"}',
        b'{"rid": NaN}',
        b'{"rid": 1e999}',
        b"[" * 50_000,
        b'{"a":' * 20_000,
        b'{"rid": ' + b"9" * 5_000 + b"}",
        b'{"rid": "\\ud800"}',
    ],
    ids=lambda body: repr(body[:14]),
)
def test_a_body_that_is_not_a_good_json_object_is_refused(
    live: Live, path: str, body: bytes
) -> None:
    refused(live, path, content=body)
    still_works(live)


@pytest.mark.parametrize("path", POSTING)
def test_an_unknown_field_is_named_with_the_known_ones(live: Live, path: str) -> None:
    message = refused(live, path, json={**GOOD[path], "strean": True})
    assert "Unknown field 'strean'" in message
    known = next(iter(GOOD[path]))
    assert known in message.split("Known fields:")[1]


def test_a_misspelt_field_gets_the_likely_one(live: Live) -> None:
    assert "Did you mean 'stream'?" in refused(
        live, "/generate", json={**GOOD["/generate"], "strean": True}
    )
    nested = refused(live, "/generate", json={"text": "a", "sampling_params": {"max_new_token": 2}})
    assert "sampling_params" in nested
    assert "Did you mean 'max_new_tokens'?" in nested


@pytest.mark.parametrize(
    "change",
    [
        {"input_ids": []},
        {"input_ids": [[]]},
        {"input_ids": [[40], []]},
        {"input_ids": ["40"]},
        {"input_ids": [40.5]},
        {"input_ids": [True]},
        {"input_ids": [-1]},
        {"input_ids": [384]},
        {"input_ids": [2**70]},
        {"input_ids": [40, [41]]},
        {"input_ids": 40},
        {"text": "both"},
        {"text": "", "input_ids": None},
        {"text": "\ud800", "input_ids": None},
        {"text": 5, "input_ids": None},
        {"text": [], "input_ids": None},
        {"text": ["a"] * 513, "input_ids": None},
        {"input_ids": None},
        {"stream": "yes"},
        {"stream": 1},
        {"rid": ""},
        {"rid": 7},
        {"rid": "x" * 300},
        {"rid": ["a", "b"]},
        {"sampling_params": []},
        {"sampling_params": 7},
        {"sampling_params": [{}, {}]},
        {"input_ids": [[40], [41]], "rid": ["same", "same"]},
        {"return_logprob": "yes"},
        {"top_logprobs_num": 21},
        {"top_logprobs_num": -1},
        {"input_embeds": [[0.5]]},
        {"session_params": {"id": "a"}},
        {"cache_salt": 7},
        {"extra_key": "x" * 1025},
        {"priority": 3},
        {"lora_path": "adapter"},
        {"logprob_start_len": 0},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_a_bad_field_of_generate_is_refused(live: Live, change: dict[str, Any]) -> None:
    # Plain json.dumps keeps a lone surrogate as its escape, which httpx would choke on.
    body = json.dumps({**GOOD["/generate"], **change})
    refused(live, "/generate", content=body)
    still_works(live)


@pytest.mark.parametrize(
    "params",
    [
        {"max_new_tokens": 0},
        {"max_new_tokens": -5},
        {"max_new_tokens": 10**12},
        {"max_new_tokens": 10**30},
        {"max_new_tokens": "8"},
        {"max_new_tokens": 8.5},
        {"temperature": -0.1},
        {"temperature": 1e9},
        {"temperature": "hot"},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": -2},
        {"top_k": 2**40},
        {"min_p": -1},
        {"stop": ""},
        {"stop": [""]},
        {"stop": ["x"] * 65},
        {"stop": "x" * 2000},
        {"stop": 3},
        {"stop_token_ids": [-3]},
        {"stop_token_ids": "2"},
        {"sampling_seed": -1},
        {"sampling_seed": 2**64},
        {"n": 2},
        {"frequency_penalty": 0.5},
        {"presence_penalty": -0.5},
        {"repetition_penalty": 1.1},
        {"min_new_tokens": 4},
        {"logit_bias": {"5": 1.0}},
        {"json_schema": "{}"},
        {"regex": "a+"},
        {"ebnf": "root ::= a"},
        {"ignore_eos": "true"},
    ],
    ids=lambda params: json.dumps(params)[:40],
)
def test_a_bad_sampling_field_is_refused_by_name(live: Live, params: dict[str, Any]) -> None:
    message = refused(live, "/generate", json={**GOOD["/generate"], "sampling_params": params})
    # A number that is merely too large for the context is refused by the limit's own sentence.
    assert next(iter(params)) in message or "exceeds" in message


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": None}),
        ("/v1/completions", {"prompt": [1, "a"]}),
        ("/v1/completions", {"prompt": [[1], "a"]}),
        ("/v1/completions", {"prompt": {"text": "a"}}),
        ("/v1/completions", {"max_tokens": 0}),
        ("/v1/completions", {"echo": True}),
        ("/v1/completions", {"best_of": 3}),
        ("/v1/completions", {"suffix": "end"}),
        ("/v1/completions", {"logprobs": 50}),
        ("/v1/completions", {"stream_options": {"include": True}}),
        ("/v1/completions", {"response_format": {"type": "json_object"}}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {"messages": None}),
        ("/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]}),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": None}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        ),
        ("/v1/chat/completions", {"input_ids": [5]}),
        ("/v1/chat/completions", {"tools": [{"type": "function"}]}),
        ("/v1/chat/completions", {"n": 2}),
        ("/tokenize", {"prompt": None}),
        ("/tokenize", {"prompt": 5}),
        ("/detokenize", {"tokens": "5"}),
        ("/detokenize", {"tokens": [10**9]}),
        ("/abort_request", {"rid": 5}),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_a_bad_field_of_another_route_is_refused(
    live: Live, path: str, change: dict[str, Any]
) -> None:
    refused(live, path, json={**GOOD[path], **change})
    still_works(live)


def test_neutral_values_of_what_is_not_offered_are_taken(live: Live) -> None:
    body = {
        **GOOD["/v1/completions"],
        "n": 1,
        "best_of": 1,
        "echo": False,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logit_bias": None,
        "response_format": {"type": "text"},
        "user": "me",
    }
    assert live.client.post("/v1/completions", json=body).status_code == 200


@pytest.mark.parametrize("path", GENERATING)
def test_a_giant_body_is_a_413_and_the_next_request_works(live: Live, path: str) -> None:
    refused(live, path, 413, content=b'{"text": "' + b"x" * LIMIT + b'"}')
    still_works(live)


def test_a_giant_body_without_a_declared_length_is_a_413(live: Live) -> None:
    pieces = (b"x" * 10_000 for _ in range(LIMIT // 10_000 + 5))
    refused(live, "/generate", 413, content=pieces)
    still_works(live)


def test_a_body_that_claims_to_be_endless_is_refused_at_once(live: Live) -> None:
    host, port = live.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    still_works(live)


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"POST /generate HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /generate HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\x00\xff\x00\xff\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_bytes_that_are_no_http_do_no_harm(live: Live, raw: bytes) -> None:
    host, port = live.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(raw)
        answer = connection.recv(100)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    still_works(live)


def test_a_client_that_hangs_up_within_its_body_does_no_harm(live: Live) -> None:
    host, port = live.url.removeprefix("http://").split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(
                b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{"
            )
    still_works(live)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def spoilt_requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good request with one field replaced, added or broken, or its bytes damaged."""
    path = draw(st.sampled_from(POSTING))
    body = dict(GOOD[path])
    name = draw(
        st.sampled_from([*body, "stream", "rid", "stop", "temperature", "top_p", "model", "seed"])
        | st.text(max_size=10)
    )
    body[name] = draw(json_values)
    raw = json.dumps(body).encode()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(st.binary(max_size=6)) + raw[at + draw(st.integers(0, 3)) :]
    return path, raw


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(spoilt_requests())
def test_no_request_gets_more_than_a_4xx(live: Live, request_: tuple[str, bytes]) -> None:
    path, raw = request_
    answer = live.client.post(path, content=raw)
    assert answer.status_code in (200, 400, 413), (raw, answer.text)
    if answer.status_code != 200:
        assert len(message_of(answer.json())) > 10
    assert live.client.get("/health").status_code == 200


def test_after_all_of_it_nothing_is_left_behind(live: Live) -> None:
    still_works(live)
    runner = live.engine.scheduler.runner
    assert live.engine.scheduler.idle
    assert runner.pool.used_tokens == 0
    runner.pool.check_integrity()


def test_a_long_list_of_rubbish_costs_no_more_than_its_first_entry() -> None:
    import tracemalloc

    from specdec.http.body import parse_json
    from specdec.http.errors import ApiError
    from specdec.http.native_schema import GenerateBody

    body = json.dumps({"input_ids": ["x"] * 300_000}).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="input_ids"):
            parse_json(body, GenerateBody)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 40_000_000


@pytest.mark.parametrize("name", ["", "str", "list[int]", "constrained-str", "0", "a.b"])
def test_an_unknown_field_with_an_odd_name_is_still_an_unknown_field(live: Live, name: str) -> None:
    for body in ({name: 1, "text": "a"}, {"text": "a", "sampling_params": {name: 1}}):
        message = refused(live, "/generate", json=body)
        assert "Unknown field" in message
        assert name in message
