"""`parity` with staggered arrivals: each request joins a batch that is already decoding."""

from __future__ import annotations

import asyncio

from qualify.client.clock import CLOCK
from qualify.planning.probes.staggered import PASSES
from qualify.run.probes.probing import Probing

SHARES = (0.4, 0.15)  # of a request's whole time, between two arrivals; one for each pass


async def probe(probing: Probing) -> None:
    """Steps: alone (one, to learn its time), then `staggered` in two passes."""
    count = probing.options["count"]
    prompts = (await probing.prompts(probing.item.prompts[0]))[:count]
    output = probing.item.like.sampling.output_tokens
    cache = await probing.clear()
    (alone,) = await probing.send("alone", [prompts[:1]], output_tokens=output, cache=cache)
    apart_s = alone.timing.t_end_s or 0.0
    for number in range(PASSES):
        cache = await probing.clear()
        began, gap_s = CLOCK.now(), apart_s * SHARES[number]

        async def arrival(index: int, began: float = began, gap_s: float = gap_s) -> None:
            await asyncio.sleep(max(0.0, began + index * gap_s - CLOCK.now()))

        await probing.send(
            "staggered",
            [[prompt] for prompt in prompts],
            output_tokens=output,
            concurrency=count,
            cache=cache,
            gate=arrival,
            number=number,
            apart_s=gap_s,
        )
