from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from draft_checkpoints import agreeing_draft, agreeing_dspark
from scripted_runner import ScriptedRunner
from server_checkpoint import build_checkpoint
from server_live import Live, serve, with_settings
from specdec.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, and in folders within it drafters that are often right."""
    folder = build_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    agreeing_draft(folder / "dflash2", folder)
    agreeing_dspark(folder / "dspark", folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return Tokenizer.load(checkpoint)


@pytest.fixture(scope="module")
def live(tokenizer: Tokenizer) -> Iterator[Live]:
    """A server around a script that drafts three tokens a step."""
    runner = ScriptedRunner(drafts=3)
    settings = with_settings(enable_metrics=True, decode_log_interval=4, enable_cache_report=True)
    with serve(lambda: runner, tokenizer, settings) as server:
        yield server


@pytest.fixture
def slow(tokenizer: Tokenizer) -> Iterator[Live]:
    """A server with two slots and 10 ms a step, so that a test can be quicker than it."""
    runner = ScriptedRunner(pause_s=0.01, slots=2)
    with serve(lambda: runner, tokenizer, with_settings(max_queued_requests=2)) as server:
        yield server
