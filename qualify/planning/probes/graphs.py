"""`graphs`: every captured batch size, one that was not captured, and the longest context."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qualify.plan import LaunchPlan, ProbePlan
from qualify.planning.probes.facts import Facts, spec_like

STREAM = "graphs"
PROMPT_TOKENS = 256  # enough for every page size in use; the batch is what is exercised
OUTPUT_TOKENS = 64  # a batch must stay full while its members decode


def plan(launch: LaunchPlan, facts: Facts, options: dict[str, Any]) -> ProbePlan | None:
    """One batch a size, then one request at the context's limit unless `capacity` sends that.

    `sizes` of the options replaces what the launch arguments ask to be captured. None where
    neither says anything: without captured sizes there is nothing to exercise.
    """
    sizes = options.get("sizes") or captured_sizes(facts.args)
    if not sizes:
        return None
    batches = [*sizes, *another_size(sizes)]
    like = min(launch.cells, key=lambda c: c.prompts.tokens)
    tokens = min(like.prompts.tokens, PROMPT_TOKENS)
    prompts = [spec_like(like, STREAM, tokens, max(batches))]
    requests, prompt_tokens = sum(batches), sum(batches) * tokens
    if facts.context_tokens is not None and "capacity" not in facts.named:
        prompts.append(spec_like(like, STREAM, facts.context_tokens - OUTPUT_TOKENS))
        requests, prompt_tokens = requests + 1, prompt_tokens + prompts[-1].tokens
    return ProbePlan(
        name="graphs",
        like=like,
        prompts=tuple(prompts),
        requests=requests,
        prompt_tokens=prompt_tokens,
        output_tokens=requests * OUTPUT_TOKENS,
        options={**options, "sizes": list(sizes), "batches": batches},
    )


def captured_sizes(args: Mapping[str, Any]) -> list[int]:
    """Batch sizes that the launch arguments ask to be captured for decoding; none: empty.

    Source: SGLang's --cuda-graph-config (JSON by phase) and the older --cuda-graph-bs.
    """
    config = args.get("cuda-graph-config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            return []
    if isinstance(config, Mapping):
        decode = config.get("decode")
        if not isinstance(decode, Mapping) or decode.get("backend") == "disabled":
            return []
        return _sizes(decode.get("bs"))
    listed = args.get("cuda-graph-bs")
    return _sizes(listed.split() if isinstance(listed, str) else listed)


def another_size(sizes: list[int]) -> list[int]:
    """The smallest batch size below the largest captured one that was not captured itself."""
    return next(([n] for n in range(1, max(sizes)) if n not in sizes), [max(sizes) + 1])


def _sizes(listed: Any) -> list[int]:
    if isinstance(listed, int) and not isinstance(listed, bool):
        listed = [listed]
    if not isinstance(listed, list):
        return []
    return sorted({int(n) for n in listed if str(n).isdecimal() and int(n) > 0})
