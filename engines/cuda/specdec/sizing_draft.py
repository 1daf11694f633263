"""How many bytes a block drafter's checkpoint takes, from its config alone.

Every rank holds all of it, an element of the dense format each: the tensors are those that loading
would demand. What a runtime keeps beside them (a second copy of the target's head, for one) is no
part of the checkpoint and does not follow from its shapes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import torch

from specdec.config import ModelConfig
from specdec.contract import RunnerOptions
from specdec.dflash2 import dflash2_tensors, read_dflash2_config
from specdec.draft_config import DraftTree
from specdec.drafter import TargetSide


def dflash2_parameters(folder: Path, target: ModelConfig) -> int:
    """Elements of a DFlash2 checkpoint whose config fits the target. Raises CheckpointError."""
    tree = DraftTree(folder, "DFlash2DraftModel")
    # The config is held against the target's shapes; nothing is computed.
    unused = cast(Any, None)
    side = TargetSide(target, unused, unused, torch.device("cpu"), RunnerOptions(), 1)
    config = read_dflash2_config(tree, side)
    tree.finish()
    return sum(math.prod(tensor.shape) for tensor in dflash2_tensors(config))
