"""DFlash2 written down in plain loops over Python floats, from the formulas alone."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from typing import Any

from torch import Tensor

Row = list[float]


def convolve(x: Seq[Row], base: Seq[Row], delta: Seq[Seq[Row]], group: int) -> list[Row]:
    """out[i][c] = sum of (base[t][c] + delta[i][t][c // group]) * x[i - t][c]; nothing lies before
    row 0."""
    out = [[0.0] * len(row) for row in x]
    for i in range(len(x)):
        for c in range(len(x[i])):
            for t in range(len(base)):
                if i - t >= 0:
                    out[i][c] += (base[t][c] + delta[i][t][c // group]) * x[i - t][c]
    return out


def best_ids(scores: Row, count: int) -> list[int]:
    """The ids of the largest scores, of equal ones the lowest, in that order."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]


def walk(
    anchor: int,
    unary: Seq[Row],
    candidates: Seq[Seq[int]],
    projected: Seq[Row],
    before: Seq[Row],
    after: Seq[Row],
) -> list[int]:
    """The chosen id of each position; of equal scores the earlier candidate."""
    chosen: list[int] = []
    for t in range(len(candidates)):
        previous = chosen[-1] if chosen else anchor
        best, best_score = -1, -math.inf
        for place in range(len(candidates[t])):
            candidate = candidates[t][place]
            score = unary[t][place]
            for r in range(len(projected[t])):
                score += before[previous][r] * projected[t][r] * after[candidate][r]
            if score > best_score:
                best, best_score = candidate, score
        chosen.append(best)
    return chosen


def matvec(weight: Seq[Row], x: Row) -> Row:
    return [sum(w * v for w, v in zip(row, x, strict=True)) for row in weight]


def norm(x: Row, gamma: Row, eps: float) -> Row:
    """A plain gamma: the factor itself, and no offset from one."""
    scale = 1.0 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * g for v, g in zip(x, gamma, strict=True)]


def rotate(head: Row, position: int, theta: float) -> Row:
    half = len(head) // 2
    out = [0.0] * len(head)
    for i in range(half):
        angle = position * theta ** (-2.0 * i / len(head))
        a, b = head[i], head[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def silu(v: float) -> float:
    return v / (1.0 + math.exp(-v))


class Reference:
    """One block for one sequence: ``taps`` of its positions 0 to ``len(taps) - 1``, then a block
    whose anchor stands behind them."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.c, self.own = config, config["dflash_config"]
        self.w = {name: tensor.double().tolist() for name, tensor in tensors.items()}
        self.eps = config["rms_norm_eps"]
        self.theta = config["rope_parameters"]["rope_theta"]

    def block(self, taps: Seq[Row], embedded: Seq[Row]) -> list[Row]:
        """Final rows of the block whose rows' embeddings are ``embedded``."""
        anchor = len(taps)
        features = [
            norm(matvec(self.w["fc.weight"], row), self.w["hidden_norm.weight"], self.eps)
            for row in taps
        ]
        x = [list(row) for row in embedded]
        for i in range(self.c["num_hidden_layers"]):
            x = self._layer(f"layers.{i}.", x, features, anchor)
        return [norm(row, self.w["norm.weight"], self.eps) for row in x]

    def _layer(self, at: str, x: list[Row], features: list[Row], anchor: int) -> list[Row]:
        entered = [norm(row, self.w[f"{at}input_layernorm.weight"], self.eps) for row in x]
        kernels = self._kernels(f"{at}attention_conv.", entered)
        entered = self._conv(f"{at}attention_conv.", 0, entered, kernels)
        mixed = self._attention(f"{at}self_attn.", entered, features, anchor)
        x = add(x, self._conv(f"{at}attention_conv.", 1, mixed, kernels))
        name = f"{at}post_attention_layernorm.weight"
        entered = [norm(row, self.w[name], self.eps) for row in x]
        kernels = self._kernels(f"{at}mlp_conv.", entered)
        entered = self._conv(f"{at}mlp_conv.", 0, entered, kernels)
        mixed = [self._mlp(f"{at}mlp.", row) for row in entered]
        return add(x, self._conv(f"{at}mlp_conv.", 1, mixed, kernels))

    def _kernels(self, at: str, entered: list[Row]) -> list[list[list[Row]]]:
        """[row][side][tap][group]"""
        taps = self.own["conv_kernel_size"]
        groups = self.c["hidden_size"] // self.own["conv_group_size"]
        out = []
        for row in entered:
            flat = matvec(self.w[f"{at}kernel_projection.weight"], row)
            out.append(
                [
                    [
                        flat[(side * taps + tap) * groups : (side * taps + tap + 1) * groups]
                        for tap in range(taps)
                    ]
                    for side in range(2)
                ]
            )
        return out

    def _conv(self, at: str, side: int, x: list[Row], kernels: list[list[list[Row]]]) -> list[Row]:
        delta = [row[side] for row in kernels]
        base = self.w[f"{at}base_kernel"][side]
        return convolve(x, base, delta, self.own["conv_group_size"])

    def _attention(self, at: str, x: list[Row], features: list[Row], anchor: int) -> list[Row]:
        c, dim = self.c, self.c["head_dim"]
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        keys = [self._heads(f"{at}k", row, p) for p, row in enumerate([*features, *x])]
        values = [matvec(self.w[f"{at}v_proj.weight"], row) for row in [*features, *x]]
        out = []
        for i, row in enumerate(x):
            position = anchor + i
            queries = self._heads(f"{at}q", row, position)
            seen = [
                p
                for p in range(anchor + len(x))
                if p >= anchor or position - p < c["sliding_window"]
            ]
            mixed: Row = []
            for h in range(heads):
                kv = h // (heads // kv_heads)
                scores = [
                    sum(a * b for a, b in zip(queries[h], keys[p][kv], strict=True)) * dim**-0.5
                    for p in seen
                ]
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                for d in range(dim):
                    mixed.append(
                        sum(w * values[p][kv * dim + d] for w, p in zip(weights, seen, strict=True))
                        / sum(weights)
                    )
            out.append(matvec(self.w[f"{at}o_proj.weight"], mixed))
        return out

    def _heads(self, at: str, row: Row, position: int) -> list[Row]:
        flat, dim = matvec(self.w[f"{at}_proj.weight"], row), self.c["head_dim"]
        gamma = self.w[f"{at}_norm.weight"]
        return [
            rotate(norm(flat[i : i + dim], gamma, self.eps), position, self.theta)
            for i in range(0, len(flat), dim)
        ]

    def _mlp(self, at: str, row: Row) -> Row:
        gate = matvec(self.w[f"{at}gate_proj.weight"], row)
        up = matvec(self.w[f"{at}up_proj.weight"], row)
        joined = [silu(g) * u for g, u in zip(gate, up, strict=True)]
        return matvec(self.w[f"{at}down_proj.weight"], joined)


def add(x: list[Row], y: list[Row]) -> list[Row]:
    return [[a + b for a, b in zip(p, q, strict=True)] for p, q in zip(x, y, strict=True)]
