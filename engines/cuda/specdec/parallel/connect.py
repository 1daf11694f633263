"""Join the ranks of one machine: gloo on CPUs, NCCL on GPUs.

The groups are made directly and belong to whoever holds them, so that a process may have several
and nothing global says which one is meant.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from specdec.parallel.ranks import Ranks

LOOPBACK = "127.0.0.1"


def join_ranks(
    rank: int, size: int, meeting: Path, device: torch.device, timeout_s: float
) -> Ranks:
    """Meet the other ranks at the file ``meeting``, which nobody has made yet.

    ``timeout_s``: the longest that a collective may wait.
    """
    timeout = timedelta(seconds=timeout_s)
    store = dist.FileStore(str(meeting), size)  # type: ignore[attr-defined]
    if device.type == "cpu":
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = timeout
        # By its address: a container's own name often leads nowhere, or out of it.
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
        return Ranks(rank, size, dist.ProcessGroupGloo(store, rank, size, options))
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    torch.cuda.set_device(device)
    return Ranks(rank, size, dist.ProcessGroupNCCL(store, rank, size, options))
