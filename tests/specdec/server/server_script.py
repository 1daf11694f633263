"""What the tests of the HTTP surface send and expect; the model is the script's formula."""

from __future__ import annotations

import time
from typing import Any

import httpx
from scripted_runner import next_token
from server_live import Live

PROMPT = [40, 41, 42, 43]
GREEDY = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}
CHAT = [{"role": "user", "content": "Where is the boat?"}]


def script(prompt: list[int], tokens: int) -> list[int]:
    """The output that the formula gives for a prompt."""
    sequence = list(prompt)
    for _ in range(tokens):
        sequence.append(next_token(sequence, 384))
    return sequence[len(prompt) :]


def wait_idle(live: Live, limit_s: float = 5.0) -> None:
    """Until nothing runs and nothing waits."""
    deadline = time.monotonic() + limit_s
    while not live.engine.scheduler.idle:
        assert time.monotonic() < deadline, "requests are still there"
        time.sleep(0.005)


def start_stream(live: Live, rid: str, tokens: int = 400) -> tuple[httpx.Response, Any]:
    body = {
        "input_ids": PROMPT,
        "sampling_params": {**GREEDY, "max_new_tokens": tokens},
        "stream": True,
        "rid": rid,
    }
    request = live.client.build_request("POST", "/generate", json=body)
    answer = live.client.send(request, stream=True)
    lines = answer.iter_lines()
    assert next(lines).startswith("data: ")
    return answer, lines
