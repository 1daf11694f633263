"""Reading answers to needles: the exact set, nothing else, order free; sizes that hold none."""

from __future__ import annotations

from typing import Any

import pytest

from qualify.campaign.evals import NeedlesEval
from qualify.errors import UsageError
from qualify.evals.needle_words import codes, question, read_answer, sentence
from qualify.evals.retrieval import NeedlesKind

FIVE = ("K7-4410", "Q1-0093", "Z5-5582", "A8-7719", "L2-2046")
ALL = ", ".join(FIVE)


@pytest.mark.parametrize(
    "answer",
    [
        ALL,
        ", ".join(reversed(FIVE)),
        "The codes are: " + " and ".join(FIVE) + ".",
        "\n".join(f"{n}. **{c}**" for n, c in enumerate(FIVE, 1)),
        "\n".join(f"The {n}th code: `{c}`" for n, c in enumerate(FIVE, 1)),
        ALL.replace("-", "\u2011"),
        f"There are 5 codes: {ALL}, {FIVE[0]}",
    ],
)
def test_the_exact_set_passes_in_any_order_and_dress(answer: str) -> None:
    assert read_answer(answer, FIVE).cause is None


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("", "no-answer"),
        ("  \n", "no-answer"),
        (ALL.replace(FIVE[2], ""), "missing"),
        ("List all five codes that appear in the text.", "missing"),
        (f"{ALL} AA-0001 AA-0002 BB-1234 K7-4411", "spurious"),
        (ALL.replace("K7-4410", "K7-44101"), "spurious"),
        (ALL.replace("K7-4410", "XK7-4410"), "spurious"),
        (ALL.replace("K7-4410", "k7-4410"), "spurious"),
        (ALL.replace("K7-4410", "K7-4410-2"), "spurious"),
        (ALL.replace("K7-4410", "K7 4410"), "spurious"),
        (f"1811, 12, {ALL}, 40, 1818", "spurious"),
        (f"{ALL} " + "and so on and on " * 80, "echo"),
    ],
)
def test_anything_else_does_not_and_says_why(answer: str, cause: str) -> None:
    assert read_answer(answer, FIVE).cause == cause


def test_f113_a_public_answer_that_lists_candidates_has_five_found_and_four_spurious() -> None:
    expected = ("K7-4410", "QX-0093", "ZM-5582", "AB-7719", "LT-2046")
    answer = "Codes: K7-4410 QX-0093 ZM-5582 AB-7719 LT-2046 AA-0001 AA-0002 BB-1234 K7-4411"
    read = read_answer(answer, expected)
    assert (len(read.found), len(read.spurious)) == (5, 4)
    assert read.cause == "spurious"


def test_f115_a_single_code_with_a_few_words_around_it_passes() -> None:
    assert read_answer("The code is K7-4410.", ("K7-4410",)).cause is None
    assert read_answer("It is K7-4410 or K7-9999.", ("K7-4410",)).cause == "spurious"


def test_codes_are_independent_and_new_for_each_key() -> None:
    seen: set[str] = set()
    for seed in range(50):
        found = codes(12, ("8192", seed))
        assert found == codes(12, ("8192", seed))
        assert len({c[0] for c in found}) == len({c[3:] for c in found}) == 12
        seen.update(found)
    assert len(seen) > 550


def test_the_question_holds_no_code_and_statements_hold_one() -> None:
    assert read_answer(question(5), FIVE).found == ()
    assert sentence(0, "K7-4410") == "The first secret code is K7-4410."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": 10}, "tokens 10 has no room for 5 codes"),
        ({"tokens": [8192, 100]}, "tokens 100 has no room"),
        ({"fresh_tokens": 100}, "fresh_tokens 100 has no room"),
    ],
)
def test_a_size_that_holds_no_prompt_is_refused_before_anything_starts(
    change: dict[str, Any], said: str
) -> None:
    options = {**NeedlesEval().model_dump(), **change}
    with pytest.raises(UsageError, match=said):
        NeedlesKind().problems(options)


def test_a_single_code_and_no_fresh_request_need_less() -> None:
    change = {"tokens": 100, "count": 1, "depths": [0.5], "fresh_tokens": 0}
    assert len(NeedlesKind().problems({**NeedlesEval().model_dump(), **change}).problems) == 1
