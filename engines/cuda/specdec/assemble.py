"""From a checkpoint folder to a model ready to run, and the facts about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from specdec.config import ModelConfig
from specdec.contract import RunnerInfo, RunnerOptions
from specdec.draft_models import load_draft_model
from specdec.drafter import DraftModel, TargetSide
from specdec.errors import SpecdecError
from specdec.layers.linear import Products
from specdec.layers.threads import Threads
from specdec.model import Shared, Target
from specdec.numerics import choose_products
from specdec.parallel.exactness import shares_are_exact
from specdec.parallel.ranks import Ranks
from specdec.parallel.sharding import check_divisible, cutter, share_of
from specdec.plan import BLOCK, KV_BLOCK
from specdec.selfcheck import LENGTH, check_rows
from specdec.state import conv_bytes_per_slot, kv_bytes_per_token, state_bytes_per_slot
from specdec.weights import held_bytes, load_checkpoint

POOL_TOKENS_BY_DEFAULT = 65_536
MOST_DRAFT_STEPS = BLOCK - 1  # the anchor and its drafts then span two blocks at most


@dataclass(frozen=True)
class Assembled:
    """The model's parts; ``draft`` is there in every mode that drafts."""

    config: ModelConfig
    target: Target
    draft: DraftModel | None
    products: Products
    device: torch.device
    info: RunnerInfo


@torch.inference_mode()
def assemble(model_dir: Path, options: RunnerOptions, ranks: Ranks | None = None) -> Assembled:
    """Load strictly, build, and check row independence. Raises CheckpointError, SpecdecError.

    With ``ranks`` this is one rank's share of the model, and all of them assemble together.
    """
    check_options(options)
    device = pick_device(options.device)
    threads = Threads(device, options.threads or torch.get_num_threads())
    keep = None if ranks is None else partial(cutter, ranks=ranks)
    checkpoint = load_checkpoint(model_dir, keep, options.fp8_weights == "expanded")
    config = checkpoint.config
    if ranks is not None:
        check_divisible(config, ranks.size)
        config = share_of(config, ranks.size)
    context = min(options.context_length or config.context_length, config.context_length)
    products = choose_products(device, list(checkpoint.tensors.values()), ranks)
    weight_bytes, scale_bytes = held_bytes(checkpoint.tensors)
    # Taken out one by one, so that nothing is held twice.
    tensors = {n: checkpoint.tensors.pop(n).to(device) for n in list(checkpoint.tensors)}
    pool = options.max_total_tokens or min(
        options.max_running_requests * context, POOL_TOKENS_BY_DEFAULT
    )
    # No position lies beyond the pool; checkpoints may declare a million of them.
    positions = max(min(context, pool), LENGTH)
    reach = (options.attention_window, options.attention_sink_tokens)
    shared = Shared(config, tensors, products, positions, threads, device, *reach)
    target = Target(config, tensors, products, shared)
    side = TargetSide(config, shared, products, device, options, positions)
    draft = load_draft_model(model_dir, side, tensors)
    facts = None if draft is None else draft.facts
    kv = options.kv_cache_dtype
    info = RunnerInfo(
        model_path=model_dir,
        architecture=config.architecture,
        mode=options.mode,
        device=str(device),
        dtype="float32",
        vocab_size=config.vocab_size,
        context_length=context,
        eos_token_ids=config.eos_token_ids,
        parameters=checkpoint.report.parameters,
        weight_bytes=weight_bytes,
        weight_scale_bytes=scale_bytes,
        kv_cache_dtype=kv,
        kv_bytes_per_token=kv_bytes_per_token(config, facts.pool_kv if facts else (), kv),
        state_bytes_per_slot=state_bytes_per_slot(config),
        conv_bytes_per_slot=conv_bytes_per_slot(config),
        tp_size=1 if ranks is None else ranks.size,
        max_total_tokens=pool // options.page_size * options.page_size,
        max_running_requests=options.max_running_requests,
        page_size=options.page_size,
        draft_steps=facts.most if facts else 0,
        adaptive=options.adaptive and facts is not None,
        prefill_chunk_tokens=options.prefill_chunk_tokens,
        invariance=check_rows(target, config, products, device, kv),
        prefix_cache=options.prefix_cache,
        draft=facts,
        layers=target.layers,
    )
    if info.invariance.prefill_rows == 0:
        whole = replace(info.invariance, prefill_rows=options.prefill_chunk_tokens)
        info = replace(info, invariance=whole)
    if ranks is not None:
        exact = shares_are_exact(checkpoint.config, config, products, device)
        told = f"; outputs {'equal' if exact else 'NOT equal'} when ranks share them"
        found = info.invariance
        found = replace(found, shares_exact=exact, detail=found.detail + told)
        info = replace(info, invariance=found)
    return Assembled(config, target, draft, products, device, info)


def check_options(options: RunnerOptions) -> None:
    """Raise SpecdecError for launch settings that cannot work."""
    pool = options.max_total_tokens
    faults = [
        (
            options.draft_steps is not None and not 1 <= options.draft_steps <= MOST_DRAFT_STEPS,
            f"--draft-steps must be from 1 to {MOST_DRAFT_STEPS}",
        ),
        (options.prefill_chunk_tokens < 1, "--prefill-chunk-tokens must be at least 1"),
        (options.max_running_requests < 1, "--max-running-requests must be at least 1"),
        (
            options.page_size < KV_BLOCK or options.page_size % KV_BLOCK != 0,
            f"--page-size must be a multiple of {KV_BLOCK}",
        ),
        (pool is not None and pool < options.page_size, "--max-total-tokens holds no page"),
        (
            options.context_length is not None and options.context_length < 2,
            "--context-length must be at least 2",
        ),
        (options.threads is not None and options.threads < 1, "--threads must be at least 1"),
        (
            options.snapshot_interval < 0 or options.snapshot_interval % BLOCK != 0,
            f"--snapshot-interval must be a multiple of {BLOCK}, or 0",
        ),
        (options.max_snapshots < 1, "--max-snapshots must be at least 1"),
        (options.max_snapshot_bytes < 1, "--max-snapshot-bytes must be at least 1"),
        (
            bool(options.attention_window) and options.kv_cache_dtype == "fp8",
            "--attention-window does not go with --kv-cache-dtype fp8",
        ),
        (
            bool(options.attention_sink_tokens) and not options.attention_window,
            "--attention-sink-tokens needs an --attention-window beside it",
        ),
        (
            options.attention_window < 0 or options.attention_sink_tokens < 0,
            "--attention-window and --attention-sink-tokens must be 0 or more",
        ),
    ]
    for wrong, sentence in faults:
        if wrong:
            raise SpecdecError(f"{sentence}.", "Change it and start again.")


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one. Raises SpecdecError if the asked one is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not name.startswith(("cpu", "cuda")):
        raise SpecdecError(f"--device {name} is unknown.", "Use auto, cpu, cuda or cuda:N.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise SpecdecError("--device cuda: PyTorch sees no CUDA device.", "Use --device cpu.")
    return torch.device(name)
