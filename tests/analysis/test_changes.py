"""Change points: found where there is one, seldom where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from qualify.analysis.changes import changes


def series(seed: int, count: int, noise: float, steps: dict[int, float]) -> list[float]:
    logs = np.random.default_rng(seed).normal(0, noise, count)
    for at, ratio in steps.items():
        logs[at:] += np.log(ratio)
    return list(5 * np.exp(logs))


def test_noise_alone_is_called_a_change_in_at_most_five_percent_of_series() -> None:
    called = sum(bool(changes(series(s, 20, 0.02, {}))) for s in range(100))
    assert called <= 5


def test_a_tenth_at_two_percent_noise_is_found_at_its_place() -> None:
    found = [changes(series(s, 20, 0.02, {12: 1.1})) for s in range(40)]
    right = [c for c in found if len(c) == 1 and abs(c[0].index - 12) <= 1]
    assert len(right) >= 36
    assert all(c[0].ratio == pytest.approx(1.1, rel=0.04) for c in right)


def test_two_steps_are_two_changes_with_their_own_ratios() -> None:
    (up, down) = changes(series(3, 36, 0.01, {12: 1.2, 24: 1 / 1.2}))
    assert (up.index, down.index) == (12, 24)
    assert up.ratio == pytest.approx(1.2, rel=0.03)
    assert down.ratio == pytest.approx(1 / 1.2, rel=0.03)


def test_five_runs_are_too_few_and_equal_values_are_no_change() -> None:
    assert changes([1, 1, 1, 9, 9]) == []
    assert changes([2.0] * 30) == []


def test_a_figure_that_is_not_above_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        changes([1.0, 0.0, 1.0])
