"""Byte parity needs a baseline; a difference fails, and triage is evidence only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from qualify.checks import expect, parity
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.partings import prefix_sha256
from qualify.records.run import Run
from qualify.records.schema import ProbeRecord, Record
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


def test_an_unknown_margin_is_never_waived() -> None:
    checks = {"parity": {"waive_below_margin": 0.05}}
    edit = editing(where(side="mtp", index=2), output_ids=changed(5))
    assert judged(Maker(sides=PAIR, edit=edit), checks)[MTP].outcome == "fail"


def test_one_difference_that_is_not_near_keeps_all_of_them_from_being_waived() -> None:
    near = _near_tie()
    far = editing(where(side="mtp", index=1), output_ids=changed(9))
    run = _scored(Maker(sides=PAIR, edit=lambda r: far(near(r))).build(), _apart(0.02))
    checks = {"parity": {"waive_below_margin": 0.05}}
    found = {v.subject: v for v in parity.check(run, Settings(checks))}
    assert found[MTP].outcome == "fail"


def _near_tie() -> Any:
    """mtp takes another token at position 5 of prompt 2."""
    return editing(where(side="mtp", index=2), output_ids=changed(5))


def _scored(run: Run, top: Callable[[int, int], list[list[float]]], **more: Any) -> Run:
    """The run with what its target-only launch says of place 5 of prompt 2: top(a, b) are its
    likeliest tokens, of the two that stand there."""
    (a,) = {r.output_ids for r in run.measured() if r.side == "target-only" and r.index == 2}
    (b,) = {r.output_ids for r in run.measured() if r.side == "mtp" and r.index == 2}
    assert a is not None
    assert b is not None
    seen = {"prompt": "prose@256/measured/2", "turn": 0, "position": 5}
    seen |= {"prefix_sha256": prefix_sha256(a[:5]), "top": top(a[5], b[5]), **more}
    line = ProbeRecord(
        "made", "r1.target-only.again#1", 1, "target-only", "target-only", "margins", "scored",
        "step", "", seen=seen,
    )  # fmt: skip
    return dataclasses.replace(run, probes=(line,))


def _judged_with(top: Callable[[int, int], list[list[float]]], **checks: Any) -> Verdict:
    edit = _near_tie()
    run = _scored(Maker(sides=PAIR, edit=edit).build(), top)
    return {v.subject: v for v in parity.check(run, Settings(checks))}[MTP]


def _apart(margin: float) -> Callable[[int, int], list[list[float]]]:
    return lambda a, b: [[a, -0.5], [b, -0.5 - margin], [9999, -7.0]]


def test_f055_a_near_tie_is_named_and_still_fails() -> None:
    verdict = _judged_with(_apart(0.0))
    assert verdict.outcome == "fail"
    (difference,) = verdict.evidence["differences"]
    assert (difference["position"], difference["margin"]) == (5, 0.0)
    assert difference["closeness"] == "near tie"
    assert "0 nats apart (near tie)" in verdict.sentence
    clear = _judged_with(_apart(3.0))
    assert clear.outcome == "fail"
    assert clear.evidence["differences"][0]["closeness"] == "clear"


def test_a_difference_below_the_stated_margin_is_waived_and_shown() -> None:
    limit = {"waive_below_margin": 0.05}
    waived = _judged_with(_apart(0.02), parity=limit)
    assert waived.outcome == "waived"
    assert "0.02 nats apart (near tie)" in waived.sentence
    assert _judged_with(_apart(0.5), parity=limit).outcome == "fail"


def test_a_token_outside_the_likeliest_is_a_clear_difference_of_unknown_size() -> None:
    def one(a: int, b: int) -> list[list[float]]:
        return [[a, -0.25], [9999, -4.25]]

    verdict = _judged_with(one, parity={"waive_below_margin": 9.0})
    assert verdict.outcome == "fail"
    assert "more than 4 nats apart (clear)" in verdict.sentence
    neither = _judged_with(lambda a, b: [[9998, -0.25], [9999, -4.25]])
    assert "neither is among the target's 2 likeliest tokens" in neither.sentence


def test_scores_of_another_place_or_prefix_are_not_taken() -> None:
    edit = _near_tie()
    run = _scored(Maker(sides=PAIR, edit=edit).build(), _apart(0.0), prefix_sha256="0" * 64)
    verdict = {v.subject: v for v in parity.check(run, Settings({}))}[MTP]
    assert verdict.evidence["differences"][0]["closeness"] == "unknown"
    assert "no target-only launch was asked" in verdict.sentence


def test_f056_where_the_baseline_differs_from_itself_the_pair_proves_nothing() -> None:
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
