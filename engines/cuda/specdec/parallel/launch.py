"""From launch settings to a runner, of one rank or several."""

from __future__ import annotations

import shutil
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
from specdec.parallel.leader import Leader, explained
from specdec.parallel.link import Link
from specdec.parallel.plans import Begin
from specdec.parallel.sharding import check_divisible
from specdec.runner import Runner

MEETING = "ranks"
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
    folder = Path(tempfile.mkdtemp(prefix="specdec-ranks-"))
    links: list[Link] = []
    try:
        for rank in range(1, options.tp_size):
            theirs = replace(shared, device=devices[rank])
            begin = Begin(rank, options.tp_size, folder / MEETING, model_dir, theirs, log_level)
            links.append(Link(begin, on_broken))
        for link in links:
            link.receive(START_S)
        runner = _join_and_load(model_dir, replace(shared, device=devices[0]), folder, links)
        for link in links:
            link.receive(options.tp_timeout_s)
    except BaseException:
        for link in links:
            link.leave()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Leader(runner, links, options.tp_timeout_s)


def _join_and_load(
    model_dir: Path, options: RunnerOptions, folder: Path, links: list[Link]
) -> Runner:
    try:
        device = pick_device(options.device)
        ranks = join_ranks(0, options.tp_size, folder / MEETING, device, options.tp_timeout_s)
        return Runner.load(model_dir, options, ranks)
    except SpecdecError:
        raise
    except RuntimeError as error:
        raise explained(links, error) from error


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
