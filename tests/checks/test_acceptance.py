"""A coherent output proves nothing about the drafter."""

from __future__ import annotations

from dataclasses import replace

from qualify.checks import acceptance, counters
from qualify.checks.pool import pool
from qualify.checks.settings import Settings
from qualify.records.schema import CellEnd, Speculation
from tests.factory import Maker, Mode, Work, drafting, editing, target, where

S = Settings()


def with_side(mode: Mode, **more: object) -> Maker:
    return Maker(sides={"target-only": target(), mode.name: mode}, **more)  # type: ignore[arg-type]


def test_f061_a_drafter_near_one_over_all_workloads_is_dead_though_its_text_is_fine() -> None:
    works = (Work("prose"), Work("code"))
    verdict = acceptance.check(with_side(drafting(right=0), works=works).build(), S)[0]
    assert verdict.outcome == "fail"
    assert "contributes nothing" in verdict.sentence


def test_a_drafter_that_works_on_one_workload_is_not_dead() -> None:
    mode = Mode("mtp", 12.0, 3, lambda w, p, s: 2 if w == "code" else 0)
    verdict = acceptance.check(with_side(mode, works=(Work("prose"), Work("code"))).build(), S)[0]
    assert verdict.outcome == "pass"
    lengths = verdict.evidence["accept_length_by_cell"]
    assert lengths["prose@256/c1"] == 1.0
    assert lengths["code@256/c1"] == 3.0


def test_an_ngram_drafter_that_proposes_nothing_is_null_and_not_dead() -> None:
    verdict = acceptance.check(with_side(Mode("ngram", 10.0, 0, lambda w, p, s: 0)).build(), S)[0]
    assert verdict.outcome == "pass"
    assert verdict.evidence["draft_match_rate"] is None
    assert "null" in verdict.sentence


def test_a_floor_is_held_against_the_pooled_accept_length() -> None:
    run = with_side(drafting(right=[0, 0, 1])).build()
    settings = Settings({"acceptance": {"floor": 2.0}})
    assert acceptance.check(run, S)[0].outcome == "pass"
    assert acceptance.check(run, settings)[0].outcome == "fail"


def test_an_engine_that_reports_nothing_is_neither_zero_nor_one() -> None:
    run = with_side(drafting(), edit=editing(where(side="mtp"), speculation=None)).build()
    assert acceptance.check(run, S)[0].outcome == "inconclusive"


def test_f065_rates_name_what_they_count() -> None:
    # 182 proposed, 31 right, 26 verify steps: a published example of DSpark.
    record = Maker().build().measured()[0]
    spec = Speculation("x", V=26, P=182, C=31, N0=1, T=6, W=0)
    found = pool([replace(record, speculation=spec)])
    assert round(found.draft_match_rate or 0, 3) == 0.170
    assert round(found.accept_length or 0, 2) == 2.19
    assert round(found.accepted_drafts_per_step or 0, 2) == 1.19
    assert found.proposed_per_step == 7.0


def test_pooling_sums_integers_and_never_averages_rates() -> None:
    record = Maker().build().measured()[0]
    long = Speculation("x", V=100, P=300, C=200, N0=1)
    short = Speculation("x", V=1, P=3, C=0, N0=1)
    found = pool([replace(record, speculation=long), replace(record, speculation=short)])
    assert found.accept_length == 1 + 200 / 101


def test_survival_by_position_is_counted_from_the_histogram() -> None:
    record = Maker().build().measured()[0]
    spec = Speculation("x", V=10, P=30, C=11, histogram=(4, 3, 1, 2))
    found = pool([replace(record, speculation=spec)])
    assert found.survival == (0.6, 0.3, 0.2)


def test_counts_that_add_up_pass_and_one_off_fails() -> None:
    assert {v.outcome for v in counters.check(with_side(drafting()).build(), S)} == {"pass"}
    wrong = editing(
        where(side="mtp", index=0),
        speculation__V=lambda r: r.speculation.V + 1,
        speculation__histogram=None,
    )
    verdict = counters.check(with_side(drafting(), edit=wrong).build(), S)[0]
    assert verdict.outcome == "fail"
    assert "does not hold on 1 of 4" in verdict.sentence


def test_more_right_drafts_than_proposed_is_impossible_even_where_the_sum_is_derived() -> None:
    edit = editing(
        where(side="mtp"),
        speculation__P=1,
        speculation__derived=("V = predicted_n - draft_n_accepted - 1",),
    )
    verdict = counters.check(with_side(drafting(), edit=edit).build(), S)[0]
    assert verdict.outcome == "fail"


def test_a_rate_of_exactly_one_is_fine_only_when_the_identity_confirms_it() -> None:
    perfect = drafting(width=3, right=3)
    assert counters.check(with_side(perfect, output_tokens=33).build(), S)[0].outcome == "pass"
    derived = editing(
        where(side="mtp"), speculation__derived=("V = predicted_n - draft_n_accepted - 1",)
    )
    run = with_side(perfect, output_tokens=33, edit=derived).build()
    assert counters.check(run, S)[0].outcome == "inconclusive"


def test_an_identity_that_was_used_to_derive_a_count_is_not_called_checked() -> None:
    edit = editing(where(side="mtp"), speculation__derived=("T = predicted_n - 1 - C - V",))
    verdict = counters.check(with_side(drafting(), edit=edit).build(), S)[0]
    assert verdict.outcome == "not-run"
    assert not verdict.demanded


def test_a_first_token_that_is_one_by_definition_leaves_the_identity_independent() -> None:
    edit = editing(where(side="mtp"), speculation__derived=("N0",))
    perfect = drafting(width=3, right=3)
    verdict = counters.check(with_side(perfect, output_tokens=33, edit=edit).build(), S)[0]
    assert verdict.outcome == "pass"
    bare = editing(where(side="mtp"), speculation__derived=("V",))
    verdict = counters.check(with_side(perfect, output_tokens=33, edit=bare).build(), S)[0]
    assert verdict.outcome == "inconclusive"


def test_unreported_trimming_convicts_nobody() -> None:
    edit = editing(where(side="mtp"), speculation__W=None, speculation__T=None)
    found = counters.check(with_side(drafting(right=[2, 3]), edit=edit).build(), S)
    assert "fail" not in {v.outcome for v in found}


def _counting(end: CellEnd, values: dict[str, float], problem: str | None) -> CellEnd:
    return replace(
        end, evidence={**end.evidence, "counters": {"values": values, "problem": problem}}
    )


def test_counters_that_went_backwards_make_the_cell_invalid() -> None:
    problem = "engine restarted during cell (output_tokens went backwards)"
    run = with_side(drafting(), edit_end=lambda e: _counting(e, {}, problem)).build()
    verdict = counters.check(run, S)[0]
    assert verdict.outcome == "fail"
    assert "restarted" in verdict.sentence


def test_the_servers_own_counters_can_confirm_what_requests_cannot() -> None:
    values = {
        "verify_steps": 32.0,
        "proposed_drafts": 96.0,
        "correct_drafts": 96.0,
        "output_tokens": 132.0,
        "plain_tokens": 0.0,
        "trimmed_tokens": 0.0,
        "requests": 4.0,
    }
    edit = editing(where(side="mtp"), speculation__derived=("T = predicted_n - 1 - C - V",))
    run = with_side(
        drafting(width=3, right=3),
        output_tokens=33,
        edit=edit,
        edit_end=lambda e: _counting(e, values, None),
    ).build()
    verdict = counters.check(run, S)[0]
    assert verdict.outcome == "pass"
    assert "server's own counters" in verdict.sentence
