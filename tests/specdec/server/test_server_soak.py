"""Many mixed requests on the real core: same bytes for the same prompt, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from server_live import Live, serve
from specdec.tokenizer import Tokenizer
from test_server_real import loader


def body_of(key: int) -> dict[str, Any]:
    """One of twelve requests."""
    return {
        "input_ids": [3 + (7 * key + j * j) % 370 for j in range(5 + 13 * key)],
        "sampling_params": {
            "temperature": 0,
            "max_new_tokens": (5, 30, 90)[key % 3],
            "ignore_eos": True,
        },
    }


class Crowd:
    """Ten clients that generate, leave early and flush, each request chosen by its number."""

    def __init__(self, live: Live, requests: int) -> None:
        self._live = live
        self._numbers = iter(range(requests))
        self._lock = threading.Lock()
        self.outputs: dict[int, set[tuple[int, ...]]] = {}
        self.answered = 0

    def run(self) -> None:
        threads = [threading.Thread(target=self._client) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            self._request(random.Random(number))

    def _request(self, dice: random.Random) -> None:
        key = dice.randrange(12)
        body = body_of(key)
        kind = dice.random()
        if kind < 0.1:
            self._live.client.post("/flush_cache")
        elif kind < 0.4:
            with contextlib.suppress(httpx.TimeoutException):
                self._live.client.post("/generate", json=body, timeout=0.3 * dice.random())
        else:
            # Patient, as all of it may wait for a machine that others use too.
            answer = self._live.client.post("/generate", json=body, timeout=300)
            output = tuple(answer.json()["output_ids"])
            with self._lock:
                self.outputs.setdefault(key, set()).add(output)
                self.answered += 1


MODES: dict[str, dict[str, Any]] = {
    "target-only": {"mode": "target-only"},
    "mtp": {"mode": "mtp"},
    "dflash2": {"mode": "dflash2", "draft_kv": "ring"},
    "dspark": {"mode": "dspark"},
}


def tensor_bytes() -> int:
    """What all tensors of this process take, each memory counted once."""
    gc.collect()
    sizes = {}
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found.layout is torch.strided:
            memory = found.untyped_storage()
            sizes[memory.data_ptr()] = memory.nbytes()
    return sum(sizes.values())


@pytest.mark.parametrize(
    "requests", [24, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("mode", MODES)
def test_a_mix_gives_one_answer_for_each_prompt_and_leaves_nothing(
    checkpoint: Path, tokenizer: Tokenizer, mode: str, requests: int
) -> None:
    load = loader(checkpoint, max_total_tokens=512, prefix_cache=True, **MODES[mode])
    with serve(load, tokenizer) as live:
        runner = live.engine.scheduler.runner

        def empty() -> tuple[int, ...]:
            """After a flush: what is held, and how much memory there is."""
            assert live.client.post("/flush_cache?timeout=60").status_code == 200
            runner.check_integrity()
            pages, kept = runner.pool, runner.cache_size
            held = (pages.used_tokens, kept.pages, kept.snapshots, kept.snapshot_bytes)
            return (runner.free_slots, pages.free_tokens, *held, tensor_bytes())

        for key in range(12):  # tables that grow with the longest prompt have grown
            live.generate(**body_of(key))
        before = empty()
        crowd = Crowd(live, requests)
        crowd.run()
        assert empty() == before
        assert before[:6] == (live.engine.info.max_running_requests, 512, 0, 0, 0, 0)
        totals = live.engine.scheduler.totals
        assert crowd.answered > requests * 0.4
        if requests >= 500:
            assert totals.cached_tokens > 0
            assert totals.retractions > 0
            assert totals.aborted_requests > 0
        assert {key: len(found) for key, found in crowd.outputs.items()} == dict.fromkeys(
            crowd.outputs, 1
        )
