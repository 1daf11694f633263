"""`capacity`: what the engine really holds, after a prefill that fills it."""

from __future__ import annotations

from qualify.planning.probes.capacity import CROWD_OUTPUT, LIMIT_OUTPUT
from qualify.run.probes.probing import Probing


async def probe(probing: Probing) -> None:
    """The limit first, one token beyond it, what the engine says then, and the crowd."""
    specs = list(probing.item.prompts)
    if probing.options["limit_tokens"] is not None:
        prompts = await probing.prompts(specs.pop(0))
        for step, output in (("at-limit", LIMIT_OUTPUT), ("one-more", LIMIT_OUTPUT + 1)):
            cache = await probing.clear()
            await probing.send(
                step, [prompts], output_tokens=output, cache=cache, asked_output=output
            )
    info = await probing.attempt.server.protocol.describe()
    probing.note(
        "reported",
        pool_tokens=info.pool_tokens,
        context_tokens=info.context_tokens,
        max_running=info.max_running,
        log_bytes=probing.log_bytes(),
    )
    for spec in specs:
        crowd = await probing.prompts(spec)
        cache = await probing.clear()
        await probing.send(
            "crowd",
            [[prompt] for prompt in crowd],
            output_tokens=CROWD_OUTPUT,
            concurrency=len(crowd),
            cache=cache,
        )
