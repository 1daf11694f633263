"""What a campaign's `checks:` may say.

Every built check runs unless it is switched off. Naming one demands it: where it then cannot
be judged, that absence counts (`not-run` makes a run inconclusive) instead of being passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from qualify.campaign.faults import did_you_mean
from qualify.campaign.strict import Strict
from qualify.errors import UsageError

# Named here because a campaign of a later version may demand them; their verdict is `not-run`.
NOT_BUILT: tuple[str, ...] = ()


class ParitySpec(Strict):
    """Byte parity: which pairs, and which differences are waived."""

    pairs: Literal["campaign", "all"] = "campaign"
    """Those that the campaign compares, or each side with each."""
    waive_below_margin: float | None = Field(default=None, gt=0)
    """Differences where the target-only margin (in logprob) is smaller show as `waived`."""
    staggered: bool = False
    """Send a cell's prompts again, each joining while others decode, and compare those too."""


class AcceptanceSpec(Strict):
    """Drafters: alive, and accepted at least this much."""

    floor: float | None = Field(default=None, gt=1)
    """The least accept length (bonus included), pooled over all workloads."""


class ClientSpec(Strict):
    """When the measuring client itself was the bottleneck."""

    late_share: float | None = Field(default=None, gt=0, le=1)
    """The largest share of TPOT that the client's own lateness may reach."""


class CliffSpec(Strict):
    """A mode whose cycle time breaks away from the target's as the context grows."""

    growth_pct: float | None = Field(default=None, gt=0)
    """By how many percent its cycle may grow faster than the target's own; 50 if left out."""


class CapacitySpec(Strict):
    """What the engine holds, after a prefill that fills it."""

    limit: bool = True
    """Send one request at the limit of input and output, and one token more."""
    concurrency: bool = True
    """Send more short requests at once than should run together."""


class GraphsSpec(Strict):
    """Which graphs must have been captured."""

    target: bool | None = None
    """The target's; left out, where the launch arguments ask for captured batch sizes."""
    draft: bool | None = None
    """The drafter's: true demands it, false that it runs eagerly."""
    sizes: list[int] | None = Field(default=None, min_length=1)
    """Batch sizes that are captured, where the launch arguments do not say."""


class KernelsSpec(Strict):
    """Which lines of the log count against a side."""

    forbid: list[str] | None = Field(default=None, min_length=1)
    """Only lines that hold one of these words; left out, every declined or fallen-back one."""
    allow: list[str] | None = Field(default=None, min_length=1)
    """Lines that hold one of these words are let through."""


class LifecycleSpec(Strict):
    """Incidents, at which shape and what may change after them."""

    tokens: int | None = Field(default=None, gt=0)
    """Prompt tokens; left out, the campaign's largest shape, and 8,192 or more where they fit."""
    idle_s: float | None = Field(default=None, gt=0)
    """How long nothing is sent in the idle gap; 5 if left out."""
    median_ratio: float | None = Field(default=None, gt=1)
    """Median TPOT after a flush over that before it, at most; 1.25 if left out."""
    tail_ratio: float | None = Field(default=None, gt=1)
    """The same for the 99th percentile; 3 if left out."""


class ReuseSpec(Strict):
    """Prompts that share more or less of one text."""

    tokens: int | None = Field(default=None, gt=0)
    """Tokens of the shared text; left out, the campaign's largest shape from 2,048 to 8,192."""


class TelemetrySpec(Strict):
    """Limits of memory and energy over the measured part of every cell."""

    device_gib: float | None = Field(default=None, gt=0)
    """The most device memory that a rank may hold, in GiB."""
    host_gib: float | None = Field(default=None, gt=0)
    """The most that the engine's processes may hold in the host's memory, in GiB."""
    energy_j_per_token: float | None = Field(default=None, gt=0)
    """The most energy an output token may take: of the devices, or of the processors."""


class ChecksSpec(Strict):
    """`true` demands a check, `false` switches it off, unnamed ones run where they apply."""

    completion: bool | None = None
    """Every planned cell was measured, every request succeeded."""
    shape: bool | None = None
    """The server's prompt count equals the plan, on every request."""
    prompts: bool | None = None
    """The same prompts on each side, different ones between workloads."""
    cold: bool | None = None
    """Cold cells: flushed or bypassed, and `cached_tokens == 0` on each measured request."""
    prefill: bool | None = None
    """A second witness of cold: TTFT in keeping with the prefill rate."""
    length: bool | None = None
    """Cells that run to length got exactly the tokens they asked for."""
    stream: bool | None = None
    """Every measured stream was whole: no error inside, no cut, usage reported."""
    parity: bool | Literal["all-pairs"] | ParitySpec | None = None
    """Same output bytes: the baseline with itself, then the pairs."""
    ranks: bool | None = None
    """Under tensor parallelism all ranks committed the same tokens, and each left a log."""
    acceptance: bool | AcceptanceSpec | None = None
    """Drafters are alive; `{floor: 1.2}` demands an accept length."""
    counters: bool | None = None
    """N = N0 + C + V + T - W, from independent counts (speculative sides)."""
    expect: bool | None = None
    """What `expect:` says must not change did not."""
    warmth: bool | None = None
    """Warm cells and sessions really reused what they should."""
    protocol: bool | None = None
    """The engine reported everything that the checks need."""
    client: bool | ClientSpec | None = None
    """The client was not the bottleneck."""
    implausible: bool | None = None
    """No figure that cannot be: zero latency, TTFT flat over context."""
    evals: bool | None = None
    """No quality was lost in the evaluations that `evals:` asks for."""
    retrieval: bool | None = None
    """Needles: exact size, cold, no retraction, natural end, and a fresh request afterwards."""
    identity: bool | None = None
    """The server is the one that was planned: digest, model, drafter class, arguments."""
    image: bool | None = None
    """The image holds what it should, seen without a device."""
    integrity: bool | None = None
    """The checkpoint's tensors are all there, of the right shape and not zero."""
    capacity: bool | CapacitySpec | None = None
    """The pool is as large as asked, after a real prefill at full shape."""
    graphs: bool | GraphsSpec | None = None
    """Target and draft were captured, and captured sizes were exercised."""
    kernels: bool | KernelsSpec | None = None
    """No log line says that a kernel was declined or fell back."""
    retractions: bool | None = None
    """No request was retracted."""
    lifecycle: bool | LifecycleSpec | None = None
    """Generate, flush, generate, cancel, refuse, stop: nothing degrades."""
    reuse: bool | ReuseSpec | None = None
    """Reused prefixes give the same bytes as cold ones."""
    cliff: bool | CliffSpec | None = None
    """No mode's cycle time breaks away from the target's between two shapes."""
    telemetry: bool | TelemetrySpec | None = None
    """Device memory, power and energy, where the host can tell."""


def as_written(checks: ChecksSpec) -> dict[str, Any]:
    """The checks that the campaign names: name -> True, False or a mapping of options.

    `parity: all-pairs` becomes {"pairs": "all"}; unnamed checks stay out.
    """
    result: dict[str, Any] = {}
    for name in ChecksSpec.model_fields:
        value = getattr(checks, name)
        if isinstance(value, str):
            result[name] = {"pairs": "all"}
        elif isinstance(value, Strict):
            result[name] = value.model_dump(exclude_none=True)
        elif value is not None:
            result[name] = value
    return result


def picked(checks: ChecksSpec, names: Iterable[str]) -> ChecksSpec:
    """Only `names`, demanded, with the options that the campaign gives them; the rest off.

    Raises UsageError for a name that is no check.
    """
    known = list(ChecksSpec.model_fields)
    wanted = dict.fromkeys(names)
    for name in wanted:
        if name not in known:
            raise UsageError(f"--checks knows no `{name}`.", did_you_mean(name, known))
    chosen = {name: getattr(checks, name) or True if name in wanted else False for name in known}
    return checks.model_copy(update=chosen)


def parity_is_judged(checks: ChecksSpec, *, sides: int, temperature: float) -> bool:
    """Will parity be judged, so that the baseline has to be measured twice?

    With one side it is only when the campaign asks: there is no pair to hold up against
    the target's own repeatability. Above temperature 0 it never is.
    """
    if temperature > 0 or checks.parity is False:
        return False
    return sides > 1 or checks.parity is not None
