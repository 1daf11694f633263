"""Log lines against the wording that SGLang documents; the examples are written out by hand."""

from __future__ import annotations

import logging

import pytest
from specdec import logs
from specdec.logs import Load

LOAD = Load(
    used_tokens=8232, total_tokens=1_048_576, used_slots=2, total_slots=40, running=1, queued=0
)


def test_the_limits_line() -> None:
    assert (
        logs.limits_line(
            max_total_tokens=1048576,
            chunk_tokens=4096,
            max_running_requests=8,
            context_length=1048576,
            available_bytes=1_320_702_443,
        )
        == "max_total_num_tokens=1048576, chunked_prefill_size=4096, max_prefill_tokens=4096, "
        "max_running_requests=8, context_len=1048576, available_gpu_mem=1.23 GB"
    )


def test_the_pool_lines() -> None:
    assert (
        logs.kv_pool_line(dtype="torch.bfloat16", tokens=64, k_bytes=1 << 30, v_bytes=1 << 30)
        == "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 64, K size: 1.00 GB, "
        "V size: 1.00 GB"
    )
    assert logs.state_pool_line(
        slots=40, conv_bytes=1 << 30, state_bytes=1 << 31, row_state_bytes=0
    ).startswith(
        "Mamba Cache is allocated. max_mamba_cache_size: 40, conv_state size: 1.00GB, "
        "ssm_state size: 2.00GB intermediate_ssm_state_cache size: 0.00GB"
    )


def test_the_prefill_line() -> None:
    line = logs.prefill_line(
        load=Load(10_486, 1_048_576, 1, 33, running=0, queued=0),
        new_sequences=1,
        new_tokens=4096,
        cached_tokens=0,
        pending_tokens=12288,
        graph=False,
        tokens_per_s=1234.56,
    )
    assert line == (
        "Prefill batch, #new-seq: 1, #new-token: 4096, #cached-token: 0, "
        "full token usage: 0.01, mamba usage: 0.03, #running-req: 0, #queue-req: 0, "
        "#pending-token: 12288, cuda graph: False, input throughput (token/s): 1234.56"
    )


def test_the_decode_line_with_and_without_speculation() -> None:
    line = logs.decode_line(
        load=LOAD, accept_length=3.5, accept_rate=0.36, graph=True, tokens_per_s=45.67
    )
    assert line == (
        "Decode batch, #running-req: 1, #full token: 8232, full token usage: 0.01, mamba num: 2, "
        "mamba usage: 0.05, accept len: 3.50, accept rate: 0.36, cuda graph: True, "
        "gen throughput (token/s): 45.67, #queue-req: 0"
    )
    plain = logs.decode_line(
        load=LOAD, accept_length=None, accept_rate=None, graph=True, tokens_per_s=45.67
    )
    assert "accept" not in plain


def test_the_lines_of_trouble() -> None:
    assert logs.retract_line(retracted=1, freed_tokens=8192).startswith(
        "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 8192, "
        "#mamba_num_gained: 1, #new_token_ratio: "
    )
    assert logs.flush_refused_line(queued=2, running=1) == (
        "Cache not flushed because there are pending requests. #queue-req: 2, #running-req: 1"
    )
    assert logs.pool_cap_line(asked=2000, granted=1024) == (
        "max_total_tokens=2000 is larger than the profiled value 1024. "
        "Use the profiled value instead."
    )


def test_every_line_has_the_time_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("specdec")
    before = logger.handlers[:], logger.level, logger.propagate
    try:
        logs.configure()
        logs.logger.info(logs.READY_LINE)
        printed = capsys.readouterr().err
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    import re

    assert re.fullmatch(
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] The server is fired up and ready to roll!\n", printed
    )
