"""Greedy output is the same bytes in every mode, batch, chunking and after a retraction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from driving import finish, generate, greedy, random_prompts, start, step
from specdec.contract import RunnerOptions
from specdec.request import Finish, Phase, Sequence
from specdec.runner import Runner

PROMPTS = random_prompts(24, (1, 2, 7, 8, 9, 31, 63, 64, 65, 127, 150), 255, seed=24)
NEW_TOKENS = 32
MODES = {
    "target-only": RunnerOptions(),
    "mtp-fixed": RunnerOptions(mode="mtp", draft_steps=3),
    "mtp-adaptive": RunnerOptions(mode="mtp", draft_steps=4, adaptive=True),
}


@pytest.fixture(scope="module")
def plain(agreeing: Path) -> list[list[int]]:
    """Target-only, alone."""
    done = generate(Runner.load(agreeing), PROMPTS, greedy(NEW_TOKENS), 1)
    return [seq.output_ids for seq in done]


@pytest.mark.parametrize("batch", [1, 8], ids=["alone", "batch-of-8"])
@pytest.mark.parametrize("mode", MODES)
def test_24_prompts_give_identical_ids_in_every_mode_alone_and_in_a_batch(
    mode: str, batch: int, agreeing: Path, plain: list[list[int]]
) -> None:
    done = generate(Runner.load(agreeing, MODES[mode]), PROMPTS, greedy(NEW_TOKENS), batch)
    assert [seq.output_ids for seq in done] == plain
    if mode != "target-only":
        assert sum(seq.counters.verify_steps for seq in done) > 0
        correct = sum(seq.counters.correct_drafts for seq in done)
        assert 0 < correct < sum(seq.counters.proposed_drafts for seq in done)


def test_the_self_check_reports_exact_rows_here(agreeing: Path) -> None:
    found = Runner.load(agreeing).info.invariance
    assert found.decode_exact, found.detail
    assert found.prefill_exact, found.detail


def test_chunk_size_page_size_and_pool_do_not_change_the_answer(
    agreeing: Path, plain: list[list[int]]
) -> None:
    options = RunnerOptions(
        mode="mtp", draft_steps=5, prefill_chunk_tokens=40, page_size=128, max_total_tokens=2048
    )
    done = generate(Runner.load(agreeing, options), PROMPTS, greedy(NEW_TOKENS), 6)
    assert [seq.output_ids for seq in done] == plain


@pytest.mark.parametrize("mode", MODES)
def test_a_request_retracted_again_and_again_ends_with_the_same_bytes(
    mode: str, agreeing: Path, plain: list[list[int]]
) -> None:
    runner = Runner.load(agreeing, MODES[mode])
    seqs = start(runner, PROMPTS[:6], greedy(NEW_TOKENS))
    turn = 0
    while any(seq.phase is not Phase.FINISHED for seq in seqs):
        step(runner, [seq for seq in seqs if seq.phase is not Phase.WAITING])
        turn += 1
        victim = seqs[turn % len(seqs)]
        if turn % 3 == 0 and victim.phase in (Phase.PREFILL, Phase.DECODE):
            runner.retract(victim)
        for seq in seqs:
            if seq.phase is Phase.WAITING:
                runner.admit(seq)
    assert [seq.output_ids for seq in seqs] == plain[:6]
    assert sum(seq.counters.retractions for seq in seqs) > 5
    for seq in seqs:
        assert seq.counters.prefill_tokens == 1
        assert seq.counters.output_tokens() == NEW_TOKENS


def test_a_tight_pool_shortens_drafts_and_asks_for_a_retraction_in_time(
    agreeing: Path, plain: list[list[int]]
) -> None:
    options = RunnerOptions(
        mode="mtp", draft_steps=7, max_total_tokens=4 * 64, max_running_requests=4
    )
    runner = Runner.load(agreeing, options)
    order = [i for i, prompt in enumerate(PROMPTS) if len(prompt) in (31, 63)][:4]
    seqs = [runner.new_sequence(str(i), PROMPTS[i], greedy(NEW_TOKENS)) for i in order]
    waiting = list(seqs)
    retracted = 0
    while any(seq.phase is not Phase.FINISHED for seq in seqs):
        while waiting and runner.can_admit(waiting[0]):
            runner.admit(waiting.pop(0))
        running = [seq for seq in seqs if seq.phase in (Phase.PREFILL, Phase.DECODE)]
        decoding = [seq for seq in running if seq.phase is Phase.DECODE]
        while runner.pages_short(decoding):
            victim: Sequence = decoding.pop()
            runner.retract(victim)
            running.remove(victim)
            waiting.insert(0, victim)
            retracted += 1
        step(runner, running)
    assert [seq.output_ids for seq in seqs] == [plain[i] for i in order]
    assert retracted > 0


def test_end_and_stop_tokens_cut_the_output_at_the_same_place_in_every_mode(
    agreeing: Path, plain: list[list[int]]
) -> None:
    stop = plain[0][9]
    ends: set[tuple[int, ...]] = set()
    trimmed = 0
    for options in (*MODES.values(), RunnerOptions(mode="mtp", draft_steps=7)):
        runner = Runner.load(agreeing, options)
        params = greedy(NEW_TOKENS, stop_token_ids=frozenset((stop,)))
        seqs = finish(runner, start(runner, PROMPTS[:4], params))
        ends.add(tuple(len(seq.output_ids) for seq in seqs))
        trimmed += sum(seq.counters.trimmed_tokens for seq in seqs)
        first = seqs[0]
        assert first.finish is not None
        assert (first.finish.kind, first.finish.matched) == ("stop", stop)
        assert first.output_ids == plain[0][: plain[0].index(stop) + 1]
    assert len(ends) == 1


@pytest.mark.parametrize("mode", MODES)
def test_the_checkpoints_own_end_token_ends_the_output_unless_it_is_ignored(
    mode: str, agreeing: Path, plain: list[list[int]], tmp_path: Path
) -> None:
    end = plain[0][9]
    folder = shutil.copytree(agreeing, tmp_path / "ends")
    for file in (folder / "config.json", folder / "generation_config.json"):
        settings = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**settings, "eos_token_id": end}), encoding="utf-8")
    runner = Runner.load(folder, MODES[mode])
    assert runner.info.eos_token_ids == {end}
    (cut,) = generate(runner, PROMPTS[:1], greedy(NEW_TOKENS, ignore_eos=False), 1)
    assert cut.finish == Finish("stop", matched=end)
    assert cut.output_ids == plain[0][: plain[0].index(end) + 1]
    (whole,) = generate(runner, PROMPTS[:1], greedy(NEW_TOKENS), 1)
    assert whole.output_ids == plain[0]
    assert whole.finish == Finish("length", length=NEW_TOKENS)
