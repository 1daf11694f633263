"""Which rows of a checkpoint a rank holds, and what cannot be shared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from specdec.config import read_config
from specdec.errors import SpecdecError
from specdec.parallel.ranks import Ranks
from specdec.parallel.sharding import check_divisible, cut_rows, cutter, share_of
from specdec.tensors import expected_tensors
from specdec.weights import load_checkpoint
from torch import Tensor


def parts_of(folder: Path, size: int) -> list[dict[str, Tensor]]:
    return [
        load_checkpoint(folder, lambda c, r=rank: cutter(c, Ranks(r, size, None))).tensors
        for rank in range(size)
    ]


def test_a_ranks_tensors_have_the_shapes_that_its_share_of_the_config_expects(
    random_checkpoint: Path,
) -> None:
    config = read_config(random_checkpoint)
    share = share_of(config, 2)
    spread = ("embed_tokens", "lm_head", "o_proj", "out_proj", "down_proj", "mtp.fc")
    for tensors in parts_of(random_checkpoint, 2):
        whole = {e.name: e.shape for e in expected_tensors(config)}
        for expected in expected_tensors(share):
            shape = tuple(tensors[expected.name].shape)
            if any(name in expected.name for name in spread):
                first, *rest = whole[expected.name]
                assert shape == (first // 2, *rest), expected.name
            else:
                assert shape == expected.shape, expected.name


def test_every_row_is_held_by_one_rank_and_small_vectors_by_all(random_checkpoint: Path) -> None:
    whole = load_checkpoint(random_checkpoint).tensors
    first, second = parts_of(random_checkpoint, 2)
    assert set(first) == set(whole)
    for name, tensor in whole.items():
        if first[name].shape == tensor.shape:
            assert torch.equal(first[name], tensor)
            assert torch.equal(second[name], tensor)
            assert tensor.dim() == 1
        elif "in_proj_qkv" in name or "conv1d" in name:
            widths = [64, 64, 128]  # q, k, v of two key heads and four value heads of 32
            for part, a, b in zip(
                tensor.split(widths),
                first[name].split([w // 2 for w in widths]),
                second[name].split([w // 2 for w in widths]),
                strict=True,
            ):
                assert torch.equal(part, torch.cat((a, b)))
        else:
            assert torch.equal(tensor, torch.cat((first[name], second[name])))


def test_each_part_of_the_rows_is_shared_evenly() -> None:
    rows = torch.arange(12.0).unsqueeze(1)
    assert cut_rows(rows, (4, 8), Ranks(1, 2, None)).squeeze(1).tolist() == [2, 3, 8, 9, 10, 11]


def test_sizes_that_do_not_divide_are_refused_with_what_would_fit(random_checkpoint: Path) -> None:
    config = read_config(random_checkpoint)
    check_divisible(config, 2)
    with pytest.raises(SpecdecError) as refused:
        check_divisible(config, 4)
    assert str(refused.value) == (
        "--tp-size 4 does not divide this checkpoint: num_key_value_heads is 2, "
        "linear_num_key_heads is 2. Use --tp-size 2."
    )
    with pytest.raises(SpecdecError, match="vocab_size is 256, hidden_size is 64"):
        check_divisible(config, 3)
