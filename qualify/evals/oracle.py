"""Is what a program returned right? Compared here, outside of the sandbox.

The rules are those of evalplus 0.3.1 for its data sets, read from its evaluation and its
special oracles, without two faults of it: the answer to HumanEval/32 counts when the
polynomial is near zero there, and nothing that a program returned takes part in its own
comparison with methods of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from qualify.errors import UsageError
from qualify.evals.sandbox.nouns import Call
from qualify.evals.sandbox.values import decode, digest

RTOL = 1e-7  # numpy.testing.assert_allclose's default, which evalplus names as its own
FLOAT_ATOL = 1e-6  # where a task states none and the expected value is made of floats


@dataclass(frozen=True)
class Expected:
    """What the reference returned for one call: its JSON text, or a digest of it."""

    value: str | None
    digest: str | None


@dataclass(frozen=True)
class Rules:
    """How the calls of one problem are compared. dataset: humaneval | mbpp | minicode."""

    dataset: str
    entry: str
    atol: float


def right(rules: Rules, given: Any, call: Call, expected: Expected) -> bool:
    """Whether `call` returned what it should. Never raises."""
    if call.error is not None:
        return False
    if expected.digest is not None or call.digest is not None:
        return _same_digest(call, expected)
    if call.value is None or expected.value is None:
        return False
    if call.value == expected.value and _plain(expected.value):
        return True
    try:
        found, wanted = decode(json.loads(call.value)), decode(json.loads(expected.value))
        return _right(rules, decode(given), found, wanted)
    except (ValueError, TypeError, RecursionError, OverflowError, ArithmeticError, KeyError):
        return False
    except (AttributeError, IndexError, MemoryError):
        return False


def _plain(text: str) -> bool:
    """Equal texts are equal values unless one holds something that equals nothing."""
    return '"nan"' not in text and '["o",' not in text


def _same_digest(call: Call, expected: Expected) -> bool:
    """Large values are compared by digest alone, so without a tolerance."""
    try:
        found = call.digest or digest(json.loads(call.value or ""))
        wanted = expected.digest or digest(json.loads(expected.value or ""))
    except (ValueError, RecursionError):
        return False
    return found == wanted


def _right(rules: Rules, given: list[Any], found: Any, wanted: Any) -> bool:
    atol = rules.atol
    if rules.dataset == "humaneval" and rules.entry == "find_zero":
        return bool(abs(_special("_poly")(*given, found)) <= atol)
    exact = bool(found == wanted)
    if rules.dataset == "mbpp":
        if rules.entry == "are_equivalent":  # Mbpp/164: evalplus takes any answer
            return True
        if rules.entry == "sum_div":
            exact = exact or found == 0
        elif rules.entry == "surface_Area":
            exact = exact or abs(found - _special("_surface_Area")(*given)) <= atol
        elif rules.entry == "digit_distance_nums":
            exact = exact or found == _special("_digit_distance_nums")(*given)
        elif rules.entry in _special("MBPP_OUTPUT_SET_EQ_TASKS"):
            exact = set(found) == set(wanted)
        elif rules.entry in _special("MBPP_OUTPUT_NOT_NONE_TASKS"):
            something = wanted is not None
            exact = (
                found == something if isinstance(found, bool) else something == (found is not None)
            )
    if exact:
        return True
    if atol == 0 and _floats(wanted):
        atol = FLOAT_ATOL
    return atol != 0 and type(found) is type(wanted) and _close(found, wanted, atol)


@cache
def _special(name: str) -> Any:
    """A rule of evalplus's own. Raises UsageError where it is not installed."""
    try:
        from evalplus.eval import _special_oracle
    except ImportError as error:
        raise UsageError(*evalplus_missing(error)) from None
    found: Callable[..., Any] | list[str] = getattr(_special_oracle, name)
    return found


def evalplus_missing(error: Exception) -> tuple[str, str]:
    return (
        f"HumanEval and MBPP need the package evalplus, which cannot be imported ({error}).",
        "pip install 'qualify[evals]' && pip install --no-deps evalplus==0.3.1",
    )


def _floats(value: Any) -> bool:
    if isinstance(value, float):
        return True
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(v, float) for v in value)
    )


def _close(found: Any, wanted: Any, atol: float) -> bool:
    """numpy.allclose for numbers and for lists of one shape; false for anything else."""
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(wanted)
            and all(_close(a, b, atol) for a, b in zip(found, wanted, strict=True))
        )
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        if math.isinf(found) or math.isinf(wanted):
            return found == wanted
        return abs(found - wanted) <= atol + RTOL * abs(wanted)
    if isinstance(found, complex) and isinstance(wanted, complex):
        return abs(found - wanted) <= atol + RTOL * abs(wanted)
    return False
