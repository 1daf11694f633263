"""Workloads -> cells: the unit of measuring, in the same order in every launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from qualify.campaign.schema import Campaign, WorkloadSpec
from qualify.engines.protocol import Sampling
from qualify.plan import CellPlan
from qualify.prompts.prompt import PromptSpec


def cells_of(campaign: Campaign, workloads: Iterable[WorkloadSpec]) -> Iterator[CellPlan]:
    """One cell a shape and concurrency. Cells of one shape share their prompts:
    `repeats_of` names the first of them."""
    for workload in workloads:
        for tokens in many(workload.prompts.tokens):
            first: str | None = None
            for concurrency in many(workload.concurrency):
                cell = _cell(campaign, workload, tokens, concurrency, first)
                first = first or cell.id
                yield cell


def many(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _cell(
    campaign: Campaign, workload: WorkloadSpec, tokens: int, concurrency: int, first: str | None
) -> CellPlan:
    asked = workload.prompts
    prompts = PromptSpec(
        campaign=campaign.campaign,
        workload=workload.name,
        source=asked.source,
        tokens=tokens,
        count=asked.count,
        seed=campaign.seed,
        turns=asked.turns,
        growth=asked.growth,
        template=asked.template,
        thinking=asked.thinking,
        repeat=asked.repeat,
    )
    warmup = (
        replace(prompts, stream="warmup", count=workload.warmup.count)
        if workload.warmup.count
        else None
    )
    return CellPlan(
        id=f"{workload.name}@{tokens}/c{concurrency}",
        workload=workload.name,
        prompts=prompts,
        warmup=warmup,
        sampling=_sampling(campaign, workload),
        concurrency=concurrency,
        cache=workload.cache,
        until=workload.until,
        first_token_timeout_s=workload.first_token_timeout_s or campaign.start_timeout_s,
        repeats_of=first,
    )


def _sampling(campaign: Campaign, workload: WorkloadSpec) -> Sampling:
    asked = campaign.sampling
    return Sampling(
        output_tokens=workload.output_tokens or asked.output_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        seed=asked.seed,
        ignore_eos=workload.until == "length",
    )
