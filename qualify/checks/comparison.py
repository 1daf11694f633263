"""Two sides' outputs held against each other: how many, how many differ, and where first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qualify.checks.divergence import Divergence, comparable, diverge
from qualify.checks.margins import Margins
from qualify.checks.pairing import Match
from qualify.checks.select import completion_tokens, plural
from qualify.checks.settings import Settings

_SHOWN = 10  # differing prompts kept as evidence


@dataclass(frozen=True)
class Comparison:
    """All matched requests of one cell, compared.

    prompts: distinct ones; comparisons: over all rounds. Only distinct prompts are
    independent, so the bound on the rate of differing prompts is over them.
    """

    matched: int
    prompts: int
    comparisons: int
    tokens: int
    by_text: int
    differences: tuple[Divergence, ...]

    @property
    def differing(self) -> int:
        """Distinct prompts that differ at least once."""
        return len({d.prompt for d in self.differences})

    def evidence(self) -> dict[str, Any]:
        return {
            "matched": self.matched,
            "prompts_compared": self.prompts,
            "comparisons": self.comparisons,
            "tokens_compared": self.tokens,
            "compared_as_text": self.by_text,
            "differing": self.differing,
            "differing_rate_below": bound(self.prompts) if not self.differences else None,
            "differences": [d.to_json() for d in self.differences[:_SHOWN]],
        }


def bound(n: int) -> float | None:
    """Upper 95% bound on the rate of differing prompts after n without one: 3/n, at most 1."""
    return min(1.0, 3 / n) if n else None


def compare(found: Sequence[Match], margins: Margins) -> Comparison:
    """Compare every match by token ids, by text only where one side has no ids."""
    usable = [(m, how) for m in found if (how := comparable(m.a, m.b)) is not None]
    differences = [d for m, _ in usable if (d := diverge(m.a, m.b, margins)) is not None]
    return Comparison(
        len(found),
        len({(m.a.prompt_id, m.a.turn) for m, _ in usable}),
        len(usable),
        sum(min(completion_tokens(m.a) or 0, completion_tokens(m.b) or 0) for m, _ in usable),
        sum(how == "text" for _, how in usable),
        tuple(differences),
    )


def waived(result: Comparison, settings: Settings) -> bool:
    limit = settings.number("parity", "waive_below_margin")
    if limit is None:
        return False
    return all(d.margin is not None and d.margin < limit for d in result.differences)


def size_of(result: Comparison) -> str:
    rate = bound(result.prompts)
    again = f" ({result.comparisons} comparisons)" if result.comparisons > result.prompts else ""
    by = " (by text, the engine reports no ids)" if result.by_text else ""
    held = (
        f"the rate of differing prompts is below {rate:.2g} with 95% confidence"
        if rate is not None and rate < 1
        else "too few to bound the rate of differing prompts"
    )
    return f"{plural(result.prompts, 'prompt')}{again}, {result.tokens:,} tokens{by}; {held}"


def triage_of(result: Comparison) -> str:
    first = min(result.differences, key=lambda d: (d.position, d.prompt))
    unit = "token" if first.compared == "ids" else "character"
    if first.margin is not None:
        margin = f"the target-only launch scores them {first.margin:.4g} nats apart"
        margin += f" ({first.closeness})"
    elif first.margin_above is not None:
        margin = f"the target-only launch scores them more than {first.margin_above:.4g} nats apart"
        margin += f" ({first.closeness})"
    else:
        margin = f"how close that was is not known: {(first.margin_unknown or '').rstrip('.')}"
    return (
        f"First difference: {first.prompt}, {unit} {first.position}, "
        f"{first.token_a!r} against {first.token_b!r}; {margin}."
    )
