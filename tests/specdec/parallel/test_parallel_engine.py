"""What breaks beside the engine's thread ends the engine, whatever the thread is doing."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

import specdec.engine
from scripted_runner import ScriptedRunner
from server_checkpoint import build_checkpoint
from server_live import Live, serve
from specdec.tokenizer import Tokenizer

SENTENCE = "Rank 1 (process 7) was ended by SIGKILL."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(build_checkpoint(tmp_path_factory.mktemp("checkpoint")))


def told_broken(live: Live) -> threading.Event:
    told = threading.Event()
    live.engine.on_broken = told.set
    return told


def test_an_idle_engine_breaks_at_once_and_takes_nothing_more(tokenizer: Tokenizer) -> None:
    with serve(ScriptedRunner, tokenizer) as live:
        told = told_broken(live)
        live.engine.fail(SENTENCE)
        assert told.wait(2)
        assert live.engine.broken == f"The engine failed: {SENTENCE}"
        assert live.client.get("/health").status_code == 503
        refused = live.client.post("/generate", json={"input_ids": [5]})
        assert refused.status_code == 503
        assert SENTENCE in refused.text


def test_a_running_request_is_told_why(tokenizer: Tokenizer) -> None:
    runner = ScriptedRunner(pause_s=0.02)
    with serve(lambda: runner, tokenizer) as live:
        told = told_broken(live)
        body = {
            "input_ids": [5, 6], "stream": True,
            "sampling_params": {"max_new_tokens": 400, "temperature": 0, "ignore_eos": True},
        }  # fmt: skip
        with live.client.stream("POST", "/generate", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            live.engine.fail(SENTENCE)
            rest = "\n".join(lines)
        assert told.wait(2)
        assert SENTENCE in rest
        assert rest.rstrip().endswith("data: [DONE]")


def test_a_thread_that_hangs_in_a_step_is_given_up(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specdec.engine, "GIVE_UP_S", 0.3)
    hanging, release = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        release.wait(20)

    runner = ScriptedRunner(before_step=hang)
    with serve(lambda: runner, tokenizer) as live:
        told = told_broken(live)
        asking = threading.Thread(
            target=lambda: live.client.post("/generate", json={"input_ids": [5, 6]})
        )
        asking.start()
        assert hanging.wait(10)
        begin = time.monotonic()
        live.engine.fail(SENTENCE)
        assert told.wait(5)
        assert time.monotonic() - begin >= 0.3
        assert live.engine.broken == f"The engine failed: {SENTENCE}"
        assert not live.engine.alive
        release.set()
        asking.join(10)


def test_the_runner_is_closed_when_the_engine_stops(tokenizer: Tokenizer) -> None:
    closed = threading.Event()

    class Closing(ScriptedRunner):
        def close(self) -> None:
            closed.set()

    with serve(Closing, tokenizer):
        assert not closed.is_set()
    assert closed.wait(5)
