"""The chunked gated delta rule against the plain recurrence, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from specdec.train.delta import gated_delta_rule, unit_lower_inverse
from torch import Tensor


def plain_recurrence(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """One token after the other, one head after the other; [T, H, D]."""
    group = value.shape[1] // key.shape[1]
    rows = []
    for head in range(value.shape[1]):
        state = torch.zeros(key.shape[-1], value.shape[-1], dtype=value.dtype)
        outs = []
        for t in range(value.shape[0]):
            k, q = key[t, head // group], query[t, head // group]
            k = k / (k.dot(k) + 1e-6).sqrt()
            q = q / (q.dot(q) + 1e-6).sqrt() / q.numel() ** 0.5
            state = state * g[t, head].exp()
            state = state + torch.outer(k, (value[t, head] - k @ state) * beta[t, head])
            outs.append(q @ state)
        rows.append(torch.stack(outs))
    return torch.stack(rows, dim=1)


def inputs(tokens: int, seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    return [
        torch.randn(tokens, 1, 8),
        torch.randn(tokens, 1, 8),
        torch.randn(tokens, 2, 8),
        -torch.rand(tokens, 2) * 0.3,
        torch.rand(tokens, 2),
    ]


def test_the_chunked_rule_equals_the_recurrence_in_values_and_gradients() -> None:
    first = [x.requires_grad_() for x in inputs(256, seed=0)]
    second = [x.detach().clone().requires_grad_() for x in first]
    got = gated_delta_rule(*first, sequences=2)
    halves = [plain_recurrence(*(x[s] for x in second)) for s in (slice(0, 128), slice(128, 256))]
    want = torch.cat(halves)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
    weight = torch.randn_like(got)
    (got * weight).sum().backward()
    (want * weight).sum().backward()
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=2e-4, rtol=1e-3)


def test_a_sequence_does_not_see_its_neighbour_in_the_batch() -> None:
    both = inputs(256, seed=1)
    alone = gated_delta_rule(*(x[128:] for x in both), sequences=1)
    together = gated_delta_rule(*both, sequences=2)
    torch.testing.assert_close(together[128:], alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("repeated", [1, 30, 64])
def test_the_inverse_stays_exact_when_keys_repeat(repeated: int) -> None:
    torch.manual_seed(2)
    key = torch.nn.functional.normalize(torch.randn(3, 64, 32), dim=-1)
    key[:, :repeated] = key[:, :1]
    strict = (key @ key.mT * 0.9).tril(-1)
    got = unit_lower_inverse(strict).double()
    system = torch.eye(64, dtype=torch.float64) + strict.double()
    residual = (got @ system - torch.eye(64, dtype=torch.float64)).abs().max()
    assert float(residual) < 2e-3
