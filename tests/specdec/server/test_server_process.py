"""The server as a process: readiness line, port, signals, exit codes. The model is a script."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import READY, ServerProcess, running, scripted
from specdec.serve import bind


def stream(url: str, tokens: int, started: threading.Event, lines: list[str]) -> None:
    body = {
        "input_ids": [40, 41],
        "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
        "stream": True,
    }
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream("POST", f"{url}/generate", json=body) as answer,
    ):
        for line in answer.iter_lines():
            if line:
                lines.append(line)
                started.set()


def start_stream(server: ServerProcess, tokens: int) -> tuple[threading.Thread, list[str]]:
    started, lines = threading.Event(), []
    thread = threading.Thread(target=stream, args=(server.url, tokens, started, lines))
    thread.start()
    assert started.wait(20)
    return thread, lines


def finish_reason(lines: list[str]) -> Any:
    assert lines[-1] == "data: [DONE]"
    return json.loads(lines[-2].removeprefix("data: "))["meta_info"]["finish_reason"]


def test_it_says_where_it_listens_and_that_it_is_ready_and_ends_with_0(checkpoint: Path) -> None:
    with running(scripted(checkpoint)) as server:
        server.wait_for(READY)
        assert server.url.startswith("http://127.0.0.1:")
        port = int(server.url.rsplit(":", 1)[1])
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            assert client.get("/ready").status_code == 200
            assert client.get("/server_info").json()["port"] == port
        server.signal()
        assert server.wait(5) == 0
    assert all(line.startswith("[20") for line in server.log), server.log
    assert "KV Cache is allocated. dtype: torch.float32, #tokens: 1024" in "\n".join(server.log)
    assert any("max_total_num_tokens=1024, chunked_prefill_size=64" in line for line in server.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_may_finish_before_the_end(checkpoint: Path, number: int) -> None:
    with running(scripted(checkpoint, "slow", drain_s=20)) as server:
        thread, lines = start_stream(server, tokens=25)
        server.signal(number)
        time.sleep(0.1)
        with pytest.raises(httpx.HTTPError), httpx.Client(trust_env=False) as client:
            client.get(f"{server.url}/health").raise_for_status()
        assert server.wait(10) == 0
        thread.join(5)
    assert finish_reason(lines) == {"type": "length", "length": 25}


def test_what_runs_too_long_is_aborted_and_the_end_is_still_0(checkpoint: Path) -> None:
    with running(scripted(checkpoint, "slow", drain_s=0.3)) as server:
        thread, lines = start_stream(server, tokens=400)
        server.signal()
        assert server.wait(5) == 0
        thread.join(5)
    assert finish_reason(lines)["type"] == "abort"


def test_a_second_signal_skips_the_waiting(checkpoint: Path) -> None:
    with running(scripted(checkpoint, "slow", drain_s=60)) as server:
        thread, lines = start_stream(server, tokens=400)
        server.signal()
        time.sleep(0.2)
        server.signal()
        assert server.wait(5) == 0
        thread.join(5)
    assert finish_reason(lines)["type"] == "abort"


def test_a_step_that_never_ends_does_not_keep_the_process(checkpoint: Path) -> None:
    with running(scripted(checkpoint, "hang", drain_s=0.2)) as server:
        server.wait_for(READY)
        body = {"input_ids": [40]}
        with httpx.Client(trust_env=False) as client, pytest.raises(httpx.HTTPError):
            client.post(f"{server.url}/generate", json=body, timeout=0.3)
        server.signal()
        assert server.wait(12) == 0
        assert any("did not end in time" in line for line in server.log)


def test_a_load_that_never_ends_does_not_keep_the_process(checkpoint: Path) -> None:
    with running(scripted(checkpoint, "load-hang")) as server:
        server.wait_for("Loading ")
        server.signal()
        assert server.wait(5) == 0
        assert not any(READY in line for line in server.log)


def test_an_engine_that_breaks_ends_the_process_with_1(checkpoint: Path) -> None:
    with running(scripted(checkpoint, "lost")) as server:
        server.wait_for(READY)
        with httpx.Client(trust_env=False) as client:
            answer = client.post(f"{server.url}/generate", json={"input_ids": [40]})
        assert answer.status_code == 500
        assert "the device is lost" in answer.json()["error"]["message"]
        assert server.wait(10) == 1


def test_a_taken_port_is_a_sentence_and_exit_code_2(checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "specdec.cli", "serve", "--model", str(checkpoint)]
        with running([*command, "--port", port]) as server:
            assert server.wait(30) == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in server.log[-1]


def test_a_folder_without_a_tokenizer_is_a_sentence_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "specdec.cli", "serve", "--model", str(tmp_path)]
    with running([*command, "--port", "0"]) as server:
        assert server.wait(30) == 2
    assert "tokenizer.json does not exist" in server.log[-1]


def test_the_end_does_not_wait_for_the_exit_hooks_of_libraries(tmp_path: Path) -> None:
    hook = "import atexit, time; atexit.register(time.sleep, 600); "
    command = [sys.executable, "-c", f"{hook}from specdec.cli import main; main()"]
    with running([*command, "serve", "--model", str(tmp_path), "--port", "0"]) as server:
        assert server.wait(60) == 2
    assert "tokenizer.json does not exist" in server.log[-1]


def test_the_listening_socket_is_one_that_events_leave_without_delay() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
