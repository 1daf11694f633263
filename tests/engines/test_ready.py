"""Alive, ready and ours, with real processes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from qualify.engines.ready import Ready, wait_ready
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.server import launch
from qualify.engines.spec import load_engine
from qualify.errors import EngineError, UsageError
from tests.engines.toys import toy


def ready(resolved: ResolvedLaunch, folder: Path, timeout_s: float = 20.0) -> Ready:
    async def run() -> Ready:
        async with launch(resolved, folder, "r1.a#1") as server:
            return await wait_ready(server, timeout_s=timeout_s)

    return asyncio.run(run())


def test_a_server_that_loads_for_a_while_is_waited_for(tmp_path: Path) -> None:
    seen: list[str] = []

    async def run() -> Ready:
        async with launch(toy(tmp_path, "--load-s", "0.8"), tmp_path, "a") as server:
            return await wait_ready(server, timeout_s=20, progress=lambda d, _: seen.append(d))

    got = asyncio.run(run())
    assert got.waited_s >= 0.7
    assert got.ours is True
    assert got.model == "toy-model"
    assert "503: Loading model" in seen
    assert seen[-1] == "ready"


def test_readiness_asks_and_never_generates(tmp_path: Path) -> None:
    log = tmp_path / "seen"
    ready(toy(tmp_path, "--load-s", "0.3", "--seen", str(log)), tmp_path)
    lines = log.read_text().splitlines()
    assert lines
    assert all(line.startswith("GET ") for line in lines), lines


def test_an_engine_that_dies_at_start_fails_at_once_with_its_last_lines(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        ready(toy(tmp_path, "--die-after-s", "0.3"), tmp_path, timeout_s=3600)
    assert time.monotonic() - began < 10
    assert "exit code 3" in caught.value.message
    assert "no memory for the model" in caught.value.remedy


def test_patience_ends_with_the_last_thing_seen(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"not ready after 1 s: 503: Loading model") as caught:
        ready(toy(tmp_path, "--load-s", "60"), tmp_path, timeout_s=1.0)
    assert "start_timeout_s" in caught.value.remedy


def test_a_server_that_answers_another_name_is_refused(tmp_path: Path) -> None:
    resolved = toy(tmp_path, "--alias", "yesterdays")  # the later flag wins
    with pytest.raises(EngineError, match="'yesterdays', and 'toy-model' was started"):
        ready(resolved, tmp_path)


def test_a_foreign_server_on_the_port_is_refused_before_it_is_believed(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "old").mkdir()
        (tmp_path / "new").mkdir()
        async with launch(toy(tmp_path / "old"), tmp_path / "old", "old") as old:
            await wait_ready(old, timeout_s=20)
            # The new one lives, but another already listens where it should.
            async with launch(
                toy(tmp_path / "new", "--die-after-s", "60"), tmp_path / "new", "new"
            ) as new:
                confused = replace(new, base_url=old.base_url, protocol=old.protocol)
                await wait_ready(confused, timeout_s=20)

    with pytest.raises(EngineError, match=r"is not what listens on port .*toy_server\.py"):
        asyncio.run(run())


def test_an_attached_server_is_described_and_never_stopped(tmp_path: Path) -> None:
    async def run() -> Ready:
        async with launch(toy(tmp_path), tmp_path, "own") as own:
            await wait_ready(own, timeout_s=20)
            spec = load_engine(tmp_path)
            attached = resolve(spec, "target-only", attach_url=own.base_url)
            async with launch(attached, tmp_path, "a") as server:
                got = await wait_ready(server, timeout_s=20)
                assert await server.stop() is None
                assert server.pid is None
                assert server.log_tail() == ""
            assert own.alive()
            assert (await own.protocol.readiness()).ready
            return got

    got = asyncio.run(run())
    assert got.ours is None
    assert got.model == "toy-model"


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    toy(tmp_path)
    with pytest.raises(UsageError, match=r"http://127\.0\.0\.1"):
        resolve(load_engine(tmp_path), "target-only", attach_url="localhost:30000")


def test_a_missing_module_is_named_with_the_extra_that_brings_it(tmp_path: Path) -> None:
    resolved = replace(toy(tmp_path), module="no_such_module", extra="llama-cpp")
    with pytest.raises(EngineError) as caught:
        ready(resolved, tmp_path)
    assert "no_such_module" in caught.value.message
    assert "qualify[llama-cpp]" in caught.value.remedy
