"""The engine's target against transformers' own Qwen3.5 classes, in FP32.

Tolerance: logits of these checkpoints spread over about +-10; the two sum in different orders, and
1e-3 absolute is some thirty times the difference seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import random_model, save_checkpoint
from specdec.contract import RunnerOptions
from specdec.plan import Span, plan_pass
from specdec.runner import Runner
from torch import Tensor
from transformers import Qwen3_5ForCausalLM

TOLERANCE = 1e-3
PAGE = 64


def engine_logits(folder: Path, ids: list[int], chunks: list[int], **options: Any) -> Tensor:
    """Logits of every position, the tokens fed in chunks of the given sizes."""
    runner = Runner.load(folder, RunnerOptions(max_running_requests=2, **options))
    pages = list(range(2, 2 + -(-len(ids) // PAGE)))
    pieces: list[Tensor] = []
    at = 0
    with torch.inference_mode():
        for rows in chunks:
            span = Span(1, pages, at, ids[at : at + rows])
            plan = plan_pass([span], PAGE, runner._core.conv_taps, torch.device("cpu"))
            hidden = runner._core.target.hidden(plan, runner._core.state)
            pieces.append(runner._core.target.logits(hidden))
            at += rows
    assert at == len(ids)
    return torch.cat(pieces)


def chunked(total: int, size: int) -> list[int]:
    return [min(size, total - at) for at in range(0, total, size)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True, "num_key_value_heads": 4},
        {"linear_num_value_heads": 2, "head_dim": 64},
        {"layer_types": ["full_attention", "linear_attention", "full_attention"],
         "num_hidden_layers": 3, "num_key_value_heads": 1, "linear_conv_kernel_dim": 3},
    ],
    ids=["grouped", "tied", "ungrouped", "own-pattern"],
)  # fmt: skip
def test_prefill_logits_are_those_of_transformers(changes: dict, tmp_path: Path) -> None:
    model = random_model(5, **changes)
    folder = save_checkpoint(tmp_path, model, with_mtp=False)
    ids = torch.randint(0, 256, (1, 150), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids).logits[0]
    found = engine_logits(folder, ids[0].tolist(), [150])
    assert float(expected.abs().max()) > 3.0
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0.0)


@pytest.mark.parametrize("size", [256, 100, 64, 37, 8])
def test_chunked_prefill_agrees_with_transformers_at_every_chunk_size(
    size: int, random_checkpoint: Path
) -> None:
    ids = torch.randint(0, 256, (1, 300), generator=torch.Generator().manual_seed(2))
    model = Qwen3_5ForCausalLM.from_pretrained(random_checkpoint).float().eval()
    with torch.no_grad():
        expected = model(ids).logits[0]
    found = engine_logits(random_checkpoint, ids[0].tolist(), chunked(300, size))
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0.0)


def test_step_by_step_decode_agrees_with_transformers_own_cache(random_checkpoint: Path) -> None:
    ids = torch.randint(0, 256, (1, 110), generator=torch.Generator().manual_seed(3))
    model = Qwen3_5ForCausalLM.from_pretrained(random_checkpoint).float().eval()
    with torch.no_grad():
        out = model(ids[:, :60], use_cache=True)
        rows = [out.logits[0]]
        for i in range(60, 110):
            out = model(ids[:, i : i + 1], past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits[0])
    found = engine_logits(random_checkpoint, ids[0].tolist(), [60] + [1] * 50)
    torch.testing.assert_close(found, torch.cat(rows), atol=TOLERANCE, rtol=0.0)


def test_chunk_sizes_do_not_change_a_single_bit(random_checkpoint: Path) -> None:
    ids = torch.randint(0, 256, (300,), generator=torch.Generator().manual_seed(4)).tolist()
    whole = engine_logits(random_checkpoint, ids, [300])
    for chunks in (chunked(300, 64), chunked(300, 7), [130, *[1] * 40, *[3, 5, 8, 2] * 7, 4]):
        assert torch.equal(engine_logits(random_checkpoint, ids, chunks), whole)
