"""The optimiser: Muon for the matrices inside the layers, AdamW for everything else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_NEWTON = (3.4445, -4.7750, 2.0315)


def orthogonalise(update: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices of a batch [G, rows, cols], by Newton-Schulz in BF16."""
    tall = update.shape[-2] > update.shape[-1]
    x = (update.mT if tall else update).to(torch.bfloat16)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _NEWTON
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    result: Tensor = (x.mT if tall else x).to(update.dtype)
    return result


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised. Equal shapes are stacked, so a step is a few large products.

    The update is scaled to AdamW's usual size (0.2 x sqrt of the longer side), so that both
    optimisers share one learning rate.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.1
    ) -> None:
        super().__init__(list(params), {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                grads = torch.stack([p.grad for p in parameters])  # type: ignore[misc]
                key = self.state[parameters[0]]
                if "momentum" not in key:
                    key["momentum"] = torch.zeros_like(grads)
                buffer = key["momentum"]
                buffer.lerp_(grads, 1 - group["momentum"])
                update = orthogonalise(grads.lerp(buffer, group["momentum"]))
                scale = 0.2 * math.sqrt(max(shape[0], shape[1])) * group["lr"]
                torch._foreach_mul_(list[Tensor](parameters), 1 - group["lr"] * group["decay"])
                torch._foreach_add_(list[Tensor](parameters), list(update.unbind(0)), alpha=-scale)


@dataclass(frozen=True)
class Optimisers:
    """Both optimisers, stepped together under one schedule."""

    muon: Muon
    adam: torch.optim.AdamW
    base_lr: float

    @classmethod
    def make(cls, module: nn.Module, lr: float, tables: tuple[str, ...] = ("embed",)) -> Optimisers:
        """``tables``: parts of the names of tables that have a row for each token."""
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in module.named_parameters():
            table = any(part in name for part in tables)
            inner = parameter.ndim == 2 and not table and min(parameter.shape) >= 16
            (matrices if inner else rest).append(parameter)
        adam = torch.optim.AdamW(
            rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=rest[0].is_cuda
        )
        return cls(Muon(matrices, lr), adam, lr)

    def step(self, factor: float) -> None:
        for optimiser in (self.muon, self.adam):
            for group in optimiser.param_groups:
                group["lr"] = self.base_lr * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, object]:
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, dict[str, object]]) -> None:
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
