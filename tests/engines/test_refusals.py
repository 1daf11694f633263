"""An attached server that will never serve us is told at once; one that loads is waited for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from qualify.engines.ready import Ready, wait_ready
from qualify.engines.resolve import resolve
from qualify.engines.server import launch
from qualify.engines.spec import load_engine
from qualify.errors import EngineError
from tests.engines.toys import toy

PROTOCOLS = ("sglang", "vllm", "llamacpp", "openai")
MODEL = '{"data": [{"id": "m"}], "model_path": "m", "served_model_name": "m", "model_alias": "m"}'


@contextmanager
def answering(*statuses: int) -> Iterator[str]:
    """A server that answers each request with the next status, and the last one for ever."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = left.pop(0) if len(left) > 1 else left[0]
            body = MODEL.encode() if status == 200 else b"go away"
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", "https://elsewhere.example/login")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def waiting(folder: Path, protocol: str, statuses: Sequence[int], timeout_s: float) -> Ready:
    toy(folder)

    async def run() -> Ready:
        with answering(*statuses) as url:
            resolved = resolve(load_engine(folder), "target-only", attach_url=url)
            resolved = replace(resolved, protocol=protocol, alias=None)
            async with launch(resolved, folder, "r1.a#1") as server:
                return await wait_ready(server, timeout_s=timeout_s)

    return asyncio.run(run())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("status", "says", "remedy"),
    [
        (401, "asks for a key", "without one"),
        (403, "does not let us in", "Let requests"),
        (404, "does not know that path", "Check the address"),
        (302, "redirects to https://elsewhere.example/login", "Attach to that address"),
    ],
)
def test_an_attached_server_that_refuses_us_is_told_at_once(
    tmp_path: Path, protocol: str, status: int, says: str, remedy: str
) -> None:
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        waiting(tmp_path, protocol, [status], timeout_s=3600)
    assert time.monotonic() - began < 10
    assert f"with {status}: it {says}" in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("status", [503, 502, 500, 429])
def test_an_attached_server_that_is_loading_is_waited_for(
    tmp_path: Path, protocol: str, status: int
) -> None:
    got = waiting(tmp_path, protocol, [status, status, 200], timeout_s=30)
    assert got.waited_s >= 0.1
    assert got.model == "m"


def test_a_server_started_here_may_learn_its_paths_late(tmp_path: Path) -> None:
    resolved = toy(tmp_path, "--load-s", "0.5", "--load-status", "404")

    async def run() -> Ready:
        async with launch(resolved, tmp_path, "a") as server:
            return await wait_ready(server, timeout_s=20)

    assert asyncio.run(run()).waited_s >= 0.4
