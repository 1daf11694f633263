"""Engines in real containers: ready, ours, logged, stopped, gone."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from qualify.engines import docker_client
from qualify.engines.exits import EngineExit
from qualify.engines.origin import origin_of
from qualify.engines.ready import Ready, wait_ready
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.server import launch
from qualify.errors import EngineError
from tests.engines.docker.boxes import boxed, left


def ready(resolved: ResolvedLaunch, folder: Path, timeout_s: float = 60.0) -> Ready:
    async def run() -> Ready:
        async with launch(resolved, folder, "r1.a#1") as server:
            return await wait_ready(server, timeout_s=timeout_s)

    return asyncio.run(run())


def stopped(resolved: ResolvedLaunch, folder: Path) -> EngineExit:
    async def run() -> EngineExit:
        async with launch(resolved, folder, "a") as server:
            await wait_ready(server, timeout_s=60)
            exit_ = await server.stop()
            assert exit_ is not None
            return exit_

    return asyncio.run(run())


def test_a_container_becomes_ready_is_ours_and_leaves_nothing(docker: Any, tmp_path: Path) -> None:
    async def run() -> tuple[Ready, dict[str, Any]]:
        async with launch(boxed(tmp_path), tmp_path, "r1.a#1") as server:
            got = await wait_ready(server, timeout_s=60)
            assert left(docker, tmp_path) == [f"qualify-{server.process.marker}"]  # type: ignore[union-attr]
            return got, origin_of(server)

    got, origin = asyncio.run(run())
    assert got.ours is True
    assert got.model == "toy-model"
    assert origin["kind"] == "docker"
    assert origin["container"]["image"]["id"] == docker.images.get("qualify-base:local").id
    assert origin["container"]["docker"]["version"]
    assert origin["env_inherited"] is None
    assert left(docker, tmp_path) == []
    assert (tmp_path / "engine-r1.a#1.log").read_text() == "toy: starting\n"


def test_a_stop_in_order_ends_with_the_engines_own_code(docker: Any, tmp_path: Path) -> None:
    assert stopped(boxed(tmp_path), tmp_path) == EngineExit(0, None)


def test_f073_f079_a_container_that_exits_at_once_fails_in_seconds_with_its_words(
    docker: Any, tmp_path: Path
) -> None:
    resolved = boxed(tmp_path, docker={"command": ["sh", "-c", "echo only line; exit 7"]})
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        ready(resolved, tmp_path, timeout_s=3600)
    assert time.monotonic() - began < 20
    assert "exit code 7" in caught.value.message
    assert (tmp_path / "engine-r1.a#1.log").read_text() == "only line\n"
    assert left(docker, tmp_path) == []


def test_f077_f079_what_a_dying_engine_says_is_kept_before_it_is_removed(
    docker: Any, tmp_path: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        ready(boxed(tmp_path, "--die-after-s", "1"), tmp_path, timeout_s=3600)
    assert time.monotonic() - began < 20
    assert "exit code 3" in caught.value.message
    assert "no memory for the model" in caught.value.remedy
    assert left(docker, tmp_path) == []


def test_f076_an_engine_that_ignores_sigterm_is_killed_after_its_grace(
    docker: Any, tmp_path: Path
) -> None:
    began = time.monotonic()
    exit_ = stopped(boxed(tmp_path, "--ignore-term", stop_s=1.0), tmp_path)
    assert exit_ == EngineExit(137, None, forced=True)
    assert time.monotonic() - began < 30
    assert left(docker, tmp_path) == []


def test_running_out_of_memory_is_named(docker: Any, tmp_path: Path) -> None:
    resolved = boxed(tmp_path, "--eat-mb", "400", docker={"memory": "64m"})
    with pytest.raises(EngineError, match=r"exit code 137 \(out of memory\)"):
        ready(resolved, tmp_path)


def test_f074_a_silent_container_outlasts_the_clients_timeout(
    docker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_client, "TIMEOUT_S", 1.0)
    resolved = boxed(tmp_path, "--load-s", "4", "--last-words", "weights loaded")

    async def run() -> Ready:
        async with launch(resolved, tmp_path, "a") as server:
            got = await wait_ready(server, timeout_s=60)
            await asyncio.sleep(0.5)
            return got

    assert asyncio.run(run()).waited_s > 3.5
    log = (tmp_path / "engine-a.log").read_text()
    assert log == "toy: starting\nweights loaded\n"


def test_a_chatty_container_is_logged_whole(docker: Any, tmp_path: Path) -> None:
    ready(boxed(tmp_path, "--chatter", "3000000"), tmp_path)
    log = (tmp_path / "engine-r1.a#1.log").read_bytes()
    assert log == b"toy: starting\n" + b"x" * 3_000_000 + b"\n"


def test_f080_a_port_that_another_container_holds_is_explained(docker: Any, tmp_path: Path) -> None:
    async def run() -> None:
        async with launch(boxed(tmp_path / "old"), tmp_path / "old", "old") as old:
            await wait_ready(old, timeout_s=60)
            fixed = boxed(tmp_path / "new", docker={"port": old.port})
            async with launch(fixed, tmp_path / "new", "new"):
                pass

    with pytest.raises(
        EngineError, match=r"in use by container qualify-old\..* of image"
    ) as caught:
        asyncio.run(run())
    assert "doctor --sweep" in caught.value.remedy
    assert left(docker, tmp_path / "old") == []


def test_f080_a_port_that_a_process_holds_is_explained(docker: Any, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        resolved = boxed(tmp_path, docker={"port": taken.getsockname()[1]})
        with pytest.raises(EngineError, match=r"in use by .*pytest|in use by python"):
            ready(resolved, tmp_path)


def test_cancelling_a_start_leaves_no_container(docker: Any, tmp_path: Path) -> None:
    async def start() -> None:
        async with launch(boxed(tmp_path), tmp_path, "a"):
            await asyncio.sleep(60)

    async def run(after_s: float) -> None:
        task = asyncio.ensure_future(start())
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for after_s in (0.05, 0.3, 1.0):
        asyncio.run(run(after_s))
        assert left(docker, tmp_path) == []


def test_a_second_ctrl_c_kills_at_once(docker: Any, tmp_path: Path) -> None:
    async def run() -> float:
        resolved = boxed(tmp_path, "--ignore-term", stop_s=300)
        async with launch(resolved, tmp_path, "a") as server:
            await wait_ready(server, timeout_s=60)
            stopping = asyncio.ensure_future(server.stop())
            await asyncio.sleep(0.5)
            began = time.monotonic()
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            return time.monotonic() - began

    assert asyncio.run(run()) < 20
    assert left(docker, tmp_path) == []
