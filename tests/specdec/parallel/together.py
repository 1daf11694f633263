"""Ranks as threads of one process: they meet in memory and run the same program."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from specdec.parallel.connect import join_ranks
from specdec.parallel.ranks import Ranks

Result = TypeVar("Result")


def together(
    size: int, program: Callable[[Ranks], Result], timeout_s: float = 60.0
) -> list[Result]:
    """What ``program`` gives on each rank. Raises the first rank's error, if any."""
    folder = tempfile.TemporaryDirectory()
    meeting, found, errors = Path(folder.name) / "ranks", [None] * size, []

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        try:
            ranks = join_ranks(rank, size, meeting, torch.device("cpu"), timeout_s)
            found[rank] = program(ranks)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s * 2)
    folder.cleanup()
    if errors:
        raise errors[0]
    return list[Any](found)
