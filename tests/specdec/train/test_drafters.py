"""The drafters' training arithmetic, against loops: stepping, blocks, choices, losses, walks."""

from __future__ import annotations

import math

import pytest
import torch
from drafter_models import DRAFTERS, drafter, target, text
from specdec.train.continuations import Round, continue_round
from specdec.train.drafter import convolve
from specdec.train.drafter_accept import accept_length, walk
from specdec.train.drafter_blocks import block_rows, drafts_at, draw_anchors, look, loss_of
from specdec.train.drafter_heads import make
from specdec.train.drafter_loss import cross_entropy, expected, row_weights
from specdec.train.drafter_shape import DrafterShape
from specdec.train.stages import stages
from specdec.train.stepping import Stepper
from torch import Tensor


def test_one_token_at_a_time_gives_the_rows_of_whole_sequences() -> None:
    model, ids = target(), text(3, 128)
    positions = torch.arange(128).repeat(3, 1)
    positions[1, 40:] += 1000
    want = model.hidden(ids, positions, stages(False)).view(3, 128, -1)
    stepper = Stepper(model, 3, 128)
    for place in range(128):
        got = stepper.step(ids[:, place], positions[:, place])
        torch.testing.assert_close(got, want[:, place], atol=2e-4, rtol=2e-4)


def test_a_continuation_is_the_argmax_of_everything_before_it() -> None:
    model = target()
    starts = torch.tensor([20, 33], dtype=torch.int32)
    positions = torch.arange(64, dtype=torch.int32).repeat(2, 1)
    given = Round(text(2, 64).int(), positions, starts)
    done = continue_round(model, given)
    best = model.logits(model.hidden(done.ids, None, stages(False))).argmax(-1).view(2, 64)
    for row, start in enumerate(starts.tolist()):
        assert torch.equal(done.ids[row, :start], given.ids[row, :start])
        assert torch.equal(done.ids[row, start:].long(), best[row, start - 1 : -1])


def test_the_convolution_is_the_loop_over_taps_and_stops_at_the_blocks_edge() -> None:
    generator = torch.Generator().manual_seed(3)
    x, base = torch.randn(2, 4, 6, generator=generator), torch.randn(2, 6, generator=generator)
    delta = torch.randn(2, 4, 2, 3, generator=generator)
    got = convolve(x, base, delta)
    for block in range(2):
        for row in range(4):
            for channel in range(6):
                want = 0.0
                for tap in range(min(2, row + 1)):
                    factor = base[tap, channel] + delta[block, row, tap, channel // 2]
                    want += float(factor * x[block, row - tap, channel])
                assert float(got[block, row, channel]) == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("shape", DRAFTERS, ids=lambda shape: shape.kind)
def test_a_row_sees_its_block_and_the_context_before_the_anchor(shape: DrafterShape) -> None:
    made = make(shape)
    anchors = torch.tensor([[30, 70]])
    positions = torch.arange(80).unsqueeze(0)
    own = positions.gather(1, anchors).unsqueeze(-1) + torch.arange(shape.block)
    mask = made.mask(positions, own, anchors)[0, 0]
    for block, anchor in enumerate((30, 70)):
        for row in range(shape.block):
            line = mask[block * shape.block + row]
            for place in range(80):
                near = shape.window is None or anchor + row - place < shape.window
                seen = place < anchor and near
                assert float(line[place]) == (0.0 if seen else -math.inf)
            for other in range(2 * shape.block):
                seen = other // shape.block == block
                assert float(line[80 + other]) == (0.0 if seen else -math.inf)


@pytest.mark.parametrize("shape", DRAFTERS, ids=lambda shape: shape.kind)
def test_a_block_does_not_know_what_travels_with_it_or_comes_after(shape: DrafterShape) -> None:
    model, made, ids = target(), drafter(shape), text(1, 128)
    embedding, run = model.model.embed_tokens.weight, stages(False)
    positions = torch.arange(128).unsqueeze(0)
    seen = look(model, ids, positions, run, set(shape.taps))
    both = block_rows(made, embedding, seen, torch.tensor([[50, 90]]))
    other = ids.clone()
    other[0, 51:] = 7
    seen = look(model, other, positions, run, set(shape.taps))
    alone = block_rows(made, embedding, seen, torch.tensor([[50]]))
    torch.testing.assert_close(both[:, :1], alone)
    other[0, 50] += 1
    seen = look(model, other, positions, run, set(shape.taps))
    assert not torch.allclose(block_rows(made, embedding, seen, torch.tensor([[50]])), alone)


def test_dflash2_walks_its_candidates_as_the_loop_does() -> None:
    made = drafter(DRAFTERS[0])
    generator = torch.Generator().manual_seed(4)
    hidden = torch.randn(2, 7, 32, generator=generator)
    logits = torch.randn(2, 7, 4096, generator=generator)
    anchors = torch.tensor([5, 9])
    got = made.choose(hidden, logits, anchors)
    selector = made.candidate_selector
    for sequence in range(2):
        before = int(anchors[sequence])
        for row in range(7):
            best, best_score = -1, -math.inf
            projected = selector.hidden_projection(hidden[sequence, row])
            for token in logits[sequence, row].argsort(descending=True)[:16].tolist():
                left = selector.predecessor_codebook[before] * projected
                edge = float((left * selector.successor_codebook[token]).sum().detach())
                score = float(logits[sequence, row, token]) + edge
                if score > best_score:
                    best, best_score = token, score
            assert int(got[sequence, row]) == best
            before = best


def test_dspark_adds_the_bias_of_its_own_last_choice() -> None:
    made = drafter(DRAFTERS[1])
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(1, 7, 4096, generator=generator)
    got = made.choose(torch.zeros(1, 7, 32), logits, torch.tensor([11]))[0]
    head, before = made.markov_head, 11
    for row in range(7):
        bias = head.markov_w2.weight @ head.markov_w1.weight[before]
        before = int((logits[0, row] + bias).argmax())
        assert int(got[row]) == before


@pytest.mark.parametrize("shape", DRAFTERS, ids=lambda shape: shape.kind)
def test_the_loss_asks_each_proposing_row_for_the_token_it_stands_for(shape: DrafterShape) -> None:
    model, made, ids = target(), drafter(shape), text(1, 64)
    embedding = model.model.embed_tokens.weight
    positions = torch.arange(64).unsqueeze(0)
    seen = look(model, ids, positions, stages(False), set(shape.taps))
    anchors = torch.tensor([[20]])
    _, shown = loss_of(made, embedding, seen, anchors)
    rows = block_rows(made, embedding, seen, anchors)[0, 0]
    total = 0.0
    for draft in range(7):
        row = draft + (1 if shape.kind == "dflash2" else 0)
        logits = rows[row] @ embedding.T
        if shape.kind == "dspark":
            head = made.markov_head
            logits = logits + head.markov_w2.weight @ head.markov_w1.weight[ids[0, 20 + draft]]
        share = math.exp(-draft / 4) / sum(math.exp(-k / 4) for k in range(7))
        total -= share * float(logits.log_softmax(-1)[ids[0, 21 + draft]])
    name = "unary_loss" if shape.kind == "dflash2" else "ce_loss"
    assert float(shown[name]) == pytest.approx(total, rel=1e-4)


def test_cross_entropy_weights_and_expected_length() -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(6))
    labels = torch.tensor([0, 4, 2])
    want = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, labels), want)
    weights = row_weights(7, torch.device("cpu"))
    assert float(weights[3] / weights[2]) == pytest.approx(math.exp(-0.25))
    assert float(weights.sum()) == pytest.approx(1.0)
    right = torch.tensor([[True, True, False], [False, True, True]])
    assert float(expected(right)) == pytest.approx(1 + (2 + 0) / 2)


def test_the_walk_moves_on_by_the_right_drafts_and_the_bonus() -> None:
    assert walk([2, 9, 9, 0, 1, 9, 9], 7) == [2, 0, 1]
    assert walk([0, 0, 0], 3) == [0, 0]


def test_anchors_lie_in_the_continuation_with_room_for_a_block() -> None:
    starts = torch.tensor([10, 100], dtype=torch.int32)
    batch = Round(torch.zeros(2, 128, dtype=torch.int32), torch.zeros(2, 128), starts)
    anchors = draw_anchors(batch, 12, 40, torch.Generator().manual_seed(7))
    assert anchors.shape == (2, 12)
    for row, (first, last) in enumerate(((10, 49), (100, 119))):
        assert int(anchors[row].min()) >= first
        assert int(anchors[row].max()) <= last
    assert len(set(anchors[0].tolist())) == 12


def test_a_drafter_that_knows_the_text_is_accepted_whole() -> None:
    model, shape = target(), DRAFTERS[1]
    made = drafter(shape)

    def know(hidden: Tensor, logits: Tensor, anchors: Tensor) -> Tensor:
        return truth[: len(anchors)]

    prompts = [list(range(40)), list(range(50, 90))]
    length = 64
    ids = torch.zeros(2, length, dtype=torch.int32)
    ids[:, :40] = torch.tensor(prompts)
    starts = torch.full((2,), 40, dtype=torch.int32)
    positions = torch.arange(length, dtype=torch.int32).expand(2, -1)
    text_ = continue_round(model, Round(ids, positions, starts)).ids.long()
    truth = torch.stack([text_[s, 41 + i : 48 + i] for s in range(2) for i in range(16)])
    made.choose = know
    found = accept_length(model, [made], prompts, 16)["dspark"]
    assert found == {"accept_length": 8.0, "histogram": [0, 0, 0, 0, 0, 0, 0, 4]}


def test_drafts_at_anchors_have_the_shape_of_a_proposal() -> None:
    model = target()
    ids = text(2, 64)
    for shape in DRAFTERS:
        seen = look(model, ids, torch.arange(64).repeat(2, 1), stages(False), set(shape.taps))
        got = drafts_at(
            drafter(shape), model.model.embed_tokens.weight, seen, torch.tensor([[9, 20], [30, 40]])
        )
        assert got.shape == (2, 2, 7)
