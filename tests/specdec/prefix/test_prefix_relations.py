"""Ids are those of a cold target-only run: every mode, cache on and off, six ways in which a prompt
may begin like an earlier one, alone and in a batch (F059 among them)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from driving import generate, greedy
from prefix_driving import DRAFTING, MODES, assert_empty, begin, finish, load, run, whole_state
from specdec.contract import RunnerOptions
from specdec.request import Phase, Sequence
from specdec.runner import Runner

FIRST = 460  # tokens of the prompt that comes before the others
NEW_TOKENS = 12
RELATIONS = ("repeat", "append", "one-more", "one-less", "shorter", "branch", "compressed")


def tokens(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(255) for _ in range(count)]


def related(relation: str, prompt: list[int], output: list[int]) -> list[int]:
    """A prompt that stands in this relation to an earlier one and its output."""
    return {
        "repeat": prompt,
        "append": [*prompt, *output, *tokens(90, 1)],
        "one-more": [*prompt, 7],
        "one-less": prompt[:-1],
        "shorter": prompt[:448],  # a page edge
        "branch": [*prompt[:300], *tokens(250, 2)],
        "compressed": [*prompt[:256], *tokens(200, 3)],
    }[relation]


def least_reuse(relation: str, prompt: list[int], output: list[int]) -> int:
    """What must at least be reused, by the rule in the README."""
    return {
        "repeat": len(prompt) - 1,
        "append": len(prompt) + len(output) - 1,
        "one-more": len(prompt) - 1,
        "one-less": len(prompt) - 2,
        "shorter": 256,
        "branch": 256,
        "compressed": 256,
    }[relation]


@pytest.fixture(scope="module")
def first() -> list[int]:
    return tokens(FIRST, 0)


@pytest.fixture(scope="module")
def cold(agreeing: Path, first: list[int]) -> dict[str, list[int]]:
    """Target-only, alone, without a cache: the output for each relation, and the first one's."""
    runner = Runner.load(agreeing, RunnerOptions())
    (before,) = generate(runner, [first], greedy(NEW_TOKENS), 1)
    prompts = [related(name, first, before.output_ids) for name in RELATIONS]
    done = generate(runner, prompts, greedy(NEW_TOKENS), 1)
    outputs = {name: seq.output_ids for name, seq in zip(RELATIONS, done, strict=True)}
    return {**outputs, "first": before.output_ids}


@pytest.mark.parametrize("batched", [False, True], ids=["alone", "batched"])
@pytest.mark.parametrize("cache", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("mode", MODES)
def test_f059_ids_are_those_of_a_cold_run(
    mode: str,
    cache: bool,
    batched: bool,
    agreeing: Path,
    first: list[int],
    cold: dict[str, list[int]],
) -> None:
    runner = load(agreeing, mode, cache)
    before = run(runner, first, NEW_TOKENS)
    assert before.output_ids == cold["first"]
    prompts = {name: related(name, first, before.output_ids) for name in RELATIONS}
    if batched:
        seqs = [begin(runner, prompt, NEW_TOKENS, name) for name, prompt in prompts.items()]
        done = {seq.request_id: seq for seq in finish(runner, seqs)}
    else:
        done = {name: run(runner, prompt, NEW_TOKENS) for name, prompt in prompts.items()}
    for name, seq in done.items():
        assert seq.output_ids == cold[name], name
        _account(seq, name, cache, first, before.output_ids)
    if not cache:
        assert runner.cache_size.snapshots == 0
    runner.flush_cache()
    assert_empty(runner)


def _account(seq: Sequence, name: str, cache: bool, first: list[int], output: list[int]) -> None:
    if not cache:
        assert (seq.cached_tokens, seq.matched_tokens, seq.resume_source) == (0, 0, "empty")
        return
    assert least_reuse(name, first, output) <= seq.cached_tokens < len(seq.prompt_ids), name
    assert seq.cached_tokens <= seq.matched_tokens <= len(seq.prompt_ids), name
    assert seq.resume_source == ("live" if name == "append" else "snapshot"), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 63, 64, 65, 128, 256])
def test_a_repeat_computes_only_the_last_prompt_token(
    length: int, mode: str, agreeing: Path
) -> None:
    runner = load(agreeing, mode, max_running_requests=2)
    prompt = tokens(length, 5)
    once = run(runner, prompt, 9)
    again = run(runner, prompt, 9)
    assert (once.cached_tokens, again.cached_tokens) == (0, length - 1)
    assert again.output_ids == once.output_ids


@pytest.mark.parametrize("mode", DRAFTING)
def test_drafts_after_a_hit_are_those_of_a_cold_run(
    mode: str, agreeing: Path, first: list[int]
) -> None:
    """The drafter's rows, too, are what they would be: same proposals, same acceptance."""
    warm, plain = (load(agreeing, mode, cache) for cache in (True, False))
    output = run(warm, first, NEW_TOKENS).output_ids
    # At a page's edge, at a snapshot, within a block, and behind the output.
    prompts = [related(name, first, output) for name in RELATIONS]
    prompts += [[*first[:320], *tokens(40, 6)], [*first, *output[:5], *tokens(30, 7)]]
    for prompt in [*prompts, *prompts[::4]]:
        hit, cold_run = run(warm, prompt, 20), run(plain, prompt, 20)
        assert hit.cached_tokens > 0
        assert hit.output_ids == cold_run.output_ids
        for name in ("proposed_drafts", "correct_drafts", "verify_steps", "correct_histogram"):
            assert getattr(hit.counters, name) == getattr(cold_run.counters, name), name


@pytest.mark.parametrize("mode", MODES)
def test_the_state_after_a_hit_is_bit_for_bit_that_of_a_cold_run(
    mode: str, agreeing: Path, first: list[int]
) -> None:
    warm, plain = (load(agreeing, mode, cache) for cache in (True, False))
    output = run(warm, first, NEW_TOKENS).output_ids
    for name in RELATIONS * 2:  # the second time after a sibling that branches off elsewhere
        prompt = related(name, first, output)
        pair = [begin(runner, prompt, NEW_TOKENS) for runner in (warm, plain)]
        for runner, seq in zip((warm, plain), pair, strict=True):
            while seq.phase is Phase.PREFILL:
                runner.prefill_step([seq])
        for _ in range(3):
            states = [whole_state(r, s) for r, s in zip((warm, plain), pair, strict=True)]
            for key, tensor in states[0].items():
                assert torch.equal(tensor, states[1][key]), (name, key)
            for runner, seq in zip((warm, plain), pair, strict=True):
                runner.decode_step([seq])
        for runner, seq in zip((warm, plain), pair, strict=True):
            finish(runner, [seq])
