"""The Triton kernels against plain loops and their twins in ``layers/``: compiled where there is a
GPU, else by Triton's interpreter (``tests/conftest.py``)."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from specdec.kernels import attend as attend_kernel
from specdec.kernels.fp8_linear import fp8_product
from specdec.layers.deltanet import DeltaNet
from specdec.layers.fp8 import Fp8Projection, Fp8Weight
from specdec.plan import BLOCK, Span, attention_jobs, block_runs, plan_pass
from specdec.state import DeltaState

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")


def reference_attention(queries, keys, values, positions, rows_of):
    """A plain loop: every row over the rows of its own sequence up to its position."""
    heads, group = queries.shape[1], queries.shape[1] // keys.shape[1]
    out = torch.zeros_like(queries)
    for i, position in enumerate(positions):
        mine = rows_of(i)[: position + 1]
        for head in range(heads):
            k, v = keys[mine, head // group], values[mine, head // group]
            weights = torch.softmax(k @ queries[i, head] * queries.shape[2] ** -0.5, 0)
            out[i, head] = weights @ v
    return out.flatten(1)


def attention_case(run: bool, page_size: int = 64):
    """Three sequences in one pool: 3 rows at 150, 1 row at 70, a prefill of 90 rows from 20."""
    torch.manual_seed(4)
    tables = [[2, 0, 7], [4, 9, 1], [5, 3, 8]]
    if run:
        tables = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    spans = [(tables[0], 150, 153), (tables[1], 70, 71), (tables[2], 20, 110)]
    keys, values = torch.randn(2, 10 * page_size, 2, 32, device=DEVICE)
    jobs, positions, owners = [], [], []
    for pages, start, stop in spans:
        jobs += attention_jobs(pages, start, stop, len(positions), page_size, DEVICE)
        positions += range(start, stop)
        owners += [pages] * (stop - start)

    def rows_of(i: int) -> torch.Tensor:
        p = torch.arange(len(owners[i]) * page_size)
        return torch.tensor(owners[i])[p // page_size] * page_size + p % page_size

    queries = torch.randn(len(positions), 7, 32, device=DEVICE)[:, :4]  # strided, as in the layer
    return queries, keys, values, jobs, positions, rows_of


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize("split", [64, 8192])
def test_attention_equals_a_plain_loop(
    run: bool, split: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attend_kernel, "SPLIT", split)
    queries, keys, values, jobs, positions, rows_of = attention_case(run)
    got = attend_kernel.attend(queries, keys, values, jobs)
    want = reference_attention(queries, keys, values, positions, rows_of)
    assert torch.allclose(got, want, atol=2e-5), float((got - want).abs().max())


def test_an_attention_row_does_not_know_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attend_kernel, "SPLIT", 64)
    queries, keys, values = attention_case(True)[:3]
    together = attention_jobs([6, 7, 8], 20, 110, 0, 64, DEVICE)
    whole = attend_kernel.attend(queries[4:], keys, values, together)
    for i, position in ((0, 20), (13, 33), (89, 109)):
        jobs = attention_jobs([6, 7, 8], position, position + 1, 0, 64, DEVICE)
        alone = attend_kernel.attend(queries[4 + i : 5 + i], keys, values, jobs)
        assert torch.equal(alone[0], whole[i])


def delta_layer() -> DeltaNet:
    from test_specdec_layers import ONE_THREAD, TILED, shapes, weights_of

    weights = {name: value.to(DEVICE) for name, value in weights_of("linear_attn").items()}
    layer = DeltaNet(shapes(), weights, TILED, ONE_THREAD)
    layer._kernel = False
    return layer


def delta_state(slots: int) -> DeltaState:
    from test_specdec_layers import shapes

    c = shapes()
    width = c.conv_width + 2 * 32
    heads = (c.linear_value_heads, c.linear_key_dim, c.linear_value_dim)
    matrix = torch.zeros(slots, 2, *heads, device=DEVICE)
    return DeltaState(
        matrix, torch.zeros(slots, 2, c.conv_kernel - 1 + BLOCK, width, device=DEVICE)
    )


def walked(layer: DeltaNet, steps: list[list[Span]], x: dict[int, torch.Tensor], slots: int):
    """Rows of each slot after the passes ``steps``, and the state."""
    state, found = delta_state(slots), {slot: [] for slot in x}
    for spans in steps:
        plan = plan_pass(spans, 64, 3, DEVICE)
        runs = block_runs(plan.blocks.jobs, DEVICE)
        plan = replace(plan, blocks=replace(plan.blocks, runs=runs))
        rows = [x[s.slot][s.position : s.position + len(s.tokens)] for s in spans]
        out = layer(torch.cat(rows), plan, state)
        for span, part in zip(spans, out.split([len(r) for r in rows]), strict=True):
            found[span.slot].append(part)
    return {slot: torch.cat(parts) for slot, parts in found.items()}, state


def span(slot: int, position: int, rows: int) -> Span:
    return Span(slot, [slot], position, [0] * rows)


def test_the_walk_equals_the_layer_in_prefill_decode_and_verify() -> None:
    torch.manual_seed(3)
    x = {slot: torch.randn(43, 64, device=DEVICE) for slot in (0, 1)}
    steps = [[span(0, 0, 29)], [span(1, 0, 21)]]
    steps += [[span(0, 29, 1), span(1, 21, 8)], [span(0, 30, 7), span(1, 29, 2)], [span(0, 37, 6)]]
    plain, state = walked(delta_layer(), steps, x, 2)
    layer = delta_layer()
    layer._kernel = True
    kernel, other = walked(layer, steps, x, 2)
    for slot in x:
        assert torch.allclose(plain[slot], kernel[slot], atol=1e-5)
    assert torch.allclose(state.matrix, other.matrix, atol=1e-5)
    assert float(state.matrix.abs().max()) > 0.1


def test_a_walk_gives_the_same_bits_however_its_rows_arrive() -> None:
    torch.manual_seed(5)
    x = {0: torch.randn(40, 64, device=DEVICE), 1: torch.randn(40, 64, device=DEVICE)}
    layer = delta_layer()
    layer._kernel = True
    at_once, state = walked(layer, [[span(0, 0, 40)]], {0: x[0]}, 1)
    steps = [[span(0, 0, 11)], [span(1, 0, 3)]]
    for position in range(11, 40):
        steps.append([span(0, position, 1), span(1, position - 8, 1)])
    one_by_one, other = walked(layer, steps, x, 2)
    assert torch.equal(at_once[0], one_by_one[0])
    assert torch.equal(state.matrix[0], other.matrix[0])


def test_rejected_rows_leave_no_trace() -> None:
    torch.manual_seed(6)
    x = {0: torch.randn(24, 64, device=DEVICE)}
    layer = delta_layer()
    layer._kernel = True
    clean, state = walked(layer, [[span(0, 0, 13)], [span(0, 13, 8)]], x, 1)
    # Eight rows verified at 13 of which one was kept: the next pass starts at 14.
    again, other = walked(layer, [[span(0, 0, 13)], [span(0, 13, 8)], [span(0, 14, 7)]], x, 1)
    assert torch.equal(clean[0][14:], again[0][21:])
    assert torch.equal(state.matrix, other.matrix)


def fp8_case(outputs: int, inputs: int, width: int, rows: int):
    """Rows and a weight whose rows' scales lie in no order."""
    torch.manual_seed(8)
    values = (torch.randn(outputs, inputs) * 40).to(torch.float8_e4m3fn)
    values.view(torch.uint8)[0, :16] = torch.arange(16, dtype=torch.uint8)  # subnormals too
    scales = (torch.rand(5, -(-inputs // width)) + 0.5).to(torch.bfloat16)
    weight = Fp8Weight(values, scales, torch.randint(5, (outputs,)), width)
    return torch.randn(rows, inputs), weight


@pytest.mark.parametrize(("outputs", "inputs", "width"), [(70, 96, 32), (64, 100, 16), (9, 40, 64)])
def test_a_product_by_fp8_blocks_is_the_sum_over_scaled_values(
    outputs: int, inputs: int, width: int
) -> None:
    x, weight = fp8_case(outputs, inputs, width, rows=19)
    expected = torch.zeros(19, outputs, dtype=torch.float64)
    wide = weight.values.to(torch.float64)
    for o in range(outputs):
        for block in range(weight.scales.shape[1]):
            cut = slice(block * width, (block + 1) * width)
            part = x[:, cut].double() @ wide[o, cut]
            expected[:, o] += part * float(weight.scales[weight.scale_row[o], block])
    found = fp8_on_device(x, weight)
    torch.testing.assert_close(found.double(), expected, atol=2e-2, rtol=1e-5)
    twin = Fp8Projection(weight, 8)(x)
    torch.testing.assert_close(found, twin, atol=2e-2, rtol=1e-5)


def fp8_on_device(x: torch.Tensor, weight: Fp8Weight) -> torch.Tensor:
    w = weight.to(DEVICE)
    return fp8_product(x.to(DEVICE), w.values, w.scales, w.scale_row, w.width).cpu()


def test_a_row_of_an_fp8_product_has_the_same_bits_in_any_company() -> None:
    x, weight = fp8_case(70, 96, 32, rows=40)
    whole = fp8_on_device(x, weight)
    for first, stop in ((0, 1), (5, 6), (13, 40), (17, 33)):
        assert torch.equal(fp8_on_device(x[first:stop], weight), whole[first:stop])
