"""A real HTTP server in a thread, around any runner, and a client for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from specdec.contract import DecodeRunner
from specdec.engine import Engine
from specdec.http.state import ServerState
from specdec.metrics import Metrics
from specdec.reporter import Reporter
from specdec.serve import bind
from specdec.server import build_app
from specdec.settings import ServeSettings
from specdec.tokenizer import Tokenizer


@dataclass
class Live:
    """A running server. `client` speaks to it; `engine` may be looked into."""

    client: httpx.Client
    engine: Engine
    state: ServerState
    url: str
    loop: asyncio.AbstractEventLoop

    def generate(self, **body: Any) -> dict[str, Any]:
        """A `/generate` that must succeed."""
        answer = self.client.post("/generate", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The payloads of a stream, which must end with [DONE]."""
        with self.client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            raw = b"".join(answer.iter_raw())
        blocks = raw.decode("utf-8").split("\n\n")
        assert blocks[-2:] == ["data: [DONE]", ""]
        return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


@contextmanager
def serve(
    load_runner: Callable[[], DecodeRunner],
    tokenizer: Tokenizer,
    settings: ServeSettings | None = None,
) -> Iterator[Live]:
    """Serve on a free port of the loopback until the block ends."""
    settings = settings or ServeSettings(Path("checkpoint"))
    listener = bind("127.0.0.1", 0)
    up = threading.Event()
    box: dict[str, Any] = {}

    async def main() -> None:
        metrics = Metrics(settings.model_name) if settings.enable_metrics else None
        reporter = Reporter(
            settings.decode_log_interval, histograms=metrics.histograms if metrics else None
        )
        engine = Engine(load_runner, tokenizer, reporter, settings.max_queued_requests)
        try:
            await engine.start()
        except Exception as error:
            box["error"] = error
            up.set()
            return
        state = ServerState(settings, engine, tokenizer, metrics)
        config = uvicorn.Config(build_app(state), log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        box.update(engine=engine, state=state, server=server, loop=asyncio.get_running_loop())
        up.set()
        await server.serve(sockets=[listener])
        assert await engine.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert up.wait(60), "the server did not start"
    if "error" in box:
        raise box["error"]
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
        yield Live(client, box["engine"], box["state"], url, box["loop"])
    box["server"].should_exit = True
    thread.join(20)
    assert not thread.is_alive(), "the server did not stop"


def with_settings(**changes: Any) -> ServeSettings:
    """Default settings with changes."""
    return replace(ServeSettings(Path("checkpoint"), served_model_name="tiny"), **changes)
