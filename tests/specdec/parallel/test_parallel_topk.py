"""The k best ids, against a sort of (score, id) pairs in plain Python."""

from __future__ import annotations

import pytest
import torch
from specdec.parallel.ranks import Ranks
from specdec.parallel.scores import Scores
from specdec.parallel.topk import global_top_k, merged_top_k, top_k
from together import together
from torch import Tensor


def plain_top_k(row: list[float], count: int) -> list[tuple[float, int]]:
    ranked = sorted(range(len(row)), key=lambda j: (-row[j], j))
    return [(row[j], j) for j in ranked[:count]]


def rows(kind: str) -> Tensor:
    """[6, 64] scores; ``few`` has three values only, so that ties straddle every place."""
    generator = torch.Generator().manual_seed(11)
    if kind == "distinct":
        return torch.randn(6, 64, generator=generator)
    if kind == "few":
        return torch.randint(3, (6, 64), generator=generator).float()
    return torch.zeros(6, 64)


@pytest.mark.parametrize("kind", ["distinct", "few", "equal"])
@pytest.mark.parametrize("count", [1, 5, 16, 64, 100])
def test_the_best_are_those_of_a_plain_sort_equal_scores_by_lowest_id(
    kind: str, count: int
) -> None:
    scores = rows(kind)
    values, ids = top_k(scores, count)
    for row, got, where in zip(scores.tolist(), values.tolist(), ids.tolist(), strict=True):
        assert list(zip(got, where, strict=True)) == plain_top_k(row, count)


@pytest.mark.parametrize("kind", ["distinct", "few", "equal"])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_share_the_ids_find_the_same_set_in_the_same_order(kind: str, size: int) -> None:
    scores = rows(kind)

    def program(ranks: Ranks) -> list[tuple[Tensor, Tensor]]:
        mine = scores.chunk(size, 1)[ranks.rank]
        return [global_top_k(mine, count, ranks) for count in (1, 16, 40)]

    for found in together(size, program):
        for count, (values, ids) in zip((1, 16, 40), found, strict=True):
            expected = [plain_top_k(row, count) for row in scores.tolist()]
            # A rank has 64 / size ids to offer; more than that cannot come from one of them.
            assert [
                list(zip(v, i, strict=True))
                for v, i in zip(values.tolist(), ids.tolist(), strict=True)
            ] == expected
            assert ids.dtype == torch.int64


def test_candidates_merge_by_score_and_then_by_the_order_of_their_ids() -> None:
    scores = torch.tensor([[2.0, 1.0, 2.0, 3.0]])
    ids = torch.tensor([[4, 9, 17, 30]])
    values, best = merged_top_k(scores, ids, 3)
    assert values.tolist() == [[3.0, 2.0, 2.0]]
    assert best.tolist() == [[30, 4, 17]]


def test_the_best_id_of_each_row_is_the_lowest_of_the_largest_wherever_it_lies() -> None:
    scores = rows("few")
    scores[1] = 5.0  # every rank has it: the first id wins
    scores[2, 63] = 9.0  # the last rank's last id
    scores[3, 40] = float("nan")
    scores[4, 2] = float("inf")
    finite = [i not in (3, 4) for i in range(6)]

    def program(ranks: Ranks) -> tuple[list[bool], list[int]]:
        return Scores(scores.chunk(2, 1)[ranks.rank], ranks).best()

    for told, best in together(2, program):
        assert told == finite
        for i, row in enumerate(scores.tolist()):
            if finite[i]:
                assert best[i] == plain_top_k(row, 1)[0][1]
    alone_told, alone = Scores(scores).best()
    assert alone_told == finite
    assert alone[1] == 0
    assert alone[2] == 63


def test_whole_rows_come_together_in_the_order_of_ids_on_every_rank() -> None:
    scores = rows("distinct")

    def program(ranks: Ranks) -> Tensor:
        return Scores(scores.chunk(4, 1)[ranks.rank], ranks).whole()

    assert all(torch.equal(whole, scores) for whole in together(4, program))
