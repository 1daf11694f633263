"""The pocketllm protocol against a live peer: the bundled engine's worker behind the adapter."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qualify.client.http import send
from qualify.client.reply import Reply
from qualify.engines.protocol import Capabilities, Sampling
from qualify.engines.ready import wait_ready
from qualify.engines.resolve import resolve
from qualify.engines.server import launch
from qualify.engines.spec import load_engine
from tests.engines.protocols import prompt

pytest.importorskip("torch")

SPEC = load_engine("cuda-worker")
NEW = Sampling(output_tokens=24)
PROMPT = tuple(range(100, 170))
LONGER = (*PROMPT, 7, 8, 9)


@dataclass
class Found:
    """What one launch said: of itself, to each prompt, and in its log."""

    able: Capabilities
    replies: list[Reply]
    log: str
    exit_code: int | None


def run(mode: str, folder: Path, *prompts: tuple[int, ...], profile: str = "cold") -> Found:
    resolved = resolve(SPEC, mode, profile, {"max-context": 512, "threads": 1})

    async def go() -> Found:
        async with launch(resolved, folder, "a") as server:
            await wait_ready(server, timeout_s=120)
            able = await server.protocol.capabilities()
            replies = []
            for ids in prompts:
                request = server.protocol.encode(prompt(*ids), NEW, request_id="r")
                replies.append(server.protocol.decode(await send(request)))
            assert server.process is not None
            ended = await server.process.stop()
        return Found(able, replies, (folder / "engine-a.log").read_text(), ended.code)

    return asyncio.run(go())


def engine_said(reply: Reply) -> dict[str, Any]:
    meta: dict[str, Any] = reply.extras["meta_info"]
    said: dict[str, Any] = meta["engine"]
    return said


def test_the_worker_has_every_mode_of_the_server() -> None:
    assert list(SPEC.modes) == list(load_engine("cuda").modes)


def test_every_mode_answers_the_same_tokens_and_counts_its_drafts(tmp_path: Path) -> None:
    answers = {}
    for mode, definition in SPEC.modes.items():
        folder = tmp_path / mode
        folder.mkdir()
        found = run(mode, folder, PROMPT)
        (reply,) = found.replies
        assert reply.failure is None
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (70, 24)
        assert reply.usage.cached_tokens == 0
        assert found.able.no_prefix_cache is True
        said = engine_said(reply)
        assert said["mode"] == mode
        assert 0 < said["prefill_seconds"] + said["decode_seconds"] <= said["wall"] + 1e-5
        spec = reply.speculation
        if definition.drafter == "none":
            assert spec is None
            assert said["mtp_verify_count"] == 0
        else:
            assert spec is not None
            assert spec.V
            assert spec.P
            counts = [spec.N0, spec.C, spec.V, spec.T]
            assert all(count is not None for count in counts)
            assert sum(c for c in counts if c is not None) - (spec.W or 0) == 24
        assert found.exit_code == 0
        answers[mode] = reply.ids
    assert len(set(answers.values())) == 1


def test_the_session_profile_goes_on_from_the_request_before(tmp_path: Path) -> None:
    found = run("mtp", tmp_path, PROMPT, PROMPT, LONGER, profile="session")
    assert found.able.no_prefix_cache is False
    reused = [reply.usage.cached_tokens for reply in found.replies]
    assert reused[0] == 0
    assert reused[1] == len(PROMPT) - 1
    assert reused[2] is not None
    assert reused[2] >= 64
    assert found.replies[0].ids == found.replies[1].ids
    assert engine_said(found.replies[1])["prefix_resume_source"] == "snapshot"
    assert "qwen_persistent_result=1" in found.log
