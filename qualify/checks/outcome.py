"""The outcome of a run, and the exit code that says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.checks.verdict import Verdict
from qualify.errors import ExitCode
from qualify.records.run import Run


@dataclass(frozen=True)
class RunOutcome:
    """word: qualified | not qualified | inconclusive | engine failed."""

    word: str
    exit_code: ExitCode
    sentence: str
    counts: dict[str, int]  # demanded verdicts by outcome
    informing: dict[str, int]  # the others


def outcome_of(run: Run, verdicts: Sequence[Verdict]) -> RunOutcome:
    """0 every demanded verdict passes or is waived; 1 any fails; 4 none fails but one is
    inconclusive or was not run; 3 the engine failed before anything could be judged."""
    demanded = [v for v in verdicts if v.demanded]
    counts: Counter[str] = Counter(v.outcome for v in demanded)
    informing: Counter[str] = Counter(v.outcome for v in verdicts if not v.demanded)

    def outcome(word: str, code: ExitCode, sentence: str) -> RunOutcome:
        return RunOutcome(word, code, sentence, dict(counts), dict(informing))

    broken = [entry for entry in run.launches if entry.status == "failed"]
    if broken and not run.measured() and not run.completions:
        why = broken[0].reason or "no reason was recorded"
        return outcome(
            "engine failed",
            ExitCode.ENGINE_FAILED,
            f"The engine failed before anything could be judged: {why}",
        )
    if failed := [v for v in demanded if v.outcome == "fail"]:
        names = ", ".join(dict.fromkeys(v.check for v in failed))
        return outcome(
            "not qualified",
            ExitCode.NOT_QUALIFIED,
            f"{len(failed)} of {len(demanded)} demanded verdicts fail ({names}).",
        )
    if not demanded:
        return outcome("inconclusive", ExitCode.INCONCLUSIVE, "Nothing could be judged.")
    if unsettled := [v for v in demanded if v.outcome in ("inconclusive", "not-run")]:
        names = ", ".join(dict.fromkeys(v.check for v in unsettled))
        return outcome(
            "inconclusive",
            ExitCode.INCONCLUSIVE,
            f"Nothing fails, but {len(unsettled)} of {len(demanded)} demanded verdicts are "
            f"not settled ({names}).",
        )
    waived = f", {counts['waived']} of them waived" if counts["waived"] else ""
    return outcome(
        "qualified",
        ExitCode.QUALIFIED,
        f"All {len(demanded)} demanded verdicts pass{waived}.",
    )
