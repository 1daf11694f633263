"""Values across the sandbox's channel, what counts as right, and the figures made of it."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.evals.compare import mcnemar, wilson
from qualify.evals.oracle import Expected, Rules, right
from qualify.evals.sandbox import values
from qualify.evals.sandbox.nouns import Call
from qualify.evals.sandbox.values import decode, digest, encode, pack

LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.complex_numbers(allow_nan=False)
)
KEY = st.integers() | st.text(max_size=5) | st.tuples(st.integers(), st.text(max_size=3))
VALUE = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.sets(KEY, max_size=5)
        | st.frozensets(KEY, max_size=5)
        | st.dictionaries(KEY, inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(VALUE)
def test_every_built_in_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)


@settings(max_examples=200, deadline=None)
@given(VALUE)
def test_a_digest_is_the_same_for_equal_values(value: Any) -> None:
    def looser(v: Any) -> Any:  # the same by ==, written otherwise
        if isinstance(v, bool):
            return int(v)
        if isinstance(v, int) and abs(v) < 2**50:
            return float(v)
        if isinstance(v, list):
            return [looser(x) for x in v]
        if isinstance(v, dict):
            return dict(reversed([(k, looser(x)) for k, x in v.items()]))
        return v

    other = looser(value)
    assert other == value
    assert digest(encode(other)) == digest(encode(value))


@settings(max_examples=300, deadline=None)
@given(st.recursive(LEAF.filter(lambda v: not isinstance(v, bytes | complex)),
                    lambda i: st.lists(i, max_size=4) | st.dictionaries(st.text(), i, max_size=3),
                    max_leaves=12))  # fmt: skip
def test_what_encode_did_not_write_is_refused_and_breaks_nothing(data: Any) -> None:
    try:
        decode(data)
    except ValueError:
        return


def test_objects_are_sent_as_what_they_hold_or_as_opaque() -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    class Lying(list[int]):
        def __iter__(self) -> Any:
            return iter([1, 2, 3])

    assert decode(encode(Lying([7]))) == [7]
    opaque = decode(encode(Same()))
    assert opaque != 5
    assert not opaque == opaque  # noqa: SIM201
    assert encode(Fraction(1, 2)) == ["o", "Fraction"]


def test_a_large_value_is_a_digest_equal_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "LARGEST_CHARS", 50)
    monkeypatch.setattr(values, "HUGE_ITEMS", 100)
    middle, huge = list(range(60)), list(range(200))
    for numbers in (middle, huge):
        told = pack(numbers)
        assert set(told) == {"h"}
        assert pack([float(n) for n in numbers]) == told
        assert pack([*numbers[:-1], -1]) != told
        assert pack(tuple(numbers)) != told
    pairs = [(n, str(n)) for n in huge]
    assert pack(pairs) == pack(list(pairs))
    assert pack(pairs) != pack(pairs[::-1])


def judged(rules: Rules, given_: list[Any], found: Any, wanted: Any) -> bool:
    call = Call(0, value=pack(found)["v"])
    return right(rules, encode(given_), call, Expected(pack(wanted)["v"], None))


PLAIN = Rules("humaneval", "f", 0.0)


@pytest.mark.parametrize(
    ("found", "wanted", "good"),
    [
        (3, 3, True), (3.0, 3, True), (True, 1, True), ("3", 3, False), (None, 0, False),
        ([1, 2], (1, 2), False), ({2, 1}, {1, 2}, True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (0.1 + 0.2, 0.3, True), ([0.1 + 0.2], [0.3], True), (0.3001, 0.3, False),
        ([0.3], [0.3, 0.3], False), (math.nan, math.nan, False), (math.inf, math.inf, True),
        (math.inf, 1.0, False), ([1.0, "a"], [1.0, "a"], True),
    ],
)  # fmt: skip
def test_plain_comparison_follows_equality_with_a_tolerance_for_floats(
    found: Any, wanted: Any, good: bool
) -> None:
    assert judged(PLAIN, [], found, wanted) is good


@pytest.mark.parametrize(
    ("entry", "given_", "found", "wanted", "good"),
    [
        ("similar_elements", [], (5, 4), (4, 5), True),
        ("similar_elements", [], (5, 4, 4), (4, 5), True),
        ("similar_elements", [], (5,), (4, 5), False),
        ("check_str", [], "something", True, True),
        ("check_str", [], None, True, False),
        ("check_str", [], False, True, False),
        ("sum_div", [8], 0, 7, True),
        ("digit_distance_nums", [1, 12], 11 - 9, 99, True),
        ("are_equivalent", [], "anything", True, True),
    ],
)
def test_special_rules_of_mbpp(
    entry: str, given_: list[Any], found: Any, wanted: Any, good: bool
) -> None:
    pytest.importorskip("evalplus", reason="pip install --no-deps evalplus==0.3.1")
    assert judged(Rules("mbpp", entry, 0.0), given_, found, wanted) is good


def test_an_error_or_a_missing_value_is_never_right() -> None:
    wanted = Expected(pack(None)["v"], None)
    assert not right(PLAIN, ["l"], Call(0, error="ValueError: x"), wanted)
    assert not right(PLAIN, ["l"], Call(0), wanted)
    for text in ("", "[", "[[", '["i"]', '{"a": 1}', "[" * 100_000):
        assert not right(PLAIN, ["l"], Call(0, value=text), wanted)


def test_mcnemar_is_the_share_of_coin_throws_at_least_as_uneven() -> None:
    def by_counting(lost: int, won: int) -> float:
        n = lost + won
        ways = [math.comb(n, k) for k in range(n + 1)]
        return sum(w for w in ways if w <= ways[lost]) / 2**n

    for lost in range(8):
        for won in range(8):
            wanted = by_counting(lost, won) if lost + won else 1.0
            assert mcnemar(lost, won) == pytest.approx(wanted)


def test_wilsons_interval_is_where_the_score_test_turns() -> None:
    for passed, n in ((0, 20), (7, 20), (20, 20), (150, 164)):
        low, high = wilson(passed, n)
        z = 1.959963984540054
        for p in (low, high):
            if 0 < p < 1:
                assert abs(passed / n - p) == pytest.approx(z * math.sqrt(p * (1 - p) / n))
        assert low <= passed / n <= high + 1e-12
