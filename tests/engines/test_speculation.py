"""Every engine's figures become the same integers.

The numbers are worked examples that the engines' authors or users published; the rates and
lengths that they printed are what the integers must give.
"""

from __future__ import annotations

import pytest

from qualify.engines.speculation import from_llamacpp, from_sglang, from_vllm
from qualify.records.schema import Speculation


def accept_length(s: Speculation) -> float:
    assert s.V
    assert s.C is not None
    return 1 + s.C / s.V


def match_rate(s: Speculation) -> float:
    assert s.P
    assert s.C is not None
    return s.C / s.P


def test_sglangs_final_meta_info_gives_integers_and_not_its_own_length() -> None:
    # spec_accept_length is N / V there (64 / 18): prefill's token and plain ones are in it.
    spec = from_sglang(
        {
            "completion_tokens": 64,
            "spec_accept_rate": 0.3571,
            "spec_accept_length": 3.56,
            "spec_num_correct_drafts": 45,
            "spec_num_proposed_drafts": 126,
            "spec_verify_ct": 18,
            "spec_correct_drafts_histogram": [2, 4, 4, 3, 2, 2, 1],
        }
    )
    assert spec is not None
    assert (spec.V, spec.P, spec.C, spec.N0) == (18, 126, 45, 1)
    assert match_rate(spec) == pytest.approx(0.3571, abs=1e-4)
    assert accept_length(spec) == pytest.approx(3.5)
    assert accept_length(spec) != pytest.approx(3.56, abs=0.01)
    assert spec.derived == ("N0",)
    assert spec.histogram == (2, 4, 4, 3, 2, 2, 1)
    # The identity holds exactly here, from counts that nobody computed from one another.
    assert 1 + 45 + 18 == 64


def test_a_stress_case_of_26_steps_reads_2_192_and_not_2_46() -> None:
    meta = {"spec_verify_ct": 26, "spec_num_correct_drafts": 31, "spec_num_proposed_drafts": 182}
    spec = from_sglang({**meta, "spec_accept_length": 64 / 26})
    assert spec is not None
    assert accept_length(spec) == pytest.approx(2.192, abs=5e-4)
    assert match_rate(spec) == pytest.approx(0.1703, abs=5e-5)


@pytest.mark.parametrize(
    ("keys"),
    [
        ("spec_num_correct_drafts", "spec_num_proposed_drafts"),
        ("spec_accepted_drafts", "spec_proposed_drafts"),
        ("spec_accept_token_num", "spec_draft_token_num"),
    ],
)
def test_the_names_of_older_sglang_versions_mean_the_same(keys: tuple[str, str]) -> None:
    meta = {"spec_verify_ct": 26, keys[0]: 31, keys[1]: 182}
    spec = from_sglang({**meta, "spec_accept_histogram": [8, 9, 6, 2, 1]})
    assert spec is not None
    assert (spec.V, spec.P, spec.C) == (26, 182, 31)
    assert spec.histogram == (8, 9, 6, 2, 1)


def test_sglang_without_verify_steps_is_not_reported_and_never_zero() -> None:
    assert from_sglang({"completion_tokens": 64, "prompt_tokens": 512}) is None


@pytest.mark.parametrize(
    ("v", "c", "p", "t", "length"),
    [  # a drafter of seven: rate, length and plain tail of four published cases, 64 tokens each
        (26, 31, 182, 6, 2.192),
        (21, 35, 147, 7, 2.667),
        (27, 29, 189, 7, 2.074),
        (8, 53, 56, 2, 7.625),
        (8, 54, 56, 1, 7.75),
    ],
)
def test_the_bundled_engines_integers_obey_the_identity(
    v: int, c: int, p: int, t: int, length: float
) -> None:
    spec = from_sglang(
        {
            "verify_steps": v,
            "correct_drafts": c,
            "proposed_drafts": p,
            "plain_tokens": t,
            "trimmed_tokens": 0,
            "prefill_tokens": 1,
            "draft_s": 0.5,
            "verify_s": 1.25,
        }
    )
    assert spec is not None
    assert spec.derived == ()
    assert None not in (spec.N0, spec.C, spec.V, spec.T, spec.W)
    assert spec.N0 + spec.C + spec.V + spec.T - spec.W == 64  # type: ignore[operator]
    assert accept_length(spec) == pytest.approx(length, abs=5e-4)
    assert spec.phases_s == {"draft": 0.5, "verify": 1.25}


def test_a_bundled_engine_that_drafted_nothing_reports_zero_steps() -> None:
    spec = from_sglang(
        {"verify_steps": 0, "plain_tokens": 63, "trimmed_tokens": 0, "prefill_tokens": 1}
    )
    assert spec is not None
    assert (spec.V, spec.T) == (0, 63)


def test_vllms_request_metrics_give_its_printed_length_and_rate() -> None:
    spec = from_vllm(
        {
            "speculative_decoding": {
                "mean_acceptance_length": 2.19,
                "draft_acceptance_rate": 0.1703,
                "acceptance_histogram": [8, 9, 6, 2, 1, 0, 0, 0],
                "num_spec_steps": 26,
                "num_accepted_draft_tokens": 31,
                "num_draft_tokens": 182,
                "num_spec_tokens": 7,
            }
        }
    )
    assert spec is not None
    assert accept_length(spec) == pytest.approx(2.19, abs=5e-3)
    assert match_rate(spec) == pytest.approx(0.1703, abs=5e-5)
    assert spec.histogram is not None
    assert sum(spec.histogram) == spec.V
    assert sum(j * h for j, h in enumerate(spec.histogram)) == spec.C


@pytest.mark.parametrize(
    ("drafts", "rate", "length"), [(7, 0.2519, 2.76), (5, 0.5466, 3.73), (7, 0.357, 3.50)]
)
def test_printed_rates_and_lengths_agree_where_every_step_drafts_the_same(
    drafts: int, rate: float, length: float
) -> None:
    steps = 10_000
    correct = round(rate * drafts * steps)
    spec = from_vllm(
        {
            "speculative_decoding": {
                "num_spec_steps": steps,
                "num_draft_tokens": drafts * steps,
                "num_accepted_draft_tokens": correct,
            }
        }
    )
    assert spec is not None
    assert match_rate(spec) == pytest.approx(rate, abs=1e-4)
    assert accept_length(spec) == pytest.approx(length, abs=5e-3)


def test_a_model_drafter_of_llama_cpp_without_running_counts_has_derived_steps() -> None:
    timings = {"predicted_n": 64, "draft_n": 126, "draft_n_accepted": 45}
    spec = from_llamacpp(timings, drafter="model")
    assert spec is not None
    assert spec.V == 18
    assert "V" in spec.derived
    assert spec.T is None


def test_an_ngram_drafter_without_running_counts_has_unknown_steps() -> None:
    timings = {"predicted_n": 64, "draft_n": 118, "draft_n_accepted": 51}
    spec = from_llamacpp(timings, drafter="ngram")
    assert spec is not None
    assert (spec.V, spec.T, spec.P, spec.C) == (None, None, 118, 51)


def test_running_counts_give_steps_plain_tokens_and_histogram() -> None:
    # As llama.cpp's server streamed it; its own counters said 5 steps and 13 = 1 + 5 + 7.
    steps = [[2, 46, 20], [23, 87, 20], [31, 100, 33], [45, 113, 46], [59, 118, 51]]
    timings = {"predicted_n": 64, "draft_n": 118, "draft_n_accepted": 51}
    spec = from_llamacpp(timings, steps=steps, drafter="ngram")
    assert spec is not None
    assert (spec.V, spec.T, spec.W) == (5, 7, 0)
    assert not {"V", "C", "T", "W"} & set(spec.derived)
    assert spec.histogram is not None
    assert [j for j, h in enumerate(spec.histogram) for _ in range(h)] == [0, 5, 13, 13, 20]
    assert 1 + 51 + 5 + 7 - 0 == 64


def test_counts_that_claim_more_than_the_stream_gave_break_the_identity() -> None:
    # Two drafts too many at the first step: it would reach into the second step's tokens.
    steps = [[2, 4, 4], [5, 8, 4]]
    timings = {"predicted_n": 6, "draft_n": 8, "draft_n_accepted": 4}
    spec = from_llamacpp(timings, steps=steps, drafter="ngram")
    assert spec is not None
    assert spec.C is not None
    assert spec.V is not None
    assert spec.T is not None
    assert spec.W is not None
    assert 1 + spec.C + spec.V + spec.T - spec.W != 6


def test_drafts_past_the_end_are_trimmed_tokens() -> None:
    steps = [[2, 4, 4]]
    spec = from_llamacpp(
        {"predicted_n": 4, "draft_n": 4, "draft_n_accepted": 4}, steps=steps, drafter="ngram"
    )
    assert spec is not None
    assert (spec.V, spec.C, spec.T, spec.W) == (1, 4, 0, 2)


def test_llama_cpp_that_proposed_nothing_has_zero_drafts_and_plain_tokens() -> None:
    spec = from_llamacpp({"predicted_n": 64}, drafter="ngram")
    assert spec is not None
    assert (spec.V, spec.P, spec.C, spec.T) == (0, 0, 0, 63)


def test_timings_without_counts_are_not_reported() -> None:
    assert from_llamacpp({}, drafter="model") is None
