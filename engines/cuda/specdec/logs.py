"""The log lines that tools read, in SGLang's documented wording, and the logger they go to.

Every function here returns one line without its prefix; `logger` adds `[date time] `. Lines go to
standard error. Numbers are printed as SGLang prints them (two decimals), so one parser serves both.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from specdec.draft_facts import DraftFacts

GB = 1 << 30

READY_LINE = "The server is fired up and ready to roll!"
FLUSHED_LINE = "Cache flushed successfully!"

logger = logging.getLogger("specdec")


def configure(level: str = "info", rank: int | None = None) -> None:
    """Send this package's lines to standard error with the prefix that parsers expect.

    ``rank`` is named in it where there are several.
    """
    handler = logging.StreamHandler(sys.stderr)
    who = "" if rank is None else f" TP{rank}"
    prefix = f"[%(asctime)s{who}] %(message)s"
    handler.setFormatter(logging.Formatter(prefix, "%Y-%m-%d %H:%M:%S"))
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def limits_line(
    *,
    max_total_tokens: int,
    chunk_tokens: int,
    max_running_requests: int,
    context_length: int,
    available_bytes: int,
) -> str:
    """The resolved limits, printed once before serving."""
    return (
        f"max_total_num_tokens={max_total_tokens}, chunked_prefill_size={chunk_tokens}, "
        f"max_prefill_tokens={chunk_tokens}, max_running_requests={max_running_requests}, "
        f"context_len={context_length}, available_gpu_mem={available_bytes / GB:.2f} GB"
    )


def kv_pool_line(*, dtype: str, tokens: int, k_bytes: int, v_bytes: int) -> str:
    """A key/value pool that has been allocated (the target's or the drafter's)."""
    return (
        f"KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, "
        f"K size: {k_bytes / GB:.2f} GB, V size: {v_bytes / GB:.2f} GB"
    )


def state_pool_line(*, slots: int, conv_bytes: int, state_bytes: int, row_state_bytes: int) -> str:
    """The recurrent state pool: `slots` requests; `row_state_bytes` keeps the rows of a verify."""
    return (
        f"Mamba Cache is allocated. max_mamba_cache_size: {slots}, "
        f"conv_state size: {conv_bytes / GB:.2f}GB, ssm_state size: {state_bytes / GB:.2f}GB "
        f"intermediate_ssm_state_cache size: {row_state_bytes / GB:.2f}GB"
    )


def draft_runner_line(draft: DraftFacts) -> str:
    """The block drafter that was loaded; `model` is the class that its checkpoint declares."""
    return (
        f"Initialized DFLASH draft runner. attention_backend=sdpa, model={draft.name}, "
        f"block_size={draft.block_size}, draft_window_size={draft.window}, "
        f"compact_cache={draft.kv_kind == 'ring'}"
    )


def draft_ready_line(draft: DraftFacts, token: str) -> str:
    """Its mask token, as the tokenizer writes it."""
    return f"DFLASH draft runner ready. mask_token={token}, mask_token_id={draft.mask_token}"


def running_cap_line(*, capped: int, slots: int) -> str:
    """Said when the state pool allows fewer running requests than were asked for."""
    return (
        f"max_running_requests is capped to {capped} by the mamba state cache "
        f"(max_mamba_cache_size={slots}, 1 state slots per request)"
    )


def pool_cap_line(*, asked: int, granted: int) -> str:
    """Said when memory holds fewer tokens than were asked for."""
    return (
        f"max_total_tokens={asked} is larger than the profiled value {granted}. "
        "Use the profiled value instead."
    )


@dataclass(frozen=True)
class Load:
    """How full the pools are at one moment. Tokens, state slots and requests.

    Used tokens are those of running requests; evictable ones wait in the prefix cache."""

    used_tokens: int
    total_tokens: int
    used_slots: int
    total_slots: int
    running: int
    queued: int
    evictable_tokens: int = 0

    @property
    def available_tokens(self) -> int:
        """Tokens in pages that hold nothing."""
        return self.total_tokens - self.used_tokens - self.evictable_tokens

    @property
    def token_usage(self) -> float:
        """Share of the token pool in use, 0 to 1."""
        return self.used_tokens / self.total_tokens

    @property
    def slot_usage(self) -> float:
        """Share of the state slots in use, 0 to 1."""
        return self.used_slots / self.total_slots


def prefill_line(
    *,
    load: Load,
    new_sequences: int,
    new_tokens: int,
    cached_tokens: int,
    pending_tokens: int,
    graph: bool,
    tokens_per_s: float,
) -> str:
    """One prefill batch. `pending_tokens` are prompt tokens still to compute after it."""
    return (
        f"Prefill batch, #new-seq: {new_sequences}, #new-token: {new_tokens}, "
        f"#cached-token: {cached_tokens}, full token usage: {load.token_usage:.2f}, "
        f"mamba usage: {load.slot_usage:.2f}, #running-req: {load.running}, "
        f"#queue-req: {load.queued}, #pending-token: {pending_tokens}, cuda graph: {graph}, "
        f"input throughput (token/s): {tokens_per_s:.2f}"
    )


def decode_line(
    *,
    load: Load,
    accept_length: float | None,
    accept_rate: float | None,
    graph: bool,
    tokens_per_s: float,
) -> str:
    """The decode steps since the last such line. Accept figures only where drafts were verified."""
    speculation = ""
    if accept_length is not None:
        speculation += f"accept len: {accept_length:.2f}, "
    if accept_rate is not None:
        speculation += f"accept rate: {accept_rate:.2f}, "
    return (
        f"Decode batch, #running-req: {load.running}, #full token: {load.used_tokens}, "
        f"full token usage: {load.token_usage:.2f}, mamba num: {load.used_slots}, "
        f"mamba usage: {load.slot_usage:.2f}, {speculation}cuda graph: {graph}, "
        f"gen throughput (token/s): {tokens_per_s:.2f}, #queue-req: {load.queued}"
    )


def retract_line(*, retracted: int, freed_tokens: int) -> str:
    """Requests sent back to the queue because the pool was full.

    The ratio is the share of its output budget that a request must find free to be admitted: none
    at first, all of it once it has been sent back.
    """
    return (
        f"KV cache pool is full. Retract requests. #retracted_reqs: {retracted}, "
        f"#new_tokens_gained: {freed_tokens}, #mamba_num_gained: {retracted}, "
        "#new_token_ratio: 0.0000 -> 1.0000"
    )


def flush_refused_line(*, queued: int, running: int) -> str:
    """A flush that had to be refused."""
    return (
        "Cache not flushed because there are pending requests. "
        f"#queue-req: {queued}, #running-req: {running}"
    )
