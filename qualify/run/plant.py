"""Show that this engine tells a cached prompt from a fresh one, before anything is called cold.

A prompt of its own stream is sent twice. An engine that reports cached tokens the second time
can be believed when it reports none; one that never does can not (rule 5). Where cold will
mean a per-request bypass, a third send shows that the bypass leaves the planted prompt alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from qualify.errors import CellError
from qualify.plan import CellPlan
from qualify.records.schema import CacheEvidence
from qualify.run.launch import Attempt
from qualify.run.sending import send_phase

OUTPUT_TOKENS = 2


async def plant(attempt: Attempt, like: CellPlan) -> dict[str, Any]:
    """Evidence for the cells of this launch: cached tokens at each send, None = not reported."""
    context = attempt.info.context_tokens
    most = None if context is None else context - OUTPUT_TOKENS
    try:
        prompt = attempt.shelf.probe(like, most=most)
        cell = dataclasses.replace(
            like,
            id="probe",
            sampling=dataclasses.replace(like.sampling, output_tokens=OUTPUT_TOKENS),
            concurrency=1,
        )
        plain = CacheEvidence("warm", "none")
        sent, _ = await send_phase(attempt, cell, [[prompt, prompt]], "probe", plain, concurrency=1)
        first, second = sent
        found: dict[str, Any] = {
            "planted_tokens": len(prompt.ids),
            "first_cached": first.usage.cached_tokens,
            "planted_cached": second.usage.cached_tokens,
            "first_ttft_s": first.timing.ttft_s,
            "planted_ttft_s": second.timing.ttft_s,
            "planted_failure": second.failure.message if second.failure else None,
        }
        if attempt.able.bypass and not attempt.able.flush:
            bypass = CacheEvidence("cold", "bypass")
            sent, _ = await send_phase(attempt, cell, [[prompt]], "probe", bypass, concurrency=1)
            found["bypass_cached"] = sent[0].usage.cached_tokens
        return found
    except (CellError, ValueError, IndexError) as error:
        # Interrupted or refused: the cells say that nothing was planted.
        return {"planted_cached": None, "planted_failure": str(error)}
