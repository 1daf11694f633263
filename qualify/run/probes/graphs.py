"""`graphs`: run each captured batch size, one that was not captured, and the longest context."""

from __future__ import annotations

from qualify.errors import CellError
from qualify.planning.probes.graphs import OUTPUT_TOKENS
from qualify.run.probes.probing import Probing


async def probe(probing: Probing) -> None:
    """One batch a size, all members at once; the log says later which path each step took."""
    batch, *longest = probing.item.prompts
    prompts = await probing.prompts(batch)
    for size in probing.options["batches"]:
        cache = await probing.clear()
        probing.note("batch-starts", size=size, log_bytes=probing.log_bytes())
        await probing.send(
            "batch",
            [[prompt] for prompt in prompts[:size]],
            output_tokens=OUTPUT_TOKENS,
            concurrency=size,
            cache=cache,
            size=size,
        )
        probing.note("batch-ended", size=size, log_bytes=probing.log_bytes())
    for spec in longest:
        limit = probing.attempt.info.context_tokens
        if limit is not None and spec.tokens + OUTPUT_TOKENS > limit:
            raise CellError(
                f"The longest context planned is {spec.tokens + OUTPUT_TOKENS:,} tokens, and the"
                f" running engine says that it allows {limit:,}.",
                "Correct context_tokens of the profile, or start the engine with more.",
            )
        found = await probing.prompts(spec)
        cache = await probing.clear()
        await probing.send("longest", [found], output_tokens=OUTPUT_TOKENS, cache=cache)
