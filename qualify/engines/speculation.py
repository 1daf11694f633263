"""Every engine's own figures of one request -> the integers V, P, C, N0, T, W.

Source of the conventions: each engine's documentation and code; see docs on speculation for
the table. Rates and lengths that an engine computes itself are never converted back: they
differ between engines (some count the prefill token, some count planned instead of real
drafts), and the integers beside them do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from qualify.engines.control import first_integer, integer
from qualify.records.schema import Speculation

_PHASES = ("prefill", "priming", "draft", "verify", "replay")


def from_sglang(meta: Mapping[str, Any]) -> Speculation | None:
    """SGLang's final `meta_info`, of any version, and the bundled engine's additions.

    None when it reports no verify steps: SGLang leaves the keys out then, so V = 0 cannot be
    told from "no speculation". P is nominal there (V times the draft width) even when a step
    was capped; the bundled engine, which reports plain tokens too, counts real proposals.
    """
    plain = integer(meta.get("plain_tokens"))
    own = plain is not None  # only the bundled engine says how many tokens were not speculated
    verify = first_integer(meta, "verify_steps", "spec_verify_ct")
    if verify is None:
        return None
    histogram = _histogram(
        meta.get("spec_correct_drafts_histogram", meta.get("spec_accept_histogram"))
    )
    return Speculation(
        source="meta_info" if own else "sglang meta_info (P = V x planned drafts)",
        V=verify,
        P=first_integer(
            meta,
            "proposed_drafts",
            "spec_num_proposed_drafts",
            "spec_proposed_drafts",
            "spec_draft_token_num",
        ),
        C=first_integer(
            meta,
            "correct_drafts",
            "spec_num_correct_drafts",
            "spec_accepted_drafts",
            "spec_accept_token_num",
        ),
        N0=integer(meta.get("prefill_tokens")) if own else 1,
        T=plain,
        W=integer(meta.get("trimmed_tokens")),
        histogram=histogram,
        derived=() if own else ("N0",),  # prefill gives the first token
        phases_s={
            name: float(meta[f"{name}_s"])
            for name in _PHASES
            if isinstance(meta.get(f"{name}_s"), int | float)
        },
    )


def from_vllm(metrics: Mapping[str, Any]) -> Speculation | None:
    """vLLM's `metrics.speculative_decoding` of one request; its P is the real count."""
    spec = metrics.get("speculative_decoding")
    if not isinstance(spec, Mapping):
        return None
    return Speculation(
        source="vllm metrics.speculative_decoding",
        V=integer(spec.get("num_spec_steps")),
        P=integer(spec.get("num_draft_tokens")),
        C=integer(spec.get("num_accepted_draft_tokens")),
        N0=1,
        histogram=_histogram(spec.get("acceptance_histogram")),
        derived=("N0",),  # prefill gives the first token
    )


_POCKETLLM_PHASES = {
    "prefill": "prefill_seconds",
    "priming": "mtp_prefill_seconds",
    "draft": "mtp_draft_seconds",
    "verify": "mtp_verify_seconds",
    "replay": "mtp_replay_seconds",
}


def from_pocketllm(said: Mapping[str, Any]) -> Speculation | None:
    """PocketLLM's result line; its names keep `mtp_` for every drafter, and its P is real.

    None when it counts no verify steps. PocketLLM does not report T: a tail shorter than a block
    is decoded plainly and counted nowhere, so it stays None. `specdec worker` reports T and W.
    """
    verify = integer(said.get("mtp_verify_count"))
    if verify is None:
        return None
    return Speculation(
        source="pocketllm result line",
        V=verify,
        P=integer(said.get("mtp_proposed_drafts")),
        C=integer(said.get("mtp_correct_drafts")),
        N0=1,
        T=integer(said.get("plain_tokens")),
        W=integer(said.get("trimmed_tokens")),
        derived=("N0",),  # prefill gives the first token
        phases_s={
            phase: float(said[name])
            for phase, name in _POCKETLLM_PHASES.items()
            if isinstance(said.get(name), int | float)
        },
    )


def from_llamacpp(
    timings: Mapping[str, Any],
    *,
    steps: Sequence[Sequence[int]] | None = None,
    drafter: str | None = None,
) -> Speculation | None:
    """llama.cpp's final `timings`, with the running counts of the stream where they came.

    steps: (predicted_n, draft_n, draft_n_accepted), all so far, at each rise of draft_n.
    llama.cpp counts a step's drafts once it has verified them, so each rise is one verify
    step, which gave its accepted drafts and one token more, the first of them at predicted_n.
    T is then counted, not computed: the tokens after the first that no verify step gave. W is
    what the last step gave past the end.
    Without them V is exact only for a drafter that proposes at every step
    (`drafter="model"`), V = predicted_n - draft_n_accepted - 1; else it stays None.
    None when the timings are missing; V = P = C = 0 when nothing was proposed.
    """
    predicted = integer(timings.get("predicted_n"))
    if predicted is None:
        return None
    proposed = integer(timings.get("draft_n")) or 0
    correct = integer(timings.get("draft_n_accepted")) or 0
    source, derived = "llama.cpp timings", ["N0"]
    verify: int | None = None
    plain: int | None = None
    trimmed: int | None = None
    histogram: tuple[int, ...] | None = None
    if proposed == 0:
        verify, plain = 0, predicted - 1 if predicted else 0
        derived.append("T")
    elif steps and steps[-1][1] == proposed:
        source = "llama.cpp timings, counted event by event"
        accepted = _accepted(steps)
        verify = len(steps)
        given: set[int] = set()
        for (first, _, _), right in zip(steps, accepted, strict=True):
            given.update(range(first, first + right + 1))
        plain = sum(i not in given for i in range(2, predicted + 1))
        trimmed = sum(i > predicted for i in given)
        histogram = _histogram_of(accepted)
    elif drafter == "model":
        source = "llama.cpp timings; V = predicted_n - draft_n_accepted - 1"
        verify = max(predicted - correct - 1, 0)
        derived.append("V")
    return Speculation(
        source=source,
        V=verify,
        P=proposed,
        C=correct,
        N0=1 if predicted else 0,
        T=plain,
        W=trimmed,
        histogram=histogram,
        derived=tuple(derived),
    )


def _accepted(steps: Sequence[Sequence[int]]) -> list[int]:
    """Accepted drafts of each step, from the running sums."""
    totals = [0, *(step[2] for step in steps)]
    return [now - before for before, now in itertools.pairwise(totals)]


def _histogram_of(accepted: Sequence[int]) -> tuple[int, ...] | None:
    if any(a < 0 for a in accepted):
        return None
    return tuple(sum(a == k for a in accepted) for k in range(max(accepted) + 1))


def _histogram(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    counts = [integer(v) for v in value]
    return None if any(c is None for c in counts) else tuple(c for c in counts if c is not None)
