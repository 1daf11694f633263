"""Accept length of a drafter on held-out prompts, without the serving code: on the GPU, at once.

The target's greedy continuation of each prompt is known; drafts are made at every token of it and
the steps of a speculative decode are walked through: from an anchor with c right drafts to the one
c + 1 tokens further.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from specdec.train.continuations import Round, continue_round
from specdec.train.drafter_blocks import BLOCK_REACH, drafts_at, look
from specdec.train.drafter_heads import DFlash2, DSpark
from specdec.train.model import HybridModel
from specdec.train.stages import stages


def walk(runs: Seq[int], new_tokens: int) -> list[int]:
    """Right drafts of each step; ``runs[i]``: right drafts at anchor i (0: prefill's token)."""
    steps, place = [], 0
    while place + 1 < new_tokens:
        steps.append(runs[place])
        place += runs[place] + 1
    return steps


@torch.no_grad()
def accept_length(
    model: HybridModel,
    drafters: Seq[DFlash2 | DSpark],
    prompts: Seq[Seq[int]],
    new_tokens: int,
) -> dict[str, dict[str, object]]:
    """By kind: accept length (1 + C/V, no limit at the output's end) and histogram of right
    drafts. All prompts have the same length."""
    device, size = model.model.embed_tokens.weight.device, len(prompts[0])
    length = -(-(size + new_tokens + BLOCK_REACH) // 64) * 64
    ids = torch.zeros(len(prompts), length, dtype=torch.int32)
    ids[:, :size] = torch.tensor(prompts)
    positions = torch.arange(length, dtype=torch.int32).expand(len(prompts), -1)
    starts = torch.full((len(prompts),), size, dtype=torch.int32)
    done = continue_round(model, Round(ids, positions, starts))
    taps = {layer for drafter in drafters for layer in drafter.shape.taps}
    seen = look(model, done.ids.to(device), done.positions.to(device), stages(False), taps)
    anchors = torch.arange(size, size + new_tokens, device=device).expand(len(prompts), -1)
    embedding = model.model.embed_tokens.weight
    found: dict[str, dict[str, object]] = {}
    for drafter in drafters:
        drafts = drafts_at(drafter, embedding, seen, anchors)
        index = anchors.unsqueeze(-1) + 1 + torch.arange(drafts.shape[-1], device=device)
        true = seen.ids.unsqueeze(1).expand(-1, new_tokens, -1).gather(2, index)
        runs = (drafts == true).int().cumprod(-1).sum(-1).tolist()
        steps = [correct for row in runs for correct in walk(row, new_tokens)]
        histogram = [steps.count(count) for count in range(drafts.shape[-1] + 1)]
        length_ = round(1 + sum(steps) / len(steps), 3)
        found[drafter.shape.kind] = {"accept_length": length_, "histogram": histogram}
    return found
