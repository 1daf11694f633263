"""One finished request -> one Record: everything that was planned, sent and seen."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import asdict, dataclass

from qualify.client.reply import HttpRequest, Reply
from qualify.plan import CellPlan, LaunchPlan
from qualify.prompts.prompt import Prompt
from qualify.records.schema import CacheEvidence, Phase, Record, Timing


@dataclass(frozen=True)
class Where:
    """The place of a request in the run."""

    run: str
    attempt: str  # launch id with its attempt
    launch: LaunchPlan
    cell: CellPlan
    protocol: str
    eos_ids: tuple[int, ...] | None = None  # None: not known


def output_digest(ids: tuple[int, ...] | None, text: str) -> str | None:
    """sha256 over the ids as little-endian uint32, or over the text where no ids are known."""
    if ids is not None:
        return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()
    if text:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return None


def to_record(
    where: Where,
    prompt: Prompt,
    phase: Phase,
    request: HttpRequest,
    reply: Reply,
    timing: Timing,
    cache: CacheEvidence,
    *,
    t_start_s: float,
    client_delay_ms: float | None,
) -> Record:
    """What was planned, sent and seen, as one line; whether it counts, the reply's folding said
    already (a success without tokens, or without the server's own count, is none: rule 1)."""
    cell = where.cell
    return Record(
        run=where.run,
        launch=where.attempt,
        round=where.launch.round,
        side=where.launch.side.name,
        mode=where.launch.side.mode,
        cell=cell.id,
        workload=cell.workload,
        tokens=len(prompt.ids) or cell.prompts.tokens,
        concurrency=cell.concurrency,
        phase=phase,
        index=prompt.index,
        turn=prompt.turn,
        prompt_id=prompt.id,
        prompt_sha256=prompt.sha256,
        request={
            **asdict(cell.sampling),
            "protocol": where.protocol,
            "until": cell.until,
            "template_sha256": prompt.template_sha256,
            "thinking": cell.prompts.thinking,
            "prompt_class": prompt.klass,
            "eos_ids": list(where.eos_ids) if where.eos_ids is not None else None,
            "stream": True,
        },
        request_sha256=hashlib.sha256(request.body).hexdigest(),
        started_at=reply.started_at,
        t_start_s=t_start_s,
        ok=reply.failure is None,
        failure=reply.failure,
        http_status=reply.status,
        usage=reply.usage,
        timing=timing,
        finish_reason=reply.finish_reason,
        output_text=reply.text or None,
        reasoning_text=reply.reasoning or None,
        output_ids=reply.ids,
        output_sha256=output_digest(reply.ids, reply.text),
        speculation=reply.speculation,
        cache=cache,
        client_delay_ms=client_delay_ms,
        notes=reply.notes,
        extras=reply.extras,
    )
