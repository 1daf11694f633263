"""The published drafters: training and serving are one arithmetic, their cards are true."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from specdec.block_backbone import BlockBackbone
from specdec.contract import RunnerOptions
from specdec.request import Phase, SamplingParams
from specdec.runner import Runner
from specdec.train.drafter_blocks import block_rows, drafts_at, look
from specdec.train.drafter_heads import make
from specdec.train.drafter_shape import SHAPES, Kind
from specdec.train.evaluate import held_out_streams
from specdec.train.export import load_weights
from specdec.train.model import HybridModel
from specdec.train.shape import ModelShape
from specdec.train.stages import stages
from specdec.train.vocabulary import MASK, Encoder

MODELS = Path(__file__).parents[3] / "fixtures" / "models"
TARGET = MODELS / "tiny-qwen3.5"
KINDS: tuple[Kind, ...] = ("dflash2", "dspark")
PROMPT, NEW = 160, 24


def folder(kind: str) -> Path:
    return MODELS / f"tiny-qwen3.5-{kind}"


def trained(kind: Kind):  # type: ignore[no-untyped-def]
    drafter = make(SHAPES[kind]).requires_grad_(False)
    stored = load_file(folder(kind) / "model.safetensors")
    drafter.load_state_dict({name: value.float() for name, value in stored.items()})
    return drafter


@pytest.fixture(scope="module")
def target() -> HybridModel:
    model = HybridModel(ModelShape()).requires_grad_(False)
    load_weights([TARGET / "model.safetensors"], model, None)
    return model


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    encode = Encoder(TARGET / "tokenizer.json")
    ids: list[int] = held_out_streams(TARGET, encode)["code"][3000 : 3000 + PROMPT].tolist()
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_training_forward_are_those_of_the_serving_forward(
    kind: Kind, target: HybridModel, prompt: list[int]
) -> None:
    drafter, options = trained(kind), RunnerOptions(mode=kind, draft_model=folder(kind))
    ids = torch.tensor([prompt[:128]])
    positions = torch.arange(128).unsqueeze(0)
    seen = look(target, ids, positions, stages(False), set(drafter.shape.taps))
    anchors = [5, 64, 127]
    embedding = target.model.embed_tokens.weight
    want = block_rows(drafter, embedding, seen, torch.tensor([anchors]))[0]
    served = Runner.load(TARGET, options)._core.drafter
    backbone = served._backbone  # type: ignore[union-attr]
    assert isinstance(backbone, BlockBackbone)
    with torch.inference_mode():
        features = backbone.features(seen.features(drafter.shape)[0])
        rows = backbone.context(features, positions[0])
        got = backbone.block(
            [prompt[place] for place in anchors],
            anchors,
            lambda layer, i: tuple(part[: anchors[i]] for part in rows[layer]),  # type: ignore[arg-type,return-value]
        )
    torch.testing.assert_close(got, want, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_proposed_while_serving_is_what_training_counts_as_drafts(
    kind: Kind, target: HybridModel, prompt: list[int]
) -> None:
    runner = Runner.load(TARGET, RunnerOptions(mode=kind, draft_model=folder(kind)))
    made = runner._core.drafter
    assert made is not None
    proposed: dict[int, list[int]] = {}
    propose = made.propose

    def listen(seqs, widths):  # type: ignore[no-untyped-def]
        found = propose(seqs, widths)
        proposed[seqs[0].computed] = found[0].tokens
        return found

    made.propose = listen  # type: ignore[method-assign]
    params = SamplingParams(max_new_tokens=NEW, temperature=0.0, ignore_eos=True)
    seq = runner.new_sequence("one", prompt, params)
    runner.admit(seq)
    while seq.phase is Phase.PREFILL:
        runner.prefill_step([seq])
    while seq.phase is Phase.DECODE:
        runner.decode_step([seq])
    whole = list(seq.all_tokens())
    padded = torch.tensor([whole + [0] * (-len(whole) % 64)])
    positions = torch.arange(padded.shape[1]).unsqueeze(0)
    drafter = trained(kind)
    seen = look(target, padded, positions, stages(False), set(drafter.shape.taps))
    places = sorted(proposed)
    drafts = drafts_at(drafter, target.model.embed_tokens.weight, seen, torch.tensor([places]))[0]
    assert len(places) >= 3
    for place, tokens in zip(places, drafts.tolist(), strict=True):
        assert proposed[place] == tokens[: len(proposed[place])]
    assert seq.counters.correct_drafts > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_checkpoint_is_what_the_recipe_writes(kind: Kind) -> None:
    shape, stored = SHAPES[kind], load_file(folder(kind) / "model.safetensors")
    config = json.loads((folder(kind) / "config.json").read_text())
    assert config == shape.hf_config()
    assert len(stored) == {"dflash2": 81, "dspark": 62}[kind]
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    encode = Encoder(TARGET / "tokenizer.json")
    assert config["dflash_config"]["mask_token_id"] == encode.id_of(MASK)


def test_both_folders_together_are_small_enough() -> None:
    files = [path for kind in KINDS for path in folder(kind).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 16_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_the_hashes_and_parameters_on_the_card_are_those_of_the_files(kind: Kind) -> None:
    card = (folder(kind) / "README.md").read_text("utf-8")
    stated = dict(re.findall(r"^\| `([\w.-]+)` \| `([0-9a-f]{64})` \|$", card, re.MULTILINE))
    assert set(stated) == {"model.safetensors", "config.json", "training-log.jsonl"}
    for name, digest in stated.items():
        assert hashlib.sha256((folder(kind) / name).read_bytes()).hexdigest() == digest, name
    stored = load_file(folder(kind) / "model.safetensors")
    parameters = re.search(r"parameters \| ([\d,]+)", card)
    assert parameters is not None
    assert sum(t.numel() for t in stored.values()) == int(parameters[1].replace(",", ""))
