"""Sampling keeps the target's distribution, with and without drafts, and repeats its draws."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from driving import finish, generate, random_prompts, start, target_rows
from scipy.stats import chisquare
from specdec.contract import RunnerOptions
from specdec.request import Phase, SamplingParams
from specdec.runner import Runner
from specdec.sampling import Purpose, distribution, draw, uniform
from specdec.speculate import accept_sampled
from torch import Tensor

SURE = 1e-3  # a right sampler fails a test below this one time in a thousand; seeds are fixed


def pair(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.softmax(torch.randn(6, generator=generator) * 1.5, 0) for _ in range(2))
    return p.double(), q.double()


def test_accepted_or_replaced_the_first_token_has_the_targets_distribution() -> None:
    p, q = pair(1)
    bonus, _ = pair(2)
    counts: Counter[int] = Counter()
    accepted = 0
    for seed in range(12_000):
        drafted = draw(q, uniform(seed, 7, Purpose.DRAFT))
        verdict = accept_sampled(
            [drafted], [q], [p, bonus], lambda i, use, s=seed: uniform(s, 7 + i, use)
        )
        accepted += verdict.correct
        counts[drafted if verdict.correct else verdict.token] += 1
    observed = [counts[token] for token in range(6)]
    assert chisquare(observed, (p / p.sum() * 12_000).tolist()).pvalue > SURE
    # The textbook acceptance rate is the overlap of the two distributions.
    overlap = float(torch.minimum(p, q).sum())
    assert accepted / 12_000 == pytest.approx(overlap, abs=0.02)


def test_the_token_after_an_accepted_draft_has_its_own_targets_distribution() -> None:
    p, q = pair(3)
    bonus, _ = pair(4)
    counts: Counter[int] = Counter()
    for seed in range(12_000):
        drafted = draw(q, uniform(seed, 9, Purpose.DRAFT))
        verdict = accept_sampled(
            [drafted], [q], [p, bonus], lambda i, use, s=seed: uniform(s, 9 + i, use)
        )
        if verdict.correct:
            counts[verdict.token] += 1
    total = sum(counts.values())
    observed = [counts[token] for token in range(6)]
    assert total > 3_000
    assert chisquare(observed, (bonus / bonus.sum() * total).tolist()).pvalue > SURE


def exact_pairs(runner: Runner, prompt: list[int], params: SamplingParams) -> dict[tuple, float]:
    """Probability of each (second, third) output token given the prompt and the first token, by
    walking the tree of sampled tokens with the target's own logits."""

    def next_distribution(tokens: list[int]) -> Tensor:
        seq = runner.new_sequence("walk", tokens, SamplingParams(max_new_tokens=1, temperature=0.0))
        runner.admit(seq)
        with torch.inference_mode():
            hidden = target_rows(runner, seq, tokens).hidden
            logits = runner._core.target.logits(hidden[-1:])[0]
        runner.retract(seq)
        return distribution(logits, params)

    found: dict[tuple, float] = {}
    first = next_distribution(prompt)
    for a in first.nonzero()[:, 0].tolist():
        second = next_distribution([*prompt, a])
        for b in second.nonzero()[:, 0].tolist():
            third = next_distribution([*prompt, a, b])
            for c in third.nonzero()[:, 0].tolist():
                found[a, b, c] = float(first[a] * second[b] * third[c])
    return found


@pytest.mark.parametrize("mode", ["target-only", "mtp", "dflash2"])
def test_the_engines_sampled_outputs_have_the_exact_joint_distribution(
    mode: str, agreeing: Path
) -> None:
    """Three tokens, top-k 2: eight outcomes with known probabilities, 640 requests."""
    draft = agreeing / mode if mode == "dflash2" else None
    options = RunnerOptions(mode=mode, draft_steps=3, draft_model=draft, max_running_requests=80)
    runner = Runner.load(agreeing, options)
    prompt = random_prompts(1, (6,), 255, seed=77)[0]

    def params(seed: int) -> SamplingParams:
        return SamplingParams(
            max_new_tokens=3, temperature=2.0, top_k=2, ignore_eos=True, seed=seed
        )

    expected = exact_pairs(runner, prompt, params(0))
    counts: Counter[tuple[int, ...]] = Counter()
    proposed = correct = 0
    for group in range(8):
        seqs = []
        for i in range(80):
            seqs.append(runner.new_sequence(str(i), prompt, params(group * 80 + i)))
            runner.admit(seqs[-1])
        runner.prefill_step(seqs)
        while any(seq.phase is Phase.DECODE for seq in seqs):
            runner.decode_step([seq for seq in seqs if seq.phase is Phase.DECODE])
        counts.update(tuple(seq.output_ids) for seq in seqs)
        proposed += sum(seq.counters.proposed_drafts for seq in seqs)
        correct += sum(seq.counters.correct_drafts for seq in seqs)
    assert len(expected) == 8
    assert set(counts) <= set(expected)
    observed = [counts[outcome] for outcome in expected]
    assert chisquare(observed, [p * 640 for p in expected.values()]).pvalue > SURE
    if mode != "target-only":
        assert 0 < correct < proposed


@pytest.mark.parametrize("mode", ["mtp", "dflash2"])
def test_a_seed_repeats_its_output_in_any_batch_and_another_seed_does_not(
    mode: str, agreeing: Path
) -> None:
    prompts = random_prompts(3, (20,), 255, seed=5)
    draft = agreeing / mode if mode == "dflash2" else None
    options = RunnerOptions(mode=mode, draft_steps=3, draft_model=draft)

    def run(seed: int, batch: int) -> list[list[int]]:
        params = SamplingParams(max_new_tokens=30, temperature=1.0, ignore_eos=True, seed=seed)
        done = generate(Runner.load(agreeing, options), prompts, params, batch)
        return [seq.output_ids for seq in done]

    assert run(1, 1) == run(1, 3)
    assert run(1, 1) != run(2, 1)


def test_without_a_seed_two_requests_differ_and_a_restart_repeats_both(agreeing: Path) -> None:
    prompt = random_prompts(1, (20,), 255, seed=6)[0]
    params = SamplingParams(max_new_tokens=30, temperature=1.0, ignore_eos=True)

    def run() -> list[list[int]]:
        runner = Runner.load(agreeing)
        return [seq.output_ids for seq in finish(runner, start(runner, [prompt, prompt], params))]

    first, second = run()
    assert first != second
    assert run() == [first, second]


def test_filters_keep_the_smallest_sets_that_their_names_promise() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()

    def kept(**changes: float) -> list[int]:
        found = distribution(logits, SamplingParams(**changes))  # type: ignore[arg-type]
        assert float(found.sum()) == pytest.approx(1.0)
        return found.nonzero()[:, 0].tolist()

    assert kept(top_k=2) == [0, 1]
    assert kept(top_p=0.69) == [0, 1]
    assert kept(top_p=0.71) == [0, 1, 2]
    assert kept(min_p=0.6) == [0, 1]
    assert kept(top_p=1e-9) == [0]
    assert kept() == [0, 1, 2, 3]


def test_a_draw_never_lands_on_a_token_of_probability_zero() -> None:
    weights = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64)
    assert draw(weights, 0.0) == 1
    assert draw(weights, 0.2499999) == 1
    assert draw(weights, 0.25) == 3
    assert draw(weights, 1.0) == 3


def test_the_generators_numbers_look_uniform_and_depend_on_every_argument() -> None:
    numbers = [
        uniform(seed, position, Purpose.TARGET) for seed in range(100) for position in range(100)
    ]
    bins = Counter(int(number * 20) for number in numbers)
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert chisquare([bins[i] for i in range(20)]).pvalue > SURE
    assert len({uniform(3, 5, use) for use in Purpose}) == len(Purpose)
    assert len(set(numbers)) == len(numbers)
