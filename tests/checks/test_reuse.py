"""A kept prefix must change no byte, and what is claimed of it must show in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qualify.checks.verdict import Verdict
from tests.checks.probing import judged
from tests.scripted_engine.engine import ScriptedEngine
from tests.scripted_engine.generation import Ask
from tests.scripted_engine.server import Answer, Seen

OPTIONS = {"tokens": 256}


class Sound(ScriptedEngine):
    """Half a millisecond of prefill a token that is not cached."""

    def __init__(self, **more: Any) -> None:
        given = {"ttft_ms": 5, "ttft_ms_per_token": 0.5, "step_ms": 1}
        super().__init__("sglang", accept=(3, 0, 2), **{**given, **more})


class WrongOverBranch(Sound):
    """Past an interior branch it goes on with the state of the other branch."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        cached = self.cache.match(ask.prompt)
        self.diverge_at = 4 if cached == 128 and len(ask.prompt) == 256 else None
        return super().generate(seen, ask, shape, too_long)


class ClaimsTooMuch(Sound):
    """It reports more than it was ever sent of this prompt."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        answer = super().generate(seen, ask, shape, too_long)
        if 0 < self.generations[-1].cached_tokens < len(ask.prompt) - 1:
            self.generations[-1].cached_tokens += 32
        return answer


class ClaimsAndComputes(Sound):
    """It claims a reuse, and its TTFT is that of a cold prompt."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        cached = self.cache.match(ask.prompt)
        self.ttft_ms = 5 + 0.5 * cached
        return super().generate(seen, ask, shape, too_long)


class HidesItsReuse(Sound):
    """It reuses, and reports 0 but for a token."""

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        cached = self.cache.match(ask.prompt)
        told = min(cached, 1)
        self.ttft_ms = 5 - 0.5 * (cached - told)
        answer = super().generate(seen, ask, shape, too_long)
        self.generations[-1].cached_tokens = told
        return answer


FLAWS: list[tuple[type[Sound], str]] = [
    (WrongOverBranch, "branch: the answer over a kept prefix is another than cold (token 4"),
    (ClaimsTooMuch, "tokens are claimed as reused, and only"),
    (ClaimsAndComputes, "TTFT is that of a cold prompt"),
    (HidesItsReuse, "something was reused and not said"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """What is said of the unmodified server, once for all tests that hold a fault against it."""
    return judged(tmp_path_factory.mktemp("reuse") / "sound", Sound(), "reuse", OPTIONS)


def test_a_sound_cache_passes_with_what_each_case_reused(sound: Verdict) -> None:
    verdict = sound
    assert verdict.outcome == "pass", verdict.sentence
    cases = verdict.evidence["cases"]
    # What the parts of the prompts share, cut by hand; the last token is always computed.
    assert {c: r["cached_tokens"] for c, r in cases.items()} == {
        "initial": 0,
        "exact": 255,
        "append": 256 + 16,
        "shorter": 191,
        "branch": 128,
        "compressed": 64,
    }
    assert "TTFT says nothing" not in verdict.sentence


@pytest.mark.parametrize(("flawed", "named"), FLAWS, ids=lambda f: getattr(f, "__name__", None))
def test_a_planted_fault_is_named_and_the_sound_server_passes(
    tmp_path: Path, sound: Verdict, flawed: type[Sound], named: str
) -> None:
    assert sound.outcome == "pass", sound.sentence
    verdict = judged(tmp_path / "flawed", flawed(), "reuse", OPTIONS)
    assert verdict.outcome == "fail", verdict.sentence
    assert named in verdict.sentence


def test_where_fixed_costs_hide_the_prefill_time_is_no_witness(tmp_path: Path) -> None:
    flat = Sound(ttft_ms=60, ttft_ms_per_token=0.0)
    verdict = judged(tmp_path / "flat", flat, "reuse", OPTIONS)
    assert verdict.outcome == "pass"
    assert "TTFT says nothing" in verdict.sentence


def test_an_engine_that_reports_no_reuse_is_inconclusive(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "silent", Sound(report_cached=False), "reuse", OPTIONS)
    assert verdict.outcome == "inconclusive"
    assert "does not report its reuse" in verdict.sentence


class CannotBeEmptied(Sound):
    """It answers 200 to a flush and keeps what it has."""

    def flush(self) -> int:
        self.flushes.append((0.0, 200))
        return 200


def test_a_cache_that_cannot_be_emptied_gives_nothing_to_compare_with(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "kept", CannotBeEmptied(), "reuse", OPTIONS)
    assert verdict.outcome == "inconclusive"
    assert "could not be emptied" in verdict.sentence


def test_a_cache_of_whole_pages_reuses_less_and_passes(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "pages", Sound(page=100), "reuse", OPTIONS)
    assert verdict.outcome == "pass", verdict.sentence
    assert verdict.evidence["cases"]["compressed"]["cached_tokens"] == 0
