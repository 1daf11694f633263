"""Two ranks behind the server: the same answers, what it says of them, and how all of it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from driving import finish, greedy, start
from server_process import READY, ServerProcess
from specdec.contract import RunnerOptions
from specdec.runner import Runner

FIXTURE = Path(__file__).parents[3] / "fixtures/models/tiny-qwen3.5"
FLAGS = [
    "--mode", "mtp", "--device", "cpu", "--threads", "1", "--port", "0", "--enable-metrics",
    "--max-total-tokens", "1024", "--max-running-requests", "2", "--context-length", "512",
    "--drain-timeout", "1",
]  # fmt: skip
PROMPTS = [[(37 * i + 11 * n) % 4000 for i in range(24)] for n in range(2)]
TOKENS = 16


class Ranks:
    """A server of two ranks, started when there is none."""

    def __init__(self) -> None:
        self._server: ServerProcess | None = None

    def running(self) -> ServerProcess:
        if self._server is None or self._server._process.poll() is not None:
            command = [sys.executable, "-m", "specdec", "serve", "--model", str(FIXTURE), *FLAGS]
            self._server = ServerProcess([*command, "--tp-size", "2"])
            self._server.wait_for(READY, 100)
        return self._server

    def end(self) -> None:
        if self._server is not None:
            self._server.kill()


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    held = Ranks()
    yield held
    held.end()


@pytest.fixture
def server(ranks: Ranks) -> ServerProcess:
    return ranks.running()


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """What one rank decodes without drafts."""
    runner = Runner.load(
        FIXTURE, RunnerOptions(device="cpu", threads=1, max_total_tokens=512, context_length=512)
    )
    return [seq.output_ids for seq in finish(runner, start(runner, PROMPTS, greedy(TOKENS)))]


def worker_of(server: ServerProcess) -> psutil.Process:
    (worker,) = psutil.Process(server._process.pid).children()
    assert "specdec.parallel.worker" in worker.cmdline()
    return worker


def generate(url: str, prompt: list[int], rid: str, tokens: int = TOKENS) -> dict[str, Any]:
    params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body = {"input_ids": prompt, "rid": rid, "sampling_params": params}
    with httpx.Client(trust_env=False, timeout=60) as client:
        answer = client.post(f"{url}/generate", json=body)
    return {"status": answer.status_code, **answer.json()}


def at_once(url: str, name: str) -> list[dict[str, Any]]:
    found: list[Any] = [None] * len(PROMPTS)

    def ask(i: int) -> None:
        found[i] = generate(url, PROMPTS[i], f"{name}-{i}")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def get(url: str, path: str) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=30) as client:
        return client.get(f"{url}{path}")


def test_answers_in_a_batch_after_a_hit_and_after_a_flush_are_those_of_one_rank(
    server: ServerProcess, expected: list[list[int]]
) -> None:
    url = server.url
    for turn in ("cold", "warm"):
        for answer, ids in zip(at_once(url, turn), expected, strict=True):
            assert answer["output_ids"] == ids
            assert answer["meta_info"]["rank_token_parity"] is True
            assert (answer["meta_info"]["cached_tokens"] > 0) == (turn == "warm")
    assert get(url, "/flush_cache?timeout=5").status_code == 200
    again = generate(url, PROMPTS[0], "flushed")
    assert again["output_ids"] == expected[0]
    assert again["meta_info"]["cached_tokens"] == 0
    assert again["meta_info"]["correct_drafts"] > 0


def test_what_the_ranks_are_and_that_they_agree_is_in_info_metrics_and_both_logs(
    server: ServerProcess,
) -> None:
    url = server.url
    answer = generate(url, PROMPTS[1], "seen")
    info = get(url, "/server_info").json()
    assert info["tp_size"] == 2
    assert info["rank_token_parity"] is True
    assert info["rank_tokens_compared"] >= len(answer["output_ids"])
    metrics = get(url, "/metrics").text
    assert re.search(r"^specdec:rank_token_parity\{.*\} 1\.0$", metrics, re.MULTILINE)
    assert re.search(r"^specdec:rank_tokens_compared_total\{.*\} [1-9]", metrics, re.MULTILINE)
    server.wait_for("TP0] Rank tokens, rid: seen,")
    server.wait_for("TP1] Rank tokens, rid: seen,")
    told = [line for line in server.log if "Rank tokens, rid: seen," in line]
    assert len({line.split("] ", 1)[1] for line in told}) == 1
    assert f"#token: {TOKENS}," in told[0]
    assert all(re.match(r"\[[-0-9 :]+ TP[01]\] ", line) for line in server.log)
    server.wait_for("outputs equal when ranks share them")


def test_a_request_that_is_aborted_leaves_both_ranks_as_they_were(
    server: ServerProcess, expected: list[list[int]]
) -> None:
    url = server.url
    body = {
        "input_ids": PROMPTS[0], "rid": "gone", "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
    }  # fmt: skip
    with (
        httpx.Client(trust_env=False, timeout=60) as client,
        client.stream("POST", f"{url}/generate", json=body) as answer,
    ):
        next(answer.iter_lines())
    server.wait_for("TP1] Rank tokens, rid: gone,")
    assert generate(url, PROMPTS[1], "after")["output_ids"] == expected[1]


def test_a_rank_that_dies_ends_the_server_with_a_sentence_that_names_it(
    server: ServerProcess,
) -> None:
    worker, ended = worker_of(server), threading.Event()
    lines: list[str] = []
    body = {
        "input_ids": PROMPTS[0], "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
    }  # fmt: skip

    def read() -> None:
        with (
            httpx.Client(trust_env=False, timeout=60) as client,
            client.stream("POST", f"{server.url}/generate", json=body) as answer,
        ):
            for line in answer.iter_lines():
                lines.append(line)
                if not ended.is_set():
                    worker.kill()
                    ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert ended.wait(30)
    assert server.wait(20) == 1
    reader.join(5)
    said = f"Rank 1 (process {worker.pid}) was ended by SIGKILL."
    assert any(f"The engine failed: {said}" in line for line in server.log), server.log[-5:]
    (failed,) = [json.loads(line[6:]) for line in lines if line.startswith('data: {"error"')]
    assert said in json.dumps(failed)


def test_a_stop_that_reaches_every_process_ends_them_all_with_0(server: ServerProcess) -> None:
    worker = worker_of(server)
    for number in (signal.SIGINT, signal.SIGTERM):
        worker.send_signal(number)  # as a terminal or a group's kill would, beside rank 0's own
    assert len(generate(server.url, PROMPTS[0], "still")["output_ids"]) == TOKENS
    server.signal(signal.SIGINT)
    assert server.wait(15) == 0
    assert not psutil.pid_exists(worker.pid)


def test_no_rank_outlives_rank_0(server: ServerProcess) -> None:
    worker = worker_of(server)
    os.kill(server._process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
