"""`reuse`: the same prompts over a kept prefix, then each of them cold."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.planning.probes.reuse import OUTPUT_TOKENS
from qualify.prompts.exact import common_prefix
from qualify.prompts.prompt import Prompt
from qualify.run.probes.pieces import needs_ids, of_ids
from qualify.run.probes.probing import PLAIN, Probing


async def probe(probing: Probing) -> None:
    """Steps: kept (six cases one after another, over one cache) and cold (each on its own)."""
    needs_ids(probing)
    shared, other = await probing.prompts(probing.item.prompts[0])
    able = probing.attempt.able
    probing.note(
        "engine",
        tokens=probing.options["tokens"],
        no_prefix_cache=able.no_prefix_cache,
        cached_tokens=able.cached_tokens,
    )
    sent: list[tuple[int, ...]] = []  # what the engine may hold: prompts with their answers

    async def kept(case: str, prompt: Prompt, first: bool = False) -> tuple[int, ...]:
        cache = await probing.clear() if first else PLAIN
        reusable = max((common_prefix(past, prompt.ids) for past in sent), default=0)
        (record,) = await probing.send(
            "kept",
            [[prompt]],
            output_tokens=OUTPUT_TOKENS,
            cache=cache,
            case=case,
            reusable=reusable,
        )
        answer = record.output_ids or ()
        sent.append((*prompt.ids, *answer))
        return answer

    base = of_ids(shared, "initial", shared.ids)
    answer = await kept("initial", base, first=True)
    cases = _cases(base, other, answer)
    for case, prompt in cases.items():
        await kept(case, prompt)
    for case, prompt in {"initial": base, **cases}.items():
        if case == "exact":
            continue  # the same prompt as the first
        cache = await probing.clear()
        await probing.send("cold", [[prompt]], output_tokens=OUTPUT_TOKENS, cache=cache, case=case)


def _cases(base: Prompt, other: Prompt, answer: Sequence[int]) -> dict[str, Prompt]:
    """Every later prompt by its name, in the order in which they are sent."""
    ids, new, n = base.ids, other.ids, len(base.ids)
    parts = {
        "exact": ids,
        "append": (*ids, *answer, *new[: max(1, n // 8)]),
        "shorter": ids[: n * 3 // 4],
        "branch": (*ids[: n // 2], *new[: n // 2]),
        "compressed": (*ids[: n // 4], *new[n // 2 : n // 2 + n // 4]),
    }
    return {case: of_ids(base, case, part) for case, part in parts.items()}
