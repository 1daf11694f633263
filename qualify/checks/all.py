"""Every check, in the order in which a reader wants them; nothing registers itself."""

from __future__ import annotations

from collections.abc import Callable

from qualify.checks import (
    acceptance,
    capacity,
    client,
    cliff,
    cold,
    completion,
    counters,
    evals,
    expect,
    graphs,
    identity,
    image,
    implausible,
    integrity,
    kernels,
    length,
    lifecycle,
    parity,
    prefill,
    prompts,
    protocol,
    ranks,
    retractions,
    retrieval,
    reuse,
    shape,
    stream,
    telemetry,
    warmth,
)
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run

Check = Callable[[Run, Settings], list[Verdict]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("completion", completion.check),
    ("identity", identity.check),
    ("integrity", integrity.check),
    ("image", image.check),
    ("stream", stream.check),
    ("shape", shape.check),
    ("prompts", prompts.check),
    ("cold", cold.check),
    ("prefill", prefill.check),
    ("warmth", warmth.check),
    ("length", length.check),
    ("retractions", retractions.check),
    ("capacity", capacity.check),
    ("graphs", graphs.check),
    ("kernels", kernels.check),
    ("telemetry", telemetry.check),
    ("parity", parity.check),
    ("ranks", ranks.check),
    ("acceptance", acceptance.check),
    ("counters", counters.check),
    ("cliff", cliff.check),
    ("reuse", reuse.check),
    ("lifecycle", lifecycle.check),
    ("expect", expect.check),
    ("protocol", protocol.check),
    ("client", client.check),
    ("implausible", implausible.check),
    ("evals", evals.check),
    ("retrieval", retrieval.check),
)


def run_checks(run: Run, checks: tuple[tuple[str, Check], ...] = CHECKS) -> tuple[Verdict, ...]:
    """Every verdict on a run. A check that breaks is inconclusive and stops no other one."""
    settings = Settings(run.plan.checks)
    verdicts: list[Verdict] = []
    for name, check in checks:
        if settings.off(name):
            text = "Switched off by the campaign."
            verdicts.append(Verdict(name, "all sides", "not-run", text, {}, demanded=False))
            continue
        try:
            verdicts += check(run, settings)
        except Exception as error:
            text = f"The check itself broke: {type(error).__name__}: {error}"
            verdicts.append(
                Verdict(name, "all sides", "inconclusive", text, {"error": repr(error)})
            )
    built = {name for name, _ in checks}
    for name in settings.checks:
        if name not in built and settings.named(name):
            text = "The campaign demands it, and this version cannot judge it."
            verdicts.append(Verdict(name, "all sides", "not-run", text))
    return tuple(verdicts)
