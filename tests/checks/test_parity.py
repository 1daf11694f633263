"""Byte parity needs a baseline; a difference fails, and triage is evidence only."""

from __future__ import annotations

from typing import Any

from qualify.checks import expect, parity
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.schema import Record
from tests.factory import Maker, Mode, Work, drafting, editing, target, where

PAIR = {"target-only": target(), "mtp": drafting()}


def changed(at: int) -> Any:
    def ids(record: Record) -> tuple[int, ...]:
        old = record.output_ids or ()
        return (*old[:at], old[at] + 1, *old[at + 1 :])

    return ids


def judged(maker: Maker, checks: dict[str, Any] | None = None) -> dict[str, Verdict]:
    settings = Settings(checks or {})
    return {v.subject: v for v in parity.check(maker.build(), settings)}


SELF = "target-only against itself, prose@256/c1"
MTP = "mtp against target-only, prose@256/c1"


def test_the_baseline_is_compared_with_itself_before_any_pair() -> None:
    found = judged(Maker(sides=PAIR))
    assert list(found) == [SELF, MTP]
    assert {v.outcome for v in found.values()} == {"pass"}
    assert found[MTP].evidence["prompts_compared"] == 4
    assert found[MTP].evidence["tokens_compared"] == 4 * 32
    assert found[MTP].evidence["differing_rate_below"] == 3 / 4


def test_one_different_token_fails_and_shows_where() -> None:
    found = judged(
        Maker(sides=PAIR, edit=editing(where(side="mtp", index=2), output_ids=changed(5)))
    )
    assert found[SELF].outcome == "pass"
    assert found[MTP].outcome == "fail"
    (difference,) = found[MTP].evidence["differences"]
    assert difference["prompt"] == "prose@256/measured/2"
    assert difference["position"] == 5
    assert difference["token_a"] == difference["token_b"] + 1
    assert difference["closeness"] == "unknown"


def test_a_near_tie_is_named_and_still_fails() -> None:
    found = judged(Maker(sides=PAIR, edit=_near_tie(0.02)))
    assert found[MTP].outcome == "fail"
    (difference,) = found[MTP].evidence["differences"]
    assert abs(difference["margin"] - 0.02) < 1e-9
    assert difference["closeness"] == "near tie"


def test_a_difference_below_the_stated_margin_is_waived_and_shown() -> None:
    checks = {"parity": {"waive_below_margin": 0.05}}
    assert judged(Maker(sides=PAIR, edit=_near_tie(0.02)), checks)[MTP].outcome == "waived"
    assert judged(Maker(sides=PAIR, edit=_near_tie(0.5)), checks)[MTP].outcome == "fail"


def test_an_unknown_margin_is_never_waived() -> None:
    checks = {"parity": {"waive_below_margin": 0.05}}
    edit = editing(where(side="mtp", index=2), output_ids=changed(5))
    assert judged(Maker(sides=PAIR, edit=edit), checks)[MTP].outcome == "fail"


def test_one_difference_that_is_not_near_keeps_all_of_them_from_being_waived() -> None:
    checks = {"parity": {"waive_below_margin": 0.05}}
    near, far = _near_tie(0.02), editing(where(side="mtp", index=1), output_ids=changed(9))
    found = judged(Maker(sides=PAIR, edit=lambda r: far(near(r))), checks)
    assert found[MTP].outcome == "fail"


def _near_tie(margin: float) -> Any:
    """mtp takes another token at position 5 of prompt 2; the target scores them `margin` apart."""
    scored = editing(
        where(side="target-only", index=2),
        extras=lambda r: {
            "top_logprobs": [
                [[r.output_ids[i], -0.5], [r.output_ids[i] + 1, -0.5 - margin]] for i in range(32)
            ]
        },
    )
    other = editing(where(side="mtp", index=2), output_ids=changed(5))
    return lambda r: other(scored(r))


def test_where_the_baseline_differs_from_itself_the_pair_proves_nothing() -> None:
    def edit(record: Record) -> Record:
        if record.index == 1 and (record.side == "mtp" or "again" in record.launch):
            return editing(where(), output_ids=changed(2))(record)
        return record

    found = judged(Maker(sides=PAIR, edit=edit))
    assert found[SELF].outcome == "fail"
    assert "does not reproduce itself on 1 of 4" in found[SELF].sentence
    assert found[MTP].outcome == "inconclusive"
    assert "does not reproduce itself" in found[MTP].sentence


def test_a_difference_on_a_reproducible_prompt_fails_whatever_the_others_do() -> None:
    def edit(record: Record) -> Record:
        if record.index == 1 and "again" in record.launch:
            return editing(where(), output_ids=changed(2))(record)
        return editing(where(side="mtp", index=0), output_ids=changed(2))(record)

    assert judged(Maker(sides=PAIR, edit=edit))[MTP].outcome == "fail"


def test_outputs_without_ids_are_compared_by_text_and_it_is_said() -> None:
    found = judged(Maker(sides=PAIR, edit=editing(where(), output_ids=None)))
    assert found[MTP].outcome == "pass"
    assert "by text" in found[MTP].sentence
    assert found[MTP].evidence["compared_as_text"] == 4


def test_a_longer_output_with_the_same_start_differs_at_its_end() -> None:
    edit = editing(where(side="mtp", index=0), output_ids=lambda r: (r.output_ids or ())[:-2])
    (difference,) = judged(Maker(sides=PAIR, edit=edit))[MTP].evidence["differences"]
    assert difference["position"] == 30
    assert difference["token_a"] is None


def test_each_concurrency_is_compared_by_itself() -> None:
    found = judged(
        Maker(
            sides=PAIR,
            works=(Work(concurrency=(1, 2)),),
            edit=editing(where(side="mtp", index=2, cell="prose@256/c2"), output_ids=changed(5)),
        )
    )
    assert found[MTP].outcome == "pass"
    assert found["mtp against target-only, prose@256/c2"].outcome == "fail"


def test_a_drafter_that_never_ran_makes_equal_bytes_inconclusive() -> None:
    silent = Mode("mtp", 10.0, 0, lambda w, p, s: 0)
    found = judged(Maker(sides={"target-only": target(), "mtp": silent}))
    assert found[MTP].outcome == "inconclusive"
    blind = judged(Maker(sides=PAIR, edit=editing(where(side="mtp"), speculation=None)))
    assert blind[MTP].outcome == "inconclusive"


def test_an_ngram_drafter_that_proposes_nothing_passes_and_says_so() -> None:
    silent = Mode("ngram", 10.0, 0, lambda w, p, s: 0)
    found = judged(Maker(sides={"target-only": target(), "ngram": silent}))
    verdict = found["ngram against target-only, prose@256/c1"]
    assert verdict.outcome == "pass"
    assert "proposed nothing here" in verdict.sentence


def test_a_request_that_failed_on_one_side_leaves_the_pair_open() -> None:
    found = judged(Maker(sides=PAIR, edit=editing(where(side="target-only", index=0), ok=False)))
    assert found[MTP].outcome == "inconclusive"


def test_temperature_above_zero_is_not_run() -> None:
    found = judged(Maker(sides=PAIR, temperature=0.6))
    assert found[MTP].outcome == "not-run"
    assert not found[MTP].demanded
    assert judged(Maker(sides=PAIR, temperature=0.6), {"parity": True})[MTP].demanded


def test_all_pairs_compares_modes_with_each_other_too() -> None:
    sides = {**PAIR, "dflash2": drafting("dflash2")}
    assert "dflash2 against mtp, prose@256/c1" not in judged(Maker(sides=sides))
    found = judged(Maker(sides=sides), {"parity": {"pairs": "all"}})
    assert "mtp against dflash2, prose@256/c1" in found


def test_rounds_are_compared_within_themselves() -> None:
    def edit(record: Record) -> Record:
        # The whole machine changed between rounds: both sides together.
        return editing(where(), output_ids=changed(4))(record) if record.round == 2 else record

    found = judged(Maker(sides=PAIR, rounds=2, edit=edit, self_parity=False))
    assert found[MTP].outcome == "pass"
    assert found[SELF].outcome == "fail"


def test_rounds_repeat_prompts_and_only_distinct_ones_bound_the_rate() -> None:
    found = judged(Maker(sides=PAIR, rounds=3, self_parity=False))
    assert found[MTP].evidence["prompts_compared"] == 4
    assert found[MTP].evidence["comparisons"] == 12
    assert found[MTP].evidence["differing_rate_below"] == 3 / 4
    one = judged(
        Maker(
            sides=PAIR,
            rounds=3,
            self_parity=False,
            edit=editing(where(side="mtp", index=2), output_ids=changed(5)),
        )
    )
    assert "1 of 4 prompts differ" in one[MTP].sentence


def test_expected_sameness_of_output_and_acceptance_is_judged() -> None:
    lines = [{"pair": ["mtp", "mtp-k3"], "same": ["output", "acceptance"]}]
    alike = Maker(sides={**PAIR, "mtp-k3": drafting("mtp", 9.0)}, expect=lines)
    assert [v.outcome for v in expect.check(alike.build(), Settings())] == ["pass", "pass"]
    other = Maker(sides={**PAIR, "mtp-k3": drafting("mtp", 9.0, right=1)}, expect=lines)
    assert [v.outcome for v in expect.check(other.build(), Settings())] == ["pass", "fail"]
