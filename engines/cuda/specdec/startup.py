"""What the server says about itself once the model is loaded, before it takes requests."""

from __future__ import annotations

import psutil

from specdec import logs
from specdec.contract import DENSE_LIMIT, DENSE_STEP
from specdec.draft_facts import DraftFacts
from specdec.engine import Engine
from specdec.logs import logger
from specdec.settings import ServeSettings
from specdec.tokenizer import Tokenizer

KV_NAMES = {"float32": "float32", "fp8": "float8_e4m3fn"}  # as PyTorch calls them


def log_startup(settings: ServeSettings, engine: Engine) -> None:
    """Pools, limits, graphs and the result of the row-independence check."""
    info = engine.info
    half = info.kv_bytes_per_token * info.max_total_tokens // 2
    logger.info(
        logs.kv_pool_line(
            dtype=f"torch.{KV_NAMES[info.kv_cache_dtype]}",
            tokens=info.max_total_tokens,
            k_bytes=half,
            v_bytes=half,
        )
    )
    slots = info.max_running_requests
    logger.info(
        logs.state_pool_line(
            slots=slots,
            conv_bytes=slots * info.conv_bytes_per_slot,
            state_bytes=slots * (info.state_bytes_per_slot - info.conv_bytes_per_slot),
            row_state_bytes=0,  # a rejected row leaves no state to undo, so none is kept
        )
    )
    asked, granted = settings.max_total_tokens, info.max_total_tokens
    if asked is not None and granted < asked:
        logger.warning(logs.pool_cap_line(asked=asked, granted=granted))
    if slots < settings.max_running_requests:
        logger.warning(
            logs.running_cap_line(capped=info.max_running_requests, slots=info.max_running_requests)
        )
    context = settings.context_length
    if context is not None and context > info.context_length:
        logger.warning(
            f"context_length={context} is beyond the checkpoint's own, so "
            f"{info.context_length} is used."
        )
    if info.tp_size > 1:
        how = "gloo" if info.device == "cpu" else "NCCL"
        logger.info(
            f"Tensor parallel: {info.tp_size} ranks over {how}; sizes above are of one rank. "
            "Every rank reports its tokens, and they are compared after every step."
        )
    if info.draft is not None and info.draft.block_size is not None:
        _log_block_drafter(info.draft, engine.tokenizer)
    logger.info(f"Decode mode: {info.mode}. {info.invariance.detail}")
    if info.prefix_cache:
        logger.info(
            f"Prefix cache: recurrent snapshots every {DENSE_STEP} tokens up to {DENSE_LIMIT}, "
            f"then every {settings.snapshot_interval}; at most {settings.max_snapshots} and "
            f"{settings.max_snapshot_bytes} bytes."
        )
    else:
        logger.info("Prefix cache: off.")
    logger.info("No CUDA graph is captured: every step runs eagerly.")
    logger.info(
        logs.limits_line(
            max_total_tokens=info.max_total_tokens,
            chunk_tokens=info.prefill_chunk_tokens,
            max_running_requests=info.max_running_requests,
            context_length=info.context_length,
            available_bytes=_available_bytes(info.device),
        )
    )


def _log_block_drafter(draft: DraftFacts, tokenizer: Tokenizer) -> None:
    logger.info(logs.draft_runner_line(draft))
    assert draft.mask_token is not None
    logger.info(
        logs.draft_ready_line(
            draft, repr(tokenizer.decode([draft.mask_token], skip_special_tokens=False))
        )
    )
    logger.info(
        f"Draft checkpoint: {draft.folder}, {draft.tensors} tensors, {draft.parameters} parameters."
    )
    if draft.own_rows:
        half = draft.own_bytes // 2
        logger.info(
            logs.kv_pool_line(
                dtype="torch.float32", tokens=draft.own_rows, k_bytes=half, v_bytes=half
            )
        )


def _available_bytes(device: str) -> int:
    """Free memory where the model lives: the GPU's, or this machine's."""
    if not device.startswith("cuda"):
        return int(psutil.virtual_memory().available)
    import torch

    return int(torch.cuda.mem_get_info(torch.device(device))[0])
