"""The training model against transformers' own Qwen3.5 classes on random weights."""

from __future__ import annotations

import pytest
import torch
from specdec.train.export import checkpoint_tensors
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead, MtpStages, chain_attention, unroll
from specdec.train.shape import SMALL, ModelShape
from specdec.train.stages import stages

transformers = pytest.importorskip("transformers")

TINY = ModelShape(
    vocab=256,
    hidden=64,
    layers=4,
    mlp=96,
    heads=2,
    kv_heads=1,
    head_dim=32,
    linear_key_heads=1,
    linear_value_heads=2,
    linear_head_dim=16,
)


def random_model(shape: ModelShape, seed: int) -> HybridModel:
    torch.manual_seed(seed)
    model = HybridModel(shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "A_log" not in name and "dt_bias" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            if "embed" in name:
                parameter.mul_(20)
    return model


def upstream(shape: ModelShape, model: HybridModel) -> torch.nn.Module:
    fields = shape.hf_config(eos_ids=[1], pad_id=0)
    for extra in ("architectures", "model_type", "dtype"):
        fields.pop(extra)
    config = transformers.Qwen3_5TextConfig(**fields)
    other = transformers.Qwen3_5ForCausalLM(config).eval()
    result = other.load_state_dict(model.state_dict(), strict=False)
    assert result.unexpected_keys == []
    assert result.missing_keys == ["lm_head.weight"]  # tied
    other.tie_weights()
    return other


@pytest.mark.parametrize("shape", [TINY, SMALL], ids=["tiny", "small"])
def test_logits_equal_those_of_transformers(shape: ModelShape) -> None:
    model = random_model(shape, seed=0)
    ids = torch.randint(0, shape.vocab, (2, 192))
    with torch.no_grad():
        want = upstream(shape, model)(ids).logits
        got = model.logits(model.hidden(ids, None, stages(False))).view_as(want)
    assert float(want.abs().max()) > 0.5
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-3)


def test_positions_with_jumps_turn_the_rotary_phases_as_upstream_does() -> None:
    model = random_model(TINY, seed=1)
    ids = torch.randint(0, TINY.vocab, (1, 128))
    positions = torch.arange(128)[None].clone()
    positions[:, 70:] += 900_000
    with torch.no_grad():
        want = upstream(TINY, model)(ids, position_ids=positions).logits
        got = model.logits(model.hidden(ids, positions, stages(False))).view_as(want)
        plain = model.logits(model.hidden(ids, None, stages(False))).view_as(want)
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-3)
    assert float((got - plain).abs().max()) > 1e-2


def test_the_training_batch_split_does_not_change_a_row() -> None:
    model = random_model(TINY, seed=2)
    ids = torch.randint(0, TINY.vocab, (3, 128))
    with torch.no_grad():
        together = model.hidden(ids, None, stages(False)).view(3, 128, -1)
        alone = model.hidden(ids[1:2], None, stages(False))
    torch.testing.assert_close(together[1], alone, atol=1e-5, rtol=1e-4)


def test_stored_names_are_the_hugging_face_ones() -> None:
    names = set(checkpoint_tensors(HybridModel(TINY), MtpHead(TINY)))
    assert "model.embed_tokens.weight" in names
    assert "model.layers.0.linear_attn.in_proj_qkv.weight" in names
    assert "model.layers.3.self_attn.q_norm.weight" in names
    assert {n for n in names if n.startswith("mtp.")} == {
        "mtp.fc.weight",
        "mtp.norm.weight",
        "mtp.pre_fc_norm_embedding.weight",
        "mtp.pre_fc_norm_hidden.weight",
        "mtp.layers.0.input_layernorm.weight",
        "mtp.layers.0.post_attention_layernorm.weight",
        *(f"mtp.layers.0.self_attn.{n}_proj.weight" for n in "qkvo"),
        *(f"mtp.layers.0.self_attn.{n}_norm.weight" for n in "qk"),
        *(f"mtp.layers.0.mlp.{n}_proj.weight" for n in ("gate", "up", "down")),
    }


def test_chain_attention_equals_a_plain_loop_over_visible_rows() -> None:
    torch.manual_seed(3)
    batch, length, first, depth, heads, kv, width = 2, 12, 5, 2, 4, 2, 8
    window = length - first
    query = torch.randn(batch, window, heads, width)
    key, value = torch.randn(2, batch, length, kv, width)
    own_key, own_value = torch.randn(2, batch, window, depth + 1, kv, width)
    live = torch.tensor([True, True, False])
    got = chain_attention(query, key, value, own_key, own_value, live, first)
    for b in range(batch):
        for w in range(window):
            for h in range(heads):
                group = h // (heads // kv)
                keys = torch.cat([key[b, : first + w + 1, group], own_key[b, w, :depth, group]])
                values = torch.cat(
                    [value[b, : first + w + 1, group], own_value[b, w, :depth, group]]
                )
                weights = (keys @ query[b, w, h] * width**-0.5).softmax(0)
                torch.testing.assert_close(got[b, w, h], weights @ values, atol=1e-5, rtol=1e-4)


def test_mtp_drafts_of_a_windowed_unroll_equal_those_of_the_whole_one() -> None:
    model, head = random_model(TINY, seed=4), MtpHead(TINY)
    ids = torch.randint(0, TINY.vocab, (1, 129))
    positions = torch.arange(128)[None]
    run, mtp_run = stages(False), MtpStages.make(False)
    with torch.no_grad():
        whole = unroll(model, head, ids, positions, depths=3, first=0, run=run, mtp_run=mtp_run)
        part = unroll(model, head, ids, positions, depths=3, first=64, run=run, mtp_run=mtp_run)
    torch.testing.assert_close(whole.losses[0], part.losses[0])
    assert not torch.equal(whole.losses[2], part.losses[2])
    assert all(torch.isfinite(loss) for loss in [*whole.losses, *part.losses])


def test_the_mtp_loss_reaches_the_head_but_not_the_target() -> None:
    model, head = random_model(TINY, seed=5), MtpHead(TINY)
    ids = torch.randint(0, TINY.vocab, (1, 129))
    result = unroll(
        model,
        head,
        ids,
        torch.arange(128)[None],
        depths=3,
        first=64,
        run=stages(False),
        mtp_run=MtpStages.make(False),
    )
    torch.stack(result.losses).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in head.parameters())
    assert all(p.grad is None for p in model.parameters())
