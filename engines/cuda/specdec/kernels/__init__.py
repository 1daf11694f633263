"""Triton kernels for CUDA. Each has a twin in ``layers/`` that runs everywhere, which its tests
compare it with; shapes inside a kernel never depend on what travels in a pass, so no row's bits
do either."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch


@cache
def available() -> bool:
    """Whether Triton is installed (it comes with PyTorch's CUDA builds)."""
    return importlib.util.find_spec("triton") is not None


def usable(device: torch.device, widths: tuple[int, ...], group: int = 1) -> bool:
    """Whether kernels run on ``device``. A matrix product in one needs ``widths`` of 16 or more;
    these and the query heads of a KV head (``group``) must be powers of two."""
    shaped = all(width >= 16 and _power_of_two(width) for width in widths) and _power_of_two(group)
    return device.type == "cuda" and available() and shaped


def _power_of_two(number: int) -> bool:
    return number >= 1 and not number & (number - 1)
