"""One side in one cell over all rounds: what a table of modes shows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from qualify.analysis.acceptance import Acceptance, acceptance_of
from qualify.analysis.phases import Phases, phases_of
from qualify.analysis.speculation import Cycle, pooled_cycle
from qualify.analysis.stats import Summary, summarise
from qualify.analysis.steady import Goodput, Steady, goodput_of, pooled_steady, steady_of
from qualify.analysis.tail import Tail, tail_of
from qualify.analysis.timing import (
    busy_s,
    prefill_share,
    prompt_classes,
    window_s,
)
from qualify.checks.implausible import flaw
from qualify.checks.natural_end import forced_past_end
from qualify.checks.pairing import side_names
from qualify.checks.pool import Pool, pool
from qualify.checks.select import by_side_and_cell, completion_tokens, measuring
from qualify.checks.stream import cause_of
from qualify.records.run import Run


@dataclass(frozen=True)
class SideCell:
    """All measuring launches of a side in a cell, pooled over requests.

    throughput_tok_s is all tokens over the sum of the launches' windows; the baseline's
    second launch (self-parity) stays out. prefill_share: of the time to the last token.
    """

    side: str
    mode: str
    cell: str
    workload: str
    tokens: int
    concurrency: int
    cache: str
    until: str
    launches: int
    measured_launches: int
    requests: int
    counted: int
    causes: dict[str, int]
    ttft_s: Summary
    tpot_ms: Summary
    end_s: Summary
    tpot_tail_ms: Tail
    ttft_tail_s: Tail
    prefill_share: float | None
    per_user_tok_s: float | None
    throughput_tok_s: float | None
    average_concurrency: float | None
    steady: Steady | None
    goodput: Goodput | None
    speculation: Pool | None
    acceptance: Acceptance | None
    cycle: Cycle | None
    phases: Phases | None
    prompt_classes: dict[str, int]
    forced_past_end: int | None


def side_cells(run: Run) -> list[SideCell]:
    """By cell in plan order, the baseline first; None for what no launch measured."""
    found = []
    groups = by_side_and_cell(run)
    gates = run.plan.campaign.get("gates") or {}
    cells = list(dict.fromkeys(cell for _, cell in groups))
    sides = side_names(run.plan)
    for side, cell in sorted(groups, key=lambda k: (cells.index(k[1]), sides.index(k[0]))):
        group = groups[side, cell]
        mine = list(measuring(group))
        if not mine:
            continue
        plan, counted = mine[0].cell, [r for p in mine for r in p.counted]
        sound = [r for r in counted if flaw(r) is None]
        tpot = summarise([r.timing.tpot_ms for r in sound if r.timing.tpot_ms is not None])
        windows = [w for p in mine if (w := window_s(p.records))]
        window = math.fsum(windows)
        tokens = sum(completion_tokens(r) or 0 for r in counted)
        causes = Counter(c for p in mine for r in p.records if (c := cause_of(r)))
        found.append(
            SideCell(
                side=side,
                mode=mine[0].mode,
                cell=cell,
                workload=plan.workload,
                tokens=plan.prompts.tokens,
                concurrency=plan.concurrency,
                cache=plan.cache,
                until=plan.until,
                launches=len(mine),
                measured_launches=sum(bool(p.counted) for p in mine),
                requests=sum(len(p.records) for p in mine),
                counted=len(counted),
                causes=dict(sorted(causes.items())),
                ttft_s=summarise([t for r in counted if (t := r.timing.ttft_s) is not None]),
                tpot_ms=tpot,
                end_s=summarise([t for r in counted if (t := r.timing.t_last_s) is not None]),
                tpot_tail_ms=tail_of(sound, lambda r: r.timing.tpot_ms),
                ttft_tail_s=tail_of(counted, lambda r: r.timing.ttft_s),
                prefill_share=prefill_share(counted),
                per_user_tok_s=1e3 / tpot.median if tpot.median else None,
                throughput_tok_s=tokens / window if window and tokens else None,
                average_concurrency=(
                    math.fsum(busy_s(p.records) for p in mine) / window if window else None
                ),
                steady=pooled_steady([steady_of(p.records, plan.concurrency) for p in mine]),
                goodput=goodput_of([r for p in mine for r in p.records], window, gates),
                speculation=pool(counted) if any(r.speculation for r in counted) else None,
                acceptance=acceptance_of(counted),
                cycle=pooled_cycle(sound, speculative=mine[0].speculative),
                phases=phases_of(sound, speculative=mine[0].speculative),
                prompt_classes=prompt_classes(counted),
                forced_past_end=forced_past_end(counted),
            )
        )
    return found
