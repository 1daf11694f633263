"""Cold is proven, not assumed."""

from __future__ import annotations

from qualify.checks import cold, prefill, warmth
from qualify.checks.settings import Settings
from tests.factory import Maker, Work, editing, where

S = Settings()


def test_a_planted_prompt_and_zero_on_every_request_prove_a_bypass() -> None:
    verdict = cold.check(Maker().build(), S)[0]
    assert verdict.outcome == "pass"
    assert "bypass" in verdict.sentence
    assert "200 on a planted warm prompt" in verdict.sentence


def test_one_request_with_cached_tokens_fails_and_says_how_many() -> None:
    edit = editing(where(index=2), usage__cached_tokens=192)
    verdict = cold.check(Maker(edit=edit, self_parity=False).build(), S)[0]
    assert verdict.outcome == "fail"
    assert "192 cached prompt tokens" in verdict.sentence


def test_an_unreported_cache_count_is_not_zero() -> None:
    edit = editing(where(index=2), usage__cached_tokens=None)
    verdict = cold.check(Maker(edit=edit).build(), S)[0]
    assert verdict.outcome == "inconclusive"
    assert "unknown is not zero" in verdict.sentence


def test_a_counter_that_never_moved_proves_nothing() -> None:
    for planted in (None, 0):
        verdict = cold.check(Maker(planted_cached=planted).build(), S)[0]
        assert verdict.outcome == "inconclusive"
        assert "proves nothing" in verdict.sentence


def test_a_flush_without_200_fails() -> None:
    def refused(end):  # type: ignore[no-untyped-def]
        end.evidence["cold"]["flush"] = {"status": 400, "ok": False}
        return end

    assert cold.check(Maker(method="flush", edit_end=refused).build(), S)[0].outcome == "fail"
    assert cold.check(Maker(method="flush").build(), S)[0].outcome == "pass"


def test_neither_flush_nor_bypass_is_inconclusive() -> None:
    assert cold.check(Maker(method="none").build(), S)[0].outcome == "inconclusive"


def test_an_engine_that_states_it_keeps_no_cache_needs_no_planted_prompt() -> None:
    assert cold.check(Maker(method="no-cache", planted_cached=None).build(), S)[0].outcome == "pass"


def test_f044_ttft_that_stays_flat_over_a_long_context_fails_the_second_witness() -> None:
    flat = editing(where(), timing__ttft_s=lambda r: 0.41 + r.tokens / 3e6)
    run = Maker(works=(Work(tokens=(8192, 16384, 32768)),), edit=flat, self_parity=False).build()
    verdict = prefill.check(run, S)[0]
    assert verdict.outcome == "fail"
    assert "TTFT does not grow with prompt length in cold cells" in verdict.sentence


def test_ttft_that_grows_with_the_prompt_passes_the_second_witness() -> None:
    run = Maker(works=(Work(tokens=(8192, 32768)),), self_parity=False).build()
    assert prefill.check(run, S)[0].outcome == "pass"


def test_flat_short_shapes_convict_only_where_the_cache_count_is_unknown() -> None:
    flat = editing(where(), timing__ttft_s=0.02)
    run = Maker(works=(Work(tokens=(128, 512)),), edit=flat, self_parity=False).build()
    assert prefill.check(run, S)[0].outcome == "pass"
    blind = editing(where(), timing__ttft_s=0.02, usage__cached_tokens=None)
    run = Maker(works=(Work(tokens=(128, 512)),), edit=blind, self_parity=False).build()
    assert prefill.check(run, S)[0].outcome == "fail"


def test_one_shape_gives_no_second_witness_and_says_so() -> None:
    verdict = prefill.check(Maker().build(), S)[0]
    assert verdict.outcome == "not-run"
    assert not verdict.demanded


def test_a_session_records_the_reuse_of_each_turn() -> None:
    work = Work(cache="session", count=2)

    def turns(record):  # type: ignore[no-untyped-def]
        late = editing(where(index=1), turn=1, usage__cached_tokens=200)
        return late(record)

    verdict = warmth.check(Maker(works=(work,), edit=turns, self_parity=False).build(), S)[0]
    assert verdict.outcome == "pass"
    assert [t["reused_tokens"] for t in verdict.evidence["turns"]] == [0, 200]


def test_a_warm_cell_without_reuse_fails() -> None:
    verdict = warmth.check(Maker(works=(Work(cache="warm"),)).build(), S)[0]
    assert verdict.outcome == "fail"
