"""Which mode loads which draft model."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from specdec.drafter import DraftModel, TargetSide
from specdec.drafting import MtpModel
from specdec.errors import CheckpointError, SpecdecError


def load_draft_model(
    model_dir: Path, side: TargetSide, tensors: dict[str, Tensor]
) -> DraftModel | None:
    """The draft model of the launch's mode; None in target-only.

    ``tensors``: the target's, by canonical name. Raises CheckpointError, SpecdecError.
    """
    mode, folder = side.options.mode, side.options.draft_model
    if mode in ("target-only", "mtp"):
        if folder is not None:
            raise SpecdecError(
                f"--mode {mode} takes no --draft-model.", "Use --mode dflash2 or dspark with it."
            )
        if mode == "target-only":
            return None
        if not side.config.mtp_layers:
            raise CheckpointError(
                f"{model_dir} has no MTP head (mtp_num_hidden_layers is 0).",
                "Serve it with --mode target-only.",
            )
        return MtpModel(side, tensors)
    if folder is None:
        raise SpecdecError(
            f"--mode {mode} needs a draft checkpoint.", "Give its folder with --draft-model."
        )
    if mode == "dflash2":
        from specdec.dflash2 import load_dflash2

        return load_dflash2(folder, side.replicated)
    from specdec.dspark import load_dspark

    return load_dspark(folder, side.replicated)
