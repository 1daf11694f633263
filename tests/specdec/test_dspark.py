"""DSpark served: arithmetic against loops, whole blocks or none, refusals, the same greedy ids."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import finish, generate, greedy, random_prompts, start, step
from dspark_checkpoints import agreeing_dspark, dspark_config, random_dspark
from safetensors.torch import load_file, save_file
from scipy.stats import chisquare
from specdec.contract import RunnerOptions
from specdec.dspark import DSparkDrafter
from specdec.request import Phase, SamplingParams
from specdec.runner import Runner
from test_specdec_sampling import SURE, exact_pairs
from torch import Tensor

Values = list[float]


@pytest.fixture(scope="module")
def drafter(agreeing: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agreeing_dspark(tmp_path_factory.mktemp("dspark"), agreeing)


def load(target: Path, draft: Path, **changes: Any) -> Runner:
    return Runner.load(target, RunnerOptions(mode="dspark", draft_model=draft, **changes))


# The arithmetic


def norm(x: Values, gamma: Tensor) -> Values:
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + 1e-6)
    return [v * scale * float(g) for v, g in zip(x, gamma, strict=True)]


def times(weight: Tensor, x: Values) -> Values:
    return (weight.double() @ torch.tensor(x, dtype=torch.float64)).tolist()


def turned(head: Values, position: int, theta: float) -> Values:
    half = len(head) // 2
    out = list(head)
    for i in range(half):
        angle = position / theta ** (i / half)
        cos, sin = math.cos(angle), math.sin(angle)
        out[i] = head[i] * cos - head[half + i] * sin
        out[half + i] = head[half + i] * cos + head[i] * sin
    return out


def block_by_loops(
    tensors: dict[str, Tensor], config: dict[str, Any], taps: Tensor, ids: list[Values]
) -> list[Values]:
    """Final rows of a block whose embeddings are ``ids``, after the context ``taps``."""
    dim, heads, kv_heads = config["head_dim"], 4, 2
    theta, seen = config["rope_parameters"]["rope_theta"], len(taps)
    context = [
        norm(times(tensors["fc.weight"], row.tolist()), tensors["hidden_norm.weight"])
        for row in taps
    ]
    x = ids
    for layer in range(config["num_hidden_layers"]):
        own = {k.removeprefix(f"layers.{layer}."): v for k, v in tensors.items()}

        def heads_of(rows: list[Values], name: str, first: int, own: Any = own) -> list[Any]:
            found = []
            for place, row in enumerate(rows):
                y = times(own[f"self_attn.{name}_proj.weight"], row)
                split = [y[i : i + dim] for i in range(0, len(y), dim)]
                if name != "v":
                    gamma = own[f"self_attn.{name}_norm.weight"]
                    split = [turned(norm(h, gamma), first + place, theta) for h in split]
                found.append(split)
            return found

        entered = [norm(row, own["input_layernorm.weight"]) for row in x]
        queries = heads_of(entered, "q", seen)
        keys = heads_of(context, "k", 0) + heads_of(entered, "k", seen)
        values = heads_of(context, "v", 0) + heads_of(entered, "v", seen)
        after = []
        for row, query in zip(x, queries, strict=True):
            mixed: Values = []
            for head in range(heads):
                group = head // (heads // kv_heads)
                scores = [
                    sum(a * b for a, b in zip(query[head], key[group], strict=True)) / dim**0.5
                    for key in keys
                ]
                most = max(scores)
                shares = [math.exp(score - most) for score in scores]
                for channel in range(dim):
                    mixed.append(
                        sum(s * v[group][channel] for s, v in zip(shares, values, strict=True))
                        / sum(shares)
                    )
            added = times(own["self_attn.o_proj.weight"], mixed)
            row = [a + b for a, b in zip(row, added, strict=True)]
            entered_ = norm(row, own["post_attention_layernorm.weight"])
            gate = times(own["mlp.gate_proj.weight"], entered_)
            up = times(own["mlp.up_proj.weight"], entered_)
            inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
            down = times(own["mlp.down_proj.weight"], inner)
            after.append([a + b for a, b in zip(row, down, strict=True)])
        x = after
    return [norm(row, tensors["norm.weight"]) for row in x]


def test_a_proposal_is_that_of_plain_loops(agreeing: Path, tmp_path: Path) -> None:
    folder = random_dspark(tmp_path, agreeing, block_size=3)
    runner = load(agreeing, folder)
    tensors, config = load_file(folder / "model.safetensors"), dspark_config(agreeing)
    target = load_file(agreeing / "model.safetensors")
    embedding, head = target["model.embed_tokens.weight"], target["lm_head.weight"]
    prompt = random_prompts(1, (9,), 255, seed=3)[0]
    kept: list[Tensor] = []
    made = runner._core.drafter
    assert isinstance(made, DSparkDrafter)
    remember = made.remember

    def listen(seq: Any, rows: Any) -> None:
        kept.append(rows.taps.clone())
        remember(seq, rows)

    made.remember = listen  # type: ignore[method-assign]
    (seq,) = start(runner, [prompt], greedy(20))
    runner.prefill_step([seq])
    with torch.inference_mode():
        (found,) = made.propose([seq], [3])
    anchor = seq.output_ids[0]
    mask = embedding[250].tolist()
    rows = block_by_loops(
        tensors, config, torch.cat(kept), [embedding[anchor].tolist(), mask, mask]
    )
    before, markov = anchor, "markov_head.markov_w"
    for row, token, sure in zip(rows, found.tokens, found.confidences, strict=True):
        embedded = tensors[f"{markov}1.weight"][before].tolist()
        bias = times(tensors[f"{markov}2.weight"], embedded)
        logits = [a + b for a, b in zip(times(head, row), bias, strict=True)]
        assert token == max(range(len(logits)), key=logits.__getitem__)
        told = times(tensors["confidence_head.proj.weight"], [*row, *embedded])[0]
        told += float(tensors["confidence_head.proj.bias"])
        assert sure == pytest.approx(1 / (1 + math.exp(-told)), abs=1e-4)
        before = token
    runner.retract(seq)


# What a step does


@pytest.mark.parametrize("batch", [1, 5])
def test_greedy_ids_are_the_targets_alone_and_in_a_batch(
    batch: int, agreeing: Path, drafter: Path
) -> None:
    prompts = random_prompts(5, (5, 30, 70), 255, seed=11)
    plain = generate(Runner.load(agreeing), prompts, greedy(30), 1)
    done = generate(load(agreeing, drafter), prompts, greedy(30), batch)
    assert [seq.output_ids for seq in done] == [seq.output_ids for seq in plain]
    proposed = sum(seq.counters.proposed_drafts for seq in done)
    correct = sum(seq.counters.correct_drafts for seq in done)
    assert 0.1 * proposed < correct < 0.9 * proposed


def test_a_block_is_proposed_whole_and_a_shorter_tail_is_decoded_plainly(
    agreeing: Path, drafter: Path
) -> None:
    runner = load(agreeing, drafter)
    for new_tokens, blocks in ((8, 0), (9, 1)):
        (seq,) = generate(runner, random_prompts(1, (20,), 255, seed=4), greedy(new_tokens), 1)
        assert seq.counters.verify_steps == blocks
    for seq in generate(runner, random_prompts(4, (20,), 255, seed=5), greedy(50), 4):
        counters = seq.counters
        assert counters.proposed_drafts == 7 * counters.verify_steps
        assert 0 < counters.plain_tokens <= 7


def test_confidence_is_told_for_every_draft_and_decides_nothing(
    agreeing: Path, drafter: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    tensors = load_file(drafter / "model.safetensors")
    tensors["confidence_head.proj.weight"].neg_()
    tensors["confidence_head.proj.bias"].fill_(3.0)
    save_file(tensors, other / "model.safetensors")
    (other / "config.json").write_bytes((drafter / "config.json").read_bytes())
    prompts = random_prompts(2, (20,), 255, seed=6)
    one, two = (
        generate(load(agreeing, folder), prompts, greedy(30), 2) for folder in (drafter, other)
    )
    for a, b in zip(one, two, strict=True):
        assert a.output_ids == b.output_ids
        assert a.counters.correct_drafts == b.counters.correct_drafts
        assert a.counters.confidence_count == a.counters.proposed_drafts
        least, mean, most = (
            getattr(a.counters, f"confidence_{name}") for name in ("min", "mean", "max")
        )
        assert 0 < least < mean < most < 1
        assert b.counters.confidence_mean != pytest.approx(mean)


def test_sampled_outputs_have_the_exact_joint_distribution(agreeing: Path, tmp_path: Path) -> None:
    """Blocks of two drafts, three tokens looked at, top-k 2: eight outcomes, 640 requests."""
    folder = agreeing_dspark(tmp_path, agreeing, block_size=2)
    runner = load(agreeing, folder, max_running_requests=80)
    prompt = random_prompts(1, (6,), 255, seed=77)[0]

    def params(seed: int) -> SamplingParams:
        return SamplingParams(
            max_new_tokens=4, temperature=2.0, top_k=2, ignore_eos=True, seed=seed
        )

    expected = exact_pairs(runner, prompt, params(0))
    counts: Counter[tuple[int, ...]] = Counter()
    proposed = correct = 0
    for group in range(8):
        seqs = [runner.new_sequence(str(i), prompt, params(group * 80 + i)) for i in range(80)]
        for seq in seqs:
            runner.admit(seq)
        runner.prefill_step(seqs)
        while any(seq.phase is Phase.DECODE for seq in seqs):
            runner.decode_step([seq for seq in seqs if seq.phase is Phase.DECODE])
        counts.update(tuple(seq.output_ids[:3]) for seq in seqs)
        proposed += sum(seq.counters.proposed_drafts for seq in seqs)
        correct += sum(seq.counters.correct_drafts for seq in seqs)
    assert len(expected) == 8
    assert set(counts) <= set(expected)
    observed = [counts[outcome] for outcome in expected]
    assert chisquare(observed, [p * 640 for p in expected.values()]).pvalue > SURE
    assert 0 < correct < proposed


@pytest.mark.parametrize("cache", [False, True])
def test_a_retraction_in_the_middle_changes_nothing(
    cache: bool, agreeing: Path, drafter: Path
) -> None:
    prompts = random_prompts(2, (40, 70), 255, seed=12)
    plain = generate(Runner.load(agreeing), prompts, greedy(30), 1)
    runner = load(agreeing, drafter, prefix_cache=cache)
    seqs = start(runner, prompts, greedy(30))
    steps = 0
    while any(seq.phase is not Phase.FINISHED for seq in seqs):
        step(runner, [seq for seq in seqs if seq.phase is not Phase.FINISHED])
        steps += 1
        if steps % 4 == 3 and seqs[1].phase is Phase.DECODE and seqs[1].counters.retractions < 3:
            runner.retract(seqs[1])
            runner.admit(seqs[1])
    assert [seq.output_ids for seq in seqs] == [seq.output_ids for seq in plain]
    assert seqs[1].counters.retractions > 1
    runner.check_integrity()


def test_drafts_after_a_prefix_hit_are_those_of_a_cold_run(agreeing: Path, drafter: Path) -> None:
    first, second = random_prompts(2, (300,), 255, seed=13)
    second = first[:270] + second[270:]
    cold = load(agreeing, drafter)
    warm = load(agreeing, drafter, prefix_cache=True)
    generate_kept(warm, first)
    for prompt in (first, second):
        (a,), (b,) = (generate_kept(runner, prompt) for runner in (cold, warm))
        assert b.cached_tokens > 0
        assert a.output_ids == b.output_ids
        assert a.counters.correct_histogram == b.counters.correct_histogram
        assert a.counters.confidence_mean == pytest.approx(b.counters.confidence_mean)


def generate_kept(runner: Runner, prompt: list[int]) -> list[Any]:
    """One request; the prefix cache may keep pages."""
    seqs = start(runner, [prompt], greedy(24))
    while seqs[0].phase is not Phase.FINISHED:
        step(runner, seqs)
    return seqs


def test_a_drafter_whose_logits_are_not_finite_ends_its_request_alone(
    agreeing: Path, drafter: Path
) -> None:
    runner = load(agreeing, drafter)
    made = runner._core.drafter
    assert isinstance(made, DSparkDrafter)
    choose = made.choose

    def broken(seqs: Any, hidden: Tensor, widths: Any) -> Any:
        for i, seq in enumerate(seqs):
            if seq.request_id == "1":
                hidden[i, 2] = math.nan
        return choose(seqs, hidden, widths)

    made.choose = broken  # type: ignore[method-assign]
    seqs = finish(runner, start(runner, random_prompts(2, (20,), 255, seed=14), greedy(30)))
    assert [seq.finish.kind for seq in seqs if seq.finish] == ["length", "abort"]
    assert seqs[1].counters.nonfinite_draft_logits == 1
