"""From launch settings to a runner, of one rank or several."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from specdec.assemble import check_options, pick_device
from specdec.config import read_config
from specdec.contract import DecodeRunner, RunnerOptions
from specdec.errors import SpecdecError
from specdec.parallel.connect import join_ranks
from specdec.parallel.errors import RanksBroken
from specdec.parallel.leader import Leader, explained
from specdec.parallel.link import Link
from specdec.parallel.plans import Begin
from specdec.parallel.ranks import Ranks
from specdec.parallel.sharding import check_divisible
from specdec.runner import Runner

START_S = 120.0  # the most that a rank's libraries take to load on a busy machine


def load_runner(
    model_dir: Path,
    options: RunnerOptions,
    on_broken: Callable[[str], None] = lambda sentence: None,
    log_level: str = "info",
) -> DecodeRunner:
    """One rank is this process alone; of several it is rank 0 and starts the others.

    ``on_broken`` is called, from another thread, with a sentence when a rank ends unasked. Raises
    CheckpointError, SpecdecError. Whoever has the runner closes it.
    """
    if options.tp_size == 1:
        return Runner.load(model_dir, options)
    check_options(options)
    check_divisible(read_config(model_dir), options.tp_size)
    devices = rank_devices(options)
    shared = replace(options, threads=options.threads or threads_of_a_rank(options.tp_size))
    scratch = tempfile.TemporaryDirectory(prefix="specdec-ranks-")
    meeting = Path(scratch.name) / "ranks"
    links: list[Link] = []
    joined: list[Ranks] = []

    def on_end(sentence: str) -> None:
        on_broken(sentence)
        for ranks in joined:
            ranks.abort()

    try:
        for rank in range(1, options.tp_size):
            theirs = replace(shared, device=devices[rank])
            begin = Begin(rank, options.tp_size, meeting, model_dir, theirs, log_level)
            links.append(Link(begin, on_end))
        for link in links:
            link.receive(START_S)
        own = replace(shared, device=devices[0])
        device = pick_device(own.device)
        ranks = join_ranks(0, own.tp_size, meeting, device, own.tp_timeout_s)
        if device.type == "cuda":
            # gloo sees by itself that a rank is gone; NCCL would wait for it.
            joined.append(ranks)
        runner = Runner.load(model_dir, own, ranks)
        for link in links:
            link.receive(options.tp_timeout_s)
    except BaseException as error:
        told: BaseException = error
        if isinstance(error, RuntimeError | RanksBroken):
            told = explained(links, error)
        for link in links:
            link.leave()
        scratch.cleanup()
        if told is error:
            raise
        raise told from error
    if device.type == "cpu":
        scratch.cleanup()  # NCCL may come back to the file where the ranks met
    return Leader(runner, links, options.tp_timeout_s, scratch.cleanup)


def rank_devices(options: RunnerOptions) -> list[str]:
    """One device for each rank: CUDA devices 0, 1, …, or the CPU for all."""
    device = pick_device(options.device)
    if device.type == "cpu":
        return ["cpu"] * options.tp_size
    if device.index is not None:
        raise SpecdecError(
            f"--device {options.device} names one device for {options.tp_size} ranks.",
            "Use --device cuda; CUDA_VISIBLE_DEVICES picks which.",
        )
    there = torch.cuda.device_count()
    if there < options.tp_size:
        raise SpecdecError(
            f"--tp-size {options.tp_size} needs as many CUDA devices, and {there} are visible.",
            "Use fewer ranks, or --device cpu.",
        )
    return [f"cuda:{rank}" for rank in range(options.tp_size)]


def threads_of_a_rank(size: int) -> int:
    """Its share of the threads that one rank alone would have."""
    return max(1, torch.get_num_threads() // size)
