"""Cold, warm or session: how the cache is brought to the state that a cell demands."""

from __future__ import annotations

import time

from qualify.engines.protocol import Capabilities, EngineProtocol
from qualify.errors import CellError
from qualify.records.schema import CacheEvidence


async def clear(
    protocol: EngineProtocol, able: Capabilities, policy: str, *, patience_s: float
) -> CacheEvidence:
    """Bring the prefix cache to its start for a cell of `policy`, and say how.

    flush: the server confirmed it (waited for while busy; the time is kept, and no clock of
    a request runs meanwhile). bypass: every request of the cell asks for it itself, only for
    cold cells. no-cache: the server states that it keeps none. none: nothing could be done,
    and only the count of cached tokens can tell. Raises CellError when a flush is refused.
    """
    if able.flush:
        began = time.monotonic()
        outcome = await protocol.flush(patience_s=patience_s)
        if not outcome.ok:
            raise CellError(
                f"the cache could not be flushed: status {outcome.status} after"
                f" {outcome.attempts} attempts, {outcome.body.strip()[:200]!r}",
                "See the engine's log for requests that never ended.",
            )
        return CacheEvidence(
            policy, "flush", outcome.status, time.monotonic() - began, outcome.attempts
        )
    if able.no_prefix_cache:
        return CacheEvidence(policy, "no-cache")
    if able.bypass and policy == "cold":
        return CacheEvidence(policy, "bypass")
    return CacheEvidence(policy, "none")
