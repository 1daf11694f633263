"""Does a rank's share of a product give the bits of the whole one on this machine?

Each rank computes some of the outputs over all inputs, so no sum is split (``joined.py``). What is
left to chance is a library that adds up an output differently when there are fewer outputs beside
it, and elementwise kernels that treat what does not fill a vector differently. Both are looked at
when the ranks start, for every shape of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from specdec.config import ModelConfig
from specdec.layers.fp8 import Fp8Projection, Fp8Weight
from specdec.layers.linear import Products, Projection
from specdec.layers.pointwise import LANES, padded_lanes
from specdec.parallel.ranks import Ranks

Product = Callable[[Tensor], Tensor]

ROWS = (1, 8, 64)  # of a pass: plain decode, a verify step, prefill


def shares_are_exact(
    whole: ModelConfig, share: ModelConfig, products: Products, device: torch.device
) -> bool:
    """Whether every product of ``share`` gives its part of the one of ``whole``, on every rank."""
    ranks = products.ranks
    assert ranks is not None
    alone = replace(products, ranks=None)

    def dense(weight: Tensor) -> Product:
        return Projection(weight, alone)

    def blocks(weight: Tensor) -> Product:
        values, scales = weight.to(torch.float8_e4m3fn), weight.new_ones(1, 1)
        stored = Fp8Weight.stored(values, scales, (weight.shape[0], weight.shape[1]))
        return Fp8Projection(stored.to(device), alone.fp8_tile_rows)

    makers = [dense] if whole.quantization is None else [dense, blocks]
    here = all(width % LANES == 0 for width in _pointwise_widths(share)) and all(
        _one_is_exact(mine, of_one, make, ranks, device)
        for make in makers
        for of_one, mine in zip(_products(whole, 1), _products(share, ranks.size), strict=True)
    )
    return ranks.all_true(here, device)


def _products(c: ModelConfig, size: int) -> Iterator[tuple[int, int]]:
    """(outputs, inputs) of every product as the layers fuse them, on one of ``size`` ranks."""
    hidden, spread = c.hidden_size, c.hidden_size // size
    heads, kv_heads = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    gates = 2 * padded_lanes(c.linear_value_heads)
    yield 2 * heads + 2 * kv_heads, hidden
    yield spread, size * heads
    yield c.value_width + c.conv_width + gates, hidden
    yield spread, size * c.value_width
    yield padded_lanes(c.intermediate_size) + c.intermediate_size, hidden
    yield spread, size * c.intermediate_size
    yield c.vocab_size // size, hidden
    if c.mtp_layers:
        yield spread, 2 * hidden


def _pointwise_widths(c: ModelConfig) -> tuple[int, ...]:
    return c.num_attention_heads * c.head_dim, c.value_width, c.conv_width


def _one_is_exact(
    mine: tuple[int, int],
    of_one: tuple[int, int],
    make: Callable[[Tensor], Product],
    ranks: Ranks,
    device: torch.device,
) -> bool:
    (outputs, inputs), (all_outputs, all_inputs) = mine, of_one
    assert inputs == all_inputs
    weight = _pattern(all_outputs, inputs, 251).to(device)
    first = min(ranks.rank * outputs, all_outputs - outputs)
    whole, part = make(weight), make(weight[first : first + outputs].clone())
    x = _pattern(max(ROWS), inputs, 241).to(device)
    return all(
        torch.equal(part(x[:rows]), whole(x[:rows])[:, first : first + outputs]) for rows in ROWS
    )


def _pattern(rows: int, columns: int, period: int) -> Tensor:
    """Numbers of both signs whose products round, exact in FP16, cheap for millions of them."""
    steps = torch.arange(rows * columns, dtype=torch.int64).mul_(7919).remainder_(period)
    return steps.to(torch.float32).sub_(period // 2).div_(96.0).half().float().view(rows, columns)
