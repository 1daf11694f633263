"""llama.cpp's native `/completion`: deltas of text and ids, a last event with the counts.

Source: engine-protocols §2.2 and streams of the server itself. `tokens_predicted` and
`tokens_evaluated` are the server's counts; `prompt_progress` reports carry no tokens, though
their `tokens` is [0].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qualify.client import values
from qualify.client.tally import Tally

_REASONS = {"limit": "length", "eos": "stop", "word": "stop"}


class LlamaCppFolder:
    """See `qualify.client.stream.fold_llamacpp`."""

    def event(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        index = payload.get("index")
        if index not in (None, 0):
            tally.note("more than one answer arrived; only the first was read")
            return
        stop = payload.get("stop") is True
        timings = values.mapping(payload.get("timings"))
        total = values.count(payload.get("tokens_predicted"))
        if total is None:
            total = values.count(timings.get("predicted_n"))
        tally.tokens(
            t_s,
            text=values.text(payload.get("content")),
            ids=values.ids(payload.get("tokens")),
            total=total,
        )
        self._counts(payload, timings, total, stop, tally)
        if stop:
            self._stop(payload, tally)

    def document(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        self.event(payload, t_s, tally)

    def finish(self, tally: Tally) -> None:
        """Nothing is left open between events."""

    def _counts(
        self,
        payload: Mapping[str, Any],
        timings: Mapping[str, Any],
        total: int | None,
        stop: bool,
        tally: Tally,
    ) -> None:
        if timings:
            self._draft_step(timings, tally)
            tally.extras["timings"] = dict(timings)
            cached, processed = (values.count(timings.get(k)) for k in ("cache_n", "prompt_n"))
            if cached is not None:
                tally.cached_tokens = cached
                if processed is not None:
                    tally.prompt_tokens = cached + processed
        evaluated = values.count(payload.get("tokens_evaluated"))
        if evaluated is not None:
            if stop and timings and tally.prompt_tokens not in (None, evaluated):
                tally.note(
                    f"tokens_evaluated says {evaluated} prompt tokens, "
                    f"timings say {tally.prompt_tokens}"
                )
            tally.prompt_tokens = evaluated
        if total is not None:
            tally.completion_tokens = total
        for key in ("tokens_cached", "truncated", "generation_settings", "model", "id_slot"):
            if payload.get(key) is not None:
                tally.extras[key] = payload[key]

    def _draft_step(self, timings: Mapping[str, Any], tally: Tally) -> None:
        """Each rise of the running `draft_n` is one verify step (`timings_per_token`).

        `extras["draft_steps"]` keeps (predicted_n, draft_n, draft_n_accepted) at each rise;
        it is absent when no event before the last one carried timings.
        """
        predicted = values.count(timings.get("predicted_n"))
        proposed = values.count(timings.get("draft_n")) or 0
        accepted = values.count(timings.get("draft_n_accepted")) or 0
        last = tally.extras.get("timings")
        if last is None and predicted != 1:
            return  # only a final report: the steps were not told one by one
        steps = tally.extras.setdefault("draft_steps", [])
        if proposed > (steps[-1][1] if steps else 0):
            steps.append([predicted, proposed, accepted])

    def _stop(self, payload: Mapping[str, Any], tally: Tally) -> None:
        kind = payload.get("stop_type")
        if not isinstance(kind, str):
            # Older servers: three flags instead of one word.
            flags = {"limit": "stopped_limit", "eos": "stopped_eos", "word": "stopped_word"}
            kind = next((k for k, flag in flags.items() if payload.get(flag) is True), "none")
        tally.finish_reason = _REASONS.get(kind, kind)
        tally.extras["stop_type"] = kind
