"""Many mixed requests on the real core: same bytes for the same prompt, and nothing left behind."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path

import httpx
import pytest
from server_live import Live, serve
from specdec.contract import Mode
from specdec.tokenizer import Tokenizer
from test_server_real import loader


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
        body = {
            "input_ids": [3 + (7 * key + j * j) % 370 for j in range(5 + 13 * key)],
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": (5, 30, 90)[key % 3],
                "ignore_eos": True,
            },
        }
        kind = dice.random()
        if kind < 0.1:
            self._live.client.post("/flush_cache")
        elif kind < 0.4:
            with contextlib.suppress(httpx.TimeoutException):
                self._live.client.post("/generate", json=body, timeout=0.3 * dice.random())
        else:
            output = tuple(self._live.generate(**body)["output_ids"])
            with self._lock:
                self.outputs.setdefault(key, set()).add(output)
                self.answered += 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["target-only", "mtp"])
def test_a_long_mix_gives_one_answer_for_each_prompt_and_leaves_nothing(
    checkpoint: Path, tokenizer: Tokenizer, mode: Mode
) -> None:
    with serve(loader(checkpoint, mode=mode, max_total_tokens=512), tokenizer) as live:
        crowd = Crowd(live, requests=500)
        crowd.run()
        assert live.client.post("/flush_cache?timeout=30").status_code == 200
        totals, runner = live.engine.scheduler.totals, live.engine.scheduler.runner
        assert crowd.answered > 200
        assert totals.retractions > 0
        assert totals.aborted_requests > 0
        assert {key: len(found) for key, found in crowd.outputs.items()} == dict.fromkeys(
            crowd.outputs, 1
        )
        assert runner.free_slots == live.engine.info.max_running_requests
        assert runner.pool.used_tokens == 0
        runner.pool.check_integrity()
