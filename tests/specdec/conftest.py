"""Small random checkpoints, made once for a test run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import agreeing_checkpoint, random_model, save_checkpoint
from draft_checkpoints import agreeing_draft, agreeing_dspark
from specdec.runner import Runner


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _everything_is_owned_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test: pages, snapshots and rings of every runner that it made."""
    made: list[Runner] = []
    begin = Runner.__init__

    def noted(self: Runner, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(Runner, "__init__", noted)
    yield
    for runner in made:
        runner.check_integrity()


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
