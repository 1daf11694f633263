"""`margins`: the target-only launch scores the tokens at which two outputs part (rule 8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from qualify.errors import CellError
from qualify.plan import CellPlan
from qualify.prompts.prompt import Prompt
from qualify.records.partings import Parting, partings, prefix_sha256
from qualify.records.store import load_run
from qualify.run.probes.probing import Interrupted, Probing

MOST = 200  # places; more than that is no near tie, and each costs a prefill


def idle(folder: Path) -> bool:
    """Whether no two outputs of the run so far differ: then there is nothing to score."""
    return not partings(load_run(folder).records)


async def probe(probing: Probing) -> None:
    """One request a place: prompt and common prefix, one token, its log probabilities.

    Each answer is one `scored` step, each place that could not be scored one `not-scored`.
    """
    attempt = probing.attempt
    run = await asyncio.to_thread(load_run, attempt.store.folder)
    places = partings(run.records)
    cells = {cell.id: cell for item in run.plan.launches for cell in item.cells}
    probing.note("asked", places=len(places), most=MOST)
    for place in places[:MOST]:
        if attempt.stop.is_set():
            raise Interrupted
        where: dict[str, Any] = {
            "prompt": place.prompt_id,
            "turn": place.turn,
            "position": place.position,
            "prefix_sha256": prefix_sha256(place.prefix),
        }
        try:
            ids = await _ids(probing, cells[place.cell], place)
            scores = await attempt.server.protocol.score_next(
                ids, timeout_s=probing.item.like.first_token_timeout_s
            )
        except CellError as error:
            probing.note("not-scored", **where, why=f"{error.message} {error.remedy}".strip())
            continue
        probing.note("scored", **where, tokens=len(ids), top=[list(entry) for entry in scores])


async def _ids(probing: Probing, cell: CellPlan, place: Parting) -> tuple[int, ...]:
    """The prompt's ids and what both outputs have in common. Raises CellError."""
    prompts = await probing.prompts(cell.prompts)
    ids = _of(prompts, place).ids
    if not ids:
        raise CellError("The prompt was sent as text, and what follows it is known by ids.", "")
    whole = (*ids, *place.prefix)
    context = probing.attempt.info.context_tokens
    if context is not None and len(whole) + 1 > context:
        raise CellError(f"{len(whole)} + 1 tokens do not fit the engine's {context}.", "")
    return whole


def _of(prompts: list[Prompt], place: Parting) -> Prompt:
    found = next((p for p in prompts if p.id == place.prompt_id and p.turn == place.turn), None)
    if found is None:
        raise CellError(f"There is no prompt {place.prompt_id} to build again.", "")
    return found
