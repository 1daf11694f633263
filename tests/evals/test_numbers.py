"""What number an answer ends in, whatever stands around it."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from qualify.evals.numbers import final_number

CASES = [
    ("#### 18", "18"),
    ("9 * 2 = 18\n#### 18 eggs\n", "18"),
    ("#### $1,000,000.", "1000000"),
    ("#### 5 + 3 = 8", "8"),
    ("#### -3", "-3"),
    ("#### x\n#### 7", "7"),
    ("So far 4.\n#### 4\nWait, no.\n#### 5", "5"),
    ("\\boxed{18}", "18"),
    ("\\[ \\boxed{\\text{$18$ dollars}} \\]", "18"),
    ("\\boxed{\\frac{1}{2}} of them, of 30", "1/2"),
    ("\\boxed{1{,}000}", "1000"),
    ("The answer is $1,234.50.", "2469/2"),
    ("The answer is 5 + 3 = 8 apples.", "8"),
    ("The answer is 18 dollars, not 20.", "18"),
    ("The answer is 18. There were 3 cats.", "18"),
    ("The answer is: **$18**", "18"),
    ("Final Answer: \\(18\\)", "18"),
    ("Answer: 18\nQuestion: and now?\nAnswer: 7\n#### 7", "18"),
    ("so she has $18.", "18"),
    ("20-5", "5"),
    ("- 5 apples", "5"),
    ("It is -5.", "-5"),
    ("It is \u22125.", "-5"),
    ("a loss of -$5", "-5"),
    ("$-5", "-5"),
    ("3.14.", "157/50"),
    (".5", "1/2"),
    ("1/2", "1/2"),
    ("50%", "50"),
    ("\\$18", "18"),
    ("an 18-year lease", "18"),
    ("`18`", "18"),
    ("1\u00a0000\u202f", "0"),  # two numbers: blanks part thousands in no answer format asked for
    ("The answer is 1e3", "1000"),
    ("v2 of A1", None),
    ("eighteen", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_the_number_is_found(text: str, wanted: str | None) -> None:
    assert final_number(text).value == (None if wanted is None else Fraction(wanted))


def test_the_last_number_of_a_calculation_that_was_cut_is_no_answer() -> None:
    assert final_number("First 3 * 4 = 12, then", cut=True).value is None
    assert final_number("First 3 * 4 = 12\n#### 12", cut=True).value == 12


def test_a_long_answer_of_digits_takes_no_time_to_speak_of() -> None:
    began = time.perf_counter()
    final_number("1," * 50_000 + "#" * 50_000 + "\\boxed{" * 5_000)
    final_number("9" * 4_000 + "e999999999")
    assert time.perf_counter() - began < 5.0
