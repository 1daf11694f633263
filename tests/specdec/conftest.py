"""Small random checkpoints, made once for a test run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoints import agreeing_checkpoint, random_model, save_checkpoint
from draft_checkpoints import agreeing_draft, agreeing_dspark


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All weights random; its MTP head is hardly ever right."""
    return save_checkpoint(tmp_path_factory.mktemp("random"), random_model())


@pytest.fixture(scope="session")
def agreeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose MTP head is right about half of the time, and in folders within it block
    drafters that are."""
    folder = agreeing_checkpoint(tmp_path_factory.mktemp("agreeing"))
    agreeing_draft(folder / "dflash2", folder)
    agreeing_dspark(folder / "dspark", folder)
    return folder
