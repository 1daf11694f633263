"""DFlash2's convolution, candidates, selector and whole block against plain loops."""

from __future__ import annotations

import json
import random
from pathlib import Path

import draft_reference as plain
import pytest
import torch
from checkpoints import random_model, save_checkpoint
from draft_checkpoints import random_draft
from driving import greedy, target_rows
from safetensors.torch import load_file
from specdec.contract import RunnerOptions
from specdec.layers.grouped_conv import GroupedConv
from specdec.layers.linear import Products
from specdec.parallel.scores import Scores
from specdec.request import Phase, Sequence
from specdec.runner import Runner
from specdec.selector import Selector, Walk

PRODUCTS = Products("onednn", 0)


def conv(taps: int, hidden: int, group: int, seed: int) -> tuple[GroupedConv, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(2, taps, hidden, generator=generator)
    projection = torch.randn(2 * taps * (hidden // group), hidden, generator=generator)
    return GroupedConv(base, projection, group, PRODUCTS), base


@pytest.mark.parametrize(("taps", "rows"), [(2, 8), (3, 8), (1, 4), (2, 1), (4, 2)])
def test_the_convolution_is_the_loop_on_both_sides(taps: int, rows: int) -> None:
    hidden, group = 12, 4
    made, base = conv(taps, hidden, group, seed=taps)
    x, y = torch.randn(2, 3, rows, hidden).unbind()
    delta = made._project(x.flatten(0, 1)).view(3, rows, 2, taps, hidden // group)
    entered, kept = made.enter(x)
    left = made.leave(y, kept)
    for block in range(3):
        for side, given, got in ((0, x, entered), (1, y, left)):
            wanted = plain.convolve(
                given[block].tolist(), base[side].tolist(), delta[block, :, side].tolist(), group
            )
            torch.testing.assert_close(got[block], torch.tensor(wanted), rtol=1e-4, atol=1e-4)


def test_the_anchors_row_has_no_row_before_it_and_the_next_ones_is_the_anchors() -> None:
    base = torch.zeros(2, 2, 4)
    base[:, 1] = 1.0  # only the row before
    made = GroupedConv(base, torch.zeros(2 * 2 * 2, 4), 2, PRODUCTS)
    x = torch.arange(1.0, 25.0).view(2, 3, 4)  # two blocks of three rows
    out, kept = made.enter(x)
    for result in (out, made.leave(x, kept)):
        assert torch.equal(result[:, 0], torch.zeros(2, 4))
        assert torch.equal(result[:, 1], x[:, 0])
        assert torch.equal(result[:, 2], x[:, 1])


def test_candidates_are_the_best_ids_and_of_equal_ones_the_lowest() -> None:
    rng = random.Random(3)
    scores = torch.tensor([[float(rng.randrange(5)) for _ in range(40)] for _ in range(20)])
    values, ids = Scores(scores).top(7)
    for row in range(20):
        wanted = plain.best_ids(scores[row].tolist(), 7)
        assert ids[row].tolist() == wanted
        assert values[row].tolist() == [float(scores[row, i]) for i in wanted]


@pytest.mark.parametrize("ties", [False, True])
def test_the_walk_is_the_loop_with_and_without_exact_ties(ties: bool) -> None:
    """With ties every number is a small integer, so that equal scores are equal in any order of
    adding."""
    generator = torch.Generator().manual_seed(11)

    def numbers(*shape: int) -> torch.Tensor:
        if ties:
            return torch.randint(-1, 2, shape, generator=generator).float()
        return torch.randn(shape, generator=generator)

    vocab, rank, hidden, places, k, count = 30, 5, 6, 7, 4, 40
    before, after, projection = numbers(vocab, rank), numbers(vocab, rank), numbers(rank, hidden)
    selector = Selector(before, after, projection, PRODUCTS)
    rows = numbers(count, places, hidden)
    values, ids = Scores(numbers(count * places, vocab)).top(k)
    unary, ids = values.view(count, places, k), ids.view(count, places, k)
    projected = selector.project(rows.flatten(0, 1)).view(count, places, rank)
    anchors = torch.randint(vocab, (count,), generator=generator)
    seqs = [Sequence(str(i), (1,), greedy(9), 0) for i in range(count)]
    walk, last = Walk(selector, seqs, vocab), anchors
    for place in range(places):
        last = walk.step(range(count), last, projected[:, place], unary[:, place], ids[:, place])
    for i in range(count):
        wanted = plain.walk(
            int(anchors[i]), unary[i].tolist(), ids[i].tolist(),
            (rows[i] @ projection.T).tolist(), before.tolist(), after.tolist(),
        )  # fmt: skip
        assert walk.tokens[i] == wanted
    if ties:
        tied = sum(
            len(set(s)) < k
            for s in selector.scores(anchors, projected[:, 0], unary[:, 0], ids[:, 0]).tolist()
        )
        assert tied > count // 2


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a drafter with a window of 12, both random."""
    target = save_checkpoint(tmp_path_factory.mktemp("target"), random_model(4))
    folder = tmp_path_factory.mktemp("draft")
    return target, random_draft(folder, target, sliding_window=12, block_size=5)


@pytest.mark.parametrize("kv", ["shared", "ring"])
@pytest.mark.parametrize("length", [1, 7, 11, 12, 13, 30])
def test_a_block_is_the_loop_at_any_place_of_the_window(
    length: int, kv: str, folders: tuple[Path, Path]
) -> None:
    target, folder = folders
    runner = Runner.load(
        target,
        RunnerOptions(mode="dflash2", draft_model=folder, draft_kv=kv),  # type: ignore[arg-type]
    )
    prompt = [(7 * i + length) % 250 for i in range(length)]
    seq = runner.new_sequence("r", prompt, greedy(9))
    runner.admit(seq)
    while seq.phase is Phase.PREFILL:
        runner.prefill_step([seq])
    drafter = runner._core.drafter
    assert drafter is not None
    seen: list[torch.Tensor] = []
    block = drafter._backbone.block  # type: ignore[attr-defined]

    def spy(*args: object) -> torch.Tensor:
        seen.append(block(*args))
        return seen[-1]

    drafter._backbone.block = spy  # type: ignore[attr-defined]
    with torch.inference_mode():
        (drafts,) = drafter.propose([seq], [4])
        other = runner.new_sequence("taps", prompt, greedy(1))
        runner.admit(other)
        taps = target_rows(runner, other, prompt).taps
    assert taps is not None
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    reference = plain.Reference(config, tensors)
    weights = load_file(target / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    ids = [seq.output_ids[0], *[config["dflash_config"]["mask_token_id"]] * 4]
    hidden = reference.block(taps.double().tolist(), embedding[ids].double().tolist())
    torch.testing.assert_close(seen[0][0], torch.tensor(hidden), rtol=2e-3, atol=2e-3)

    head = weights["lm_head.weight"].double().tolist()
    own = config["dflash_config"]
    logits = [plain.matvec(head, row) for row in hidden[1:]]
    candidates = [plain.best_ids(row, own["selector_top_k"]) for row in logits]
    unary = [[row[i] for i in best] for row, best in zip(logits, candidates, strict=True)]
    at = "candidate_selector."
    projected = [plain.matvec(reference.w[f"{at}hidden_projection.weight"], h) for h in hidden[1:]]
    codebooks = (reference.w[f"{at}{n}_codebook"] for n in ("predecessor", "successor"))
    wanted = plain.walk(ids[0], unary, candidates, projected, *codebooks)
    assert drafts.tokens == wanted


def test_taps_are_the_rows_behind_their_layers_and_change_no_bit(
    folders: tuple[Path, Path],
) -> None:
    target, folder = folders
    runner = Runner.load(target, RunnerOptions(mode="dflash2", draft_model=folder))
    alone = Runner.load(target)
    prompt = [(13 * i) % 250 for i in range(70)]
    rows = []
    for one in (runner, alone):
        seq = one.new_sequence("r", prompt, greedy(1))
        one.admit(seq)
        with torch.inference_mode():
            rows.append(target_rows(one, seq, prompt))
    assert torch.equal(rows[0].hidden, rows[1].hidden)
    assert rows[1].taps is None
    with torch.no_grad():
        model = random_model(4)
        out = model(torch.tensor([prompt]), output_hidden_states=True)
    wanted = torch.cat([out.hidden_states[layer + 1][0] for layer in (0, 2)], 1)
    assert rows[0].taps is not None
    got = rows[0].taps[:, : wanted.shape[1]]
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
