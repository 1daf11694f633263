"""The checks that a campaign may demand, and what it demands when it says nothing."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from qualify.campaign.strict import Strict

ParityPairs = Literal["all-pairs", "pairs", "self"]

# Demanded checks outside this set are planned, and their verdict is `not-run`.
BUILT = ("shape", "cold", "length", "stream", "counters", "parity", "acceptance")


class ParitySpec(Strict):
    """Byte parity: which pairs, and which differences are waived."""

    pairs: ParityPairs = "pairs"
    """`pairs`: those of the campaign; `all-pairs`: each side with each; `self`: baseline only."""
    waive_margin: float | None = Field(default=None, gt=0)
    """Differences where the target-only margin (in logprob) is below this show as `waived`."""


class AcceptanceSpec(Strict):
    """Drafters: alive, and accepted at least this much."""

    floor: float | None = Field(default=None, gt=1)
    """The least accept length (bonus included), pooled over all workloads."""


class ChecksSpec(Strict):
    """`true` demands a check, `false` leaves it out; the first seven are demanded by default."""

    shape: bool = True
    """The server's prompt count equals the plan, on every request."""
    cold: bool = True
    """Cold cells: flushed or bypassed, and `cached_tokens == 0` on each measured request."""
    length: bool = True
    """Cells that run to length got exactly the tokens they asked for."""
    stream: bool = True
    """Every measured stream was whole: no error inside, no cut, usage reported."""
    counters: bool = True
    """N = N0 + C + V + T - W, from independent counts (speculative sides)."""
    parity: bool | ParityPairs | ParitySpec | None = None
    """Same output bytes; by default for the campaign's pairs when temperature is 0."""
    acceptance: bool | AcceptanceSpec = True
    """Drafters are alive; `{floor: 1.2}` demands an accept length."""
    identity: bool = False
    """The server is the one that was planned: digest, model, drafter class, arguments."""
    image: bool = False
    """The image holds what it should, seen without a device."""
    integrity: bool = False
    """The checkpoint's tensors are all there, of the right shape and not zero."""
    capacity: bool = False
    """The pool is as large as asked, after a real prefill at full shape."""
    graphs: bool = False
    """Target and draft were captured, and captured sizes were exercised."""
    kernels: bool = False
    """No log line says that a kernel was declined or fell back."""
    retractions: bool = False
    """No request was retracted."""
    lifecycle: bool = False
    """Generate, flush, generate, cancel, refuse, stop: nothing degrades."""
    reuse: bool = False
    """Reused prefixes give the same bytes as cold ones."""
    cliff: bool = False
    """No mode's cycle time breaks away from the target's between two shapes."""
    telemetry: bool = False
    """Device memory, power and energy, where the host can tell."""


def demanded(checks: ChecksSpec, *, sides: int, temperature: float) -> dict[str, Any]:
    """The checks with their options, defaults filled in; what is not demanded is left out.

    `parity` becomes {"pairs", "waive_margin"}, `acceptance` {"floor"}, the rest True.
    """
    result: dict[str, Any] = {
        name: True
        for name in ChecksSpec.model_fields
        if name not in ("parity", "acceptance") and getattr(checks, name)
    }
    parity = _parity(checks.parity, sides=sides, temperature=temperature)
    if parity is not None:
        result["parity"] = parity.model_dump()
    if checks.acceptance is not False:
        spec = checks.acceptance if isinstance(checks.acceptance, AcceptanceSpec) else None
        result["acceptance"] = (spec or AcceptanceSpec()).model_dump()
    return result


def _parity(
    asked: bool | ParityPairs | ParitySpec | None, *, sides: int, temperature: float
) -> ParitySpec | None:
    if isinstance(asked, ParitySpec):
        return asked
    if isinstance(asked, str):
        return ParitySpec(pairs=asked)
    if asked is None:
        # With one side there is no pair to hold up against the target's own repeatability.
        asked = sides > 1 and temperature == 0
    return ParitySpec() if asked else None
