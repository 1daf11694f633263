"""One matched prompt in numbers: log ratios of its two sides, grouped by round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from qualify.analysis.outcomes import LogRatios, round_means
from qualify.analysis.speculation import Steps, steps_of
from qualify.analysis.stats import mean
from qualify.checks.implausible import flaw
from qualify.checks.pairing import Match
from qualify.checks.select import completion_tokens


def unfit(match: Match) -> str | None:
    """Why a matched prompt does not enter the comparison; None when it does."""
    if match.a.prompt_sha256 != match.b.prompt_sha256:
        return "not the same prompt"
    if completion_tokens(match.a) != completion_tokens(match.b):
        return "unequal output lengths"
    for record in (match.a, match.b):
        if (why := flaw(record)) is not None:
            return why
    return None


def key_of(match: Match) -> tuple[str, int]:
    return match.a.prompt_id, match.a.turn


def by_round(
    found: Iterable[Match], measure: Callable[[Match], float | None]
) -> dict[int, dict[tuple[str, int], float]]:
    """round -> prompt and turn -> the measure, where it is known."""
    values: dict[int, dict[tuple[str, int], float]] = {}
    for match in found:
        if (value := measure(match)) is not None:
            values.setdefault(match.round, {})[key_of(match)] = value
    return values


def decode_log(m: Match) -> float | None:
    return _log(m.b.timing.tpot_ms, m.a.timing.tpot_ms)


def wall_log(m: Match) -> float | None:
    return _log(m.b.timing.t_last_s, m.a.timing.t_last_s)


def wall_same_prefill_log(m: Match) -> float | None:
    """Log ratio of whole answers if both had taken the reference's time to first token."""
    a, b = m.a.timing, m.b.timing
    if a.t_first_s is None or a.t_last_s is None or b.t_first_s is None:
        return None
    return _log(b.t_last_s, b.t_first_s + (a.t_last_s - a.t_first_s))


def cycle_log(steps: tuple[Steps, Steps]) -> float | None:
    return _log(steps[1].cycle_s, steps[0].cycle_s)


def tokens_log(steps: tuple[Steps, Steps]) -> float | None:
    return _log(steps[0].tokens_per_step, steps[1].tokens_per_step)


def _log(top: float | None, bottom: float | None) -> float | None:
    return math.log(top / bottom) if top and bottom and top > 0 and bottom > 0 else None


def estimate(values: LogRatios) -> float | None:
    """The same mean of round means that the ratio itself is, so that factors multiply to it."""
    centre = mean(round_means(values))
    return None if centre is None else math.exp(centre)


def steps_of_both(match: Match, speculative: tuple[bool, bool]) -> tuple[Steps, Steps] | None:
    a = steps_of(match.a, speculative=speculative[0])
    b = steps_of(match.b, speculative=speculative[1])
    return (a, b) if a is not None and b is not None else None
