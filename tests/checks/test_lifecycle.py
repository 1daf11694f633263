"""Each incident, planted: the server that it harms is named, and the sound one passes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from qualify.checks.lifecycle import check
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.store import load_run
from tests.checks.probing import judged, probing_plan
from tests.run.drive import drive, engine
from tests.scripted_engine.engine import ScriptedEngine
from tests.scripted_engine.generation import Ask
from tests.scripted_engine.server import Answer, Seen
from tests.scripted_engine.wire import json_play

# Wide limits: these steps are of a millisecond, on machines that do other work.
OPTIONS = {"tokens": 96, "idle_s": 0.3, "median_ratio": 2.0, "tail_ratio": 50.0}
REFUSED = {"error": {"message": "DFLASH does not support return_logprob yet."}}


class Sound(ScriptedEngine):
    """A block drafter's server: it may not score its tokens, and says so with 400."""

    status_of_scores = 400
    ttft = 10.0

    def __init__(self, **more: Any) -> None:
        given = {"ttft_ms": self.ttft, "ttft_ms_per_token": 0.05, "step_ms": 1.5, "context": 400}
        super().__init__("sglang", accept=(3, 0, 2), **{**given, **more})

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        if ask.body.get("return_logprob"):
            return json_play(REFUSED, self.status_of_scores)
        return super().generate(seen, ask, shape, too_long)


class SlowAfterFlush(Sound):
    """Its graphs are torn down in a flush and captured again, badly."""

    def flush(self) -> int:
        status = super().flush()
        if len(self.flushes) > 2:  # that of the cell, and the one before the first requests
            self.step_ms = 8
        return status


class LostAfterFlush(Sound):
    """The first generation after a flush of something that was generated is the last."""

    def flush(self) -> int:
        status = super().flush()
        if len(self.flushes) > 2:
            self.faults[len(self.generations) + 1] = "http-500"
        return status


class KeepsThroughFlush(Sound):
    """It answers 200 to a flush and keeps what it has."""

    def flush(self) -> int:
        held = self.cache
        status = super().flush()
        self.cache = type(held)()
        for generation in self.generations:
            self.cache.add(generation.prompt)
        return status


class WrongAfterCancel(Sound):
    """A prefill that was cancelled leaves half a prefix, and the next one goes on from it."""

    phase = "prefill"
    ttft = 100.0  # a busy machine must not miss the moment of its prefill

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        left = [g for g in self.generations if g.ended == "left" and g.prompt == ask.prompt]
        hit = any(bool(g.events) == (self.phase == "decode") for g in left)
        # A flush mends it: what was half is gone then.
        mended = bool(left) and bool(self.flushes) and self.flushes[-1][0] > left[-1].seen.t_request
        self.diverge_at = 5 if hit and not mended else None
        return super().generate(seen, ask, shape, too_long)


class WrongAfterCancelInDecode(WrongAfterCancel):
    phase = "decode"


class WrongOverShiftedPrefix(Sound):
    """Turns of a session over a kept prefix are answered from stale state."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        cached = self.cache.match(ask.prompt)
        self.diverge_at = 3 if 0 < cached < len(ask.prompt) - 1 else None
        return super().generate(seen, ask, shape, too_long)


class SleepsForGood(Sound):
    """A moment without requests, and it does not wake up again."""

    last = time.perf_counter()

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        idle_s, self.last = time.perf_counter() - self.last, time.perf_counter()
        if len(self.generations) > 20 and idle_s > 0.3:
            self.faults[len(self.generations)] = "http-500"
        return super().generate(seen, ask, shape, too_long)


class CrashesOnScores(Sound):
    status_of_scores = 500


class HarmedByRefusal(Sound):
    """It refuses as it should, and answers otherwise from then on."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        if ask.body.get("return_logprob"):
            self.diverge_at = 0
        return super().generate(seen, ask, shape, too_long)


class TakesTooLong(Sound):
    """It cuts a prompt that is too long instead of refusing it."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        self.context, said = 1 << 20, self.context
        try:
            return super().generate(seen, ask, shape, too_long)
        finally:
            self.context = said


FLAWS: list[tuple[type[Sound], str]] = [
    (SlowAfterFlush, "median TPOT after the flush"),
    (LostAfterFlush, "flush: prose@"),
    (KeepsThroughFlush, "flush: 2 requests after it still reused cached tokens"),
    (WrongAfterCancel, "cancel in prefill"),
    (WrongAfterCancelInDecode, "cancel in decode"),
    (WrongOverShiftedPrefix, "a session of 12 turns"),
    (SleepsForGood, "an idle gap"),
    (CrashesOnScores, "a refused request (logprobs): answered with 500"),
    (HarmedByRefusal, "a refused request (logprobs)"),
    (TakesTooLong, "a refused request (too-long): 401 tokens were taken"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """What is said of the unmodified server, once for all tests that hold a fault against it."""
    folder = tmp_path_factory.mktemp("lifecycle") / "sound"
    return judged(folder, Sound(ttft_ms=100), "lifecycle", OPTIONS)


def test_a_sound_server_passes_every_incident(sound: Verdict) -> None:
    verdict = sound
    assert verdict.outcome == "pass", verdict.sentence
    outcomes = {name: part["outcome"] for name, part in verdict.evidence["parts"].items()}
    assert {n for n, o in outcomes.items() if o == "not-run"} == {"clean SIGTERM"}  # attached
    assert {n for n, o in outcomes.items() if o == "pass"} == {
        "flush",
        "median TPOT after the flush",
        "p99 TPOT after the flush",
        "cancel in prefill",
        "cancel in decode",
        "a session of 12 turns",
        "an idle gap",
        "a refused request (logprobs)",
        "a refused request (too-long)",
        "memory given back",
    }
    assert "which is short" in verdict.sentence  # 96 tokens are no 8K


@pytest.mark.parametrize(("flawed", "named"), FLAWS, ids=lambda f: getattr(f, "__name__", None))
def test_a_planted_fault_is_named_and_the_sound_server_passes(
    tmp_path: Path, sound: Verdict, flawed: type[Sound], named: str
) -> None:
    assert sound.outcome == "pass", sound.sentence
    verdict = judged(tmp_path / "flawed", flawed(), "lifecycle", OPTIONS)
    assert verdict.outcome == "fail"
    assert named in verdict.sentence


def test_a_server_that_does_not_hear_sigterm_is_named_and_one_that_does_passes(
    tmp_path: Path,
) -> None:
    told = {}
    for name, options in (("sound", ()), ("deaf", ("--ignore-sigterm",))):
        folder = tmp_path / name
        folder.mkdir()
        resolver = engine(folder, "--step-ms", "1.5", "--context", "400", *options)
        file = folder / "engine.yaml"
        file.write_text(file.read_text().replace("stop_s: 5", "stop_s: 1"))
        drive(folder / "run", probing_plan("lifecycle", OPTIONS), engine_at(file, resolver))
        run = load_run(folder / "run")
        (told[name],) = check(run, Settings(run.plan.checks))
    assert told["sound"].outcome == "pass", told["sound"].sentence
    assert told["sound"].evidence["parts"]["clean SIGTERM"]["outcome"] == "pass"
    assert told["deaf"].outcome == "fail"
    assert "clean SIGTERM: r1.mtp#1 did not end within its grace time" in told["deaf"].sentence


def engine_at(file: Path, resolver: Any) -> Any:
    """The resolver of the definition as it stands in the file now."""
    from qualify.engines.resolve import resolve
    from qualify.engines.spec import load_engine

    definition = load_engine(file)
    return lambda mode: resolve(definition, mode)
