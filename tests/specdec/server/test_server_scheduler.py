"""Who runs when: admission, order, retraction, cancelling. The model is a script."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_runner import ScriptedRunner, next_token
from specdec.errors import RequestRefused
from specdec.job import Delta, JobSpec
from specdec.reporter import Reporter
from specdec.request import Finish, SamplingParams
from specdec.scheduler import QueueFull, Scheduler
from specdec.tokenizer import Tokenizer


@dataclass
class Bench:
    """A scheduler with a clock that ticks and a list of what it said."""

    runner: ScriptedRunner
    tokenizer: Tokenizer
    max_queued: int | None = None
    said: list[tuple[str, Delta]] = field(default_factory=list)
    ticks: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            self.runner,
            self.tokenizer,
            self.said.extend,
            Reporter(decode_log_interval=4),
            clock=self.tick,
            max_queued=self.max_queued,
        )

    def tick(self) -> float:
        self.ticks += 1
        return float(self.ticks)

    def add(self, rid: str, prompt: Seq[int], tokens: int, **more: object) -> None:
        params = SamplingParams(max_new_tokens=tokens, temperature=0.0, ignore_eos=True)
        self.scheduler.add([JobSpec(rid, tuple(prompt), params, **more)])  # type: ignore[arg-type]

    def run(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if self.scheduler.idle:
                break
            self.scheduler.step()
            self.runner.pool.check_integrity()
        assert self.scheduler.idle, "the scheduler never came to rest"
        assert self.runner.pool.used_tokens == 0
        assert self.runner.free_slots == self.runner.slots

    def output(self, rid: str) -> tuple[int, ...]:
        return tuple(t for who, delta in self.said if who == rid for t in delta.token_ids)

    def last(self, rid: str) -> Delta:
        return [delta for who, delta in self.said if who == rid][-1]


def alone(prompt: Seq[int], tokens: int, vocab: int = 384) -> tuple[int, ...]:
    """The script followed by hand."""
    sequence = list(prompt)
    for _ in range(tokens):
        sequence.append(next_token(sequence, vocab))
    return tuple(sequence[len(prompt) :])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 60)), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from([160, 240, 400]),
)
def test_every_schedule_gives_each_request_the_bytes_it_would_get_alone(
    tokenizer: Tokenizer, shapes: list[tuple[int, int]], drafts: int, slots: int, pool: int
) -> None:
    bench = Bench(ScriptedRunner(drafts=drafts, slots=slots, pool_tokens=pool), tokenizer)
    prompts = [[3 + (7 * index + i) % 300 for i in range(n)] for index, (n, _) in enumerate(shapes)]
    for index, (prompt, (_, tokens)) in enumerate(zip(prompts, shapes, strict=True)):
        bench.add(f"r{index}", prompt, tokens)
    bench.run()
    for index, (prompt, (_, tokens)) in enumerate(zip(prompts, shapes, strict=True)):
        assert bench.output(f"r{index}") == alone(prompt, tokens)
        last = bench.last(f"r{index}")
        assert last.finish == Finish("length", length=tokens)
        assert last.counters is not None
        assert last.counters.output_tokens() == tokens == last.completion_tokens


def test_a_full_pool_sends_the_youngest_back_and_it_finishes_with_the_same_bytes(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(ScriptedRunner(pool_tokens=160), tokenizer)
    logger = logging.getLogger("specdec")
    logger.propagate = True
    with caplog.at_level(logging.INFO, logger="specdec"):
        for rid in ("old", "middle", "young"):
            bench.add(rid, range(10, 42), 60)
        bench.run()
    assert bench.last("old").retractions == 0
    assert bench.last("young").retractions >= 1
    assert {bench.output(rid) for rid in ("old", "middle", "young")} == {alone(range(10, 42), 60)}
    finished = [rid for rid, delta in bench.said if delta.finish is not None]
    assert finished[0] == "old"
    total = sum(bench.last(rid).retractions for rid in ("old", "middle", "young"))
    assert bench.scheduler.totals.retractions == total
    assert "KV cache pool is full. Retract requests. #retracted_reqs: 1" in caplog.text


def test_a_retracted_request_is_not_sent_back_over_and_over(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(pool_tokens=160), tokenizer)
    for rid in ("a", "b", "c", "d"):
        bench.add(rid, range(10, 26), 100)
    bench.run()
    assert max(bench.last(rid).retractions for rid in "abcd") == 1


def test_requests_beyond_capacity_wait_and_start_in_order_of_arrival(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(slots=2), tokenizer)
    for index in range(6):
        bench.add(f"r{index}", [5, 6, 7], 5)
    bench.scheduler.step()
    assert (bench.scheduler.load.running, bench.scheduler.load.queued) == (2, 4)
    bench.run()
    first_words = list(dict.fromkeys(rid for rid, _ in bench.said))
    assert first_words == [f"r{index}" for index in range(6)]
    assert max(bench.runner.decode_batches) == 2


def test_a_large_request_at_the_head_is_not_overtaken(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(pool_tokens=160), tokenizer)
    bench.add("running", range(10, 74), 60)
    bench.scheduler.step()
    bench.add("large", range(10, 138), 4)
    bench.add("small", [5], 4)
    bench.run()
    order = list(dict.fromkeys(rid for rid, _ in bench.said))
    assert order == ["running", "large", "small"]


def test_decoding_goes_on_while_a_long_prompt_is_read(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(chunk=16), tokenizer)
    bench.add("talker", [5, 6], 40)
    bench.scheduler.step()
    bench.add("reader", range(10, 138), 2)
    before = len(bench.output("talker"))
    for _ in range(7):
        bench.scheduler.step()
    assert bench.output("reader") == ()
    assert len(bench.output("talker")) == before + 7


def test_one_prefill_batch_holds_one_chunk_of_tokens_at_most(tokenizer: Tokenizer) -> None:
    seen: list[int] = []

    class Watched(ScriptedRunner):
        def prefill_step(self, seqs):  # type: ignore[no-untyped-def]
            seen.append(sum(self.next_prefill_tokens(seq) for seq in seqs))
            return super().prefill_step(seqs)

    bench = Bench(Watched(chunk=64), tokenizer)
    for rid in ("a", "b", "c", "d"):
        bench.add(rid, range(10, 40), 3)
    bench.run()
    assert seen == [60, 60]


def test_an_aborted_request_gives_everything_back_and_the_others_go_on(
    tokenizer: Tokenizer,
) -> None:
    bench = Bench(ScriptedRunner(slots=2), tokenizer)
    for rid in ("job-1", "job-2", "other", "job-3"):
        bench.add(rid, range(10, 30), 30)
    for _ in range(3):
        bench.scheduler.step()
    assert bench.scheduler.abort(lambda rid: rid.startswith("job-"), "Enough.") == 3
    assert bench.last("job-1").finish == Finish("abort", message="Enough.")
    assert bench.last("job-3").completion_tokens == 0
    bench.run()
    assert bench.output("other") == alone(range(10, 30), 30)


def test_a_flush_is_refused_while_anything_is_unfinished(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(), tokenizer)
    bench.add("a", [5], 3)
    assert not bench.scheduler.flush()
    bench.run()
    assert bench.scheduler.flush()


def test_the_averages_start_anew_with_a_flush(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(drafts=3), tokenizer)
    bench.add("a", [5], 30)
    bench.run()
    reporter, totals = bench.scheduler.reporter, bench.scheduler.totals
    counters = bench.last("a").counters
    assert counters is not None
    expected = 1 + counters.correct_drafts / counters.verify_steps
    assert reporter.since_flush(totals).accept_length == pytest.approx(expected)
    bench.scheduler.flush()
    assert reporter.since_flush(totals).accept_length is None


def test_what_the_runner_refuses_queues_nothing(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(), tokenizer)
    good = SamplingParams(max_new_tokens=4)
    with pytest.raises(RequestRefused, match="exceeds"):
        bench.scheduler.add(
            [JobSpec("a", (5,), good), JobSpec("b", (5,), SamplingParams(max_new_tokens=9999))]
        )
    assert bench.scheduler.idle
    bench.add("a", [5], 4)
    with pytest.raises(RequestRefused, match="still running"):
        bench.add("a", [5], 4)


def test_a_full_queue_is_said_so(tokenizer: Tokenizer) -> None:
    bench = Bench(ScriptedRunner(slots=1), tokenizer, max_queued=1)
    bench.add("a", [5], 4)
    bench.scheduler.step()
    bench.add("b", [5], 4)
    with pytest.raises(QueueFull, match="1 is its limit"):
        bench.add("c", [5], 4)


def test_a_request_that_the_core_gives_up_ends_as_failed_and_spoils_no_other(
    tokenizer: Tokenizer,
) -> None:
    broken = Finish("abort", message="The draft logits are not finite.")
    runner = ScriptedRunner(fault=lambda seq: broken if seq.request_id == "bad" else None)
    bench = Bench(runner, tokenizer)
    bench.add("bad", [9, 9], 20)
    bench.add("good", [5, 6], 20)
    bench.run()
    assert bench.last("bad").failed
    assert bench.last("bad").finish == broken
    assert not bench.last("good").failed
    assert bench.output("good") == alone([5, 6], 20)


def spelled(text: str, tokenizer: Tokenizer) -> list[int]:
    """One token a byte, so that a step can cut anywhere."""
    from specdec.tokenizer import BYTE_OF

    char_of = {byte: char for char, byte in BYTE_OF.items()}
    return [tokenizer.fast.token_to_id(char_of[byte]) for byte in text.encode()]


@pytest.mark.parametrize("drafts", [0, 1, 3, 4])
def test_a_stop_string_inside_a_step_cuts_text_and_tokens_and_counts_the_rest_as_trimmed(
    tokenizer: Tokenizer, drafts: int
) -> None:
    script = spelled("one two STOP three four", tokenizer)
    runner = ScriptedRunner(drafts=drafts, model=lambda tokens, vocab: script[len(tokens) - 1])
    bench = Bench(runner, tokenizer)
    bench.add("a", [5], 20, stop=("STOP",))
    bench.run()
    last = bench.last("a")
    text = "".join(delta.text for _, delta in bench.said)
    assert text == "one two "
    assert last.finish == Finish("stop", matched="STOP")
    assert bench.output("a") == tuple(script[: len("one two STOP")])
    assert last.completion_tokens == len("one two STOP")
    assert last.counters is not None
    assert last.counters.output_tokens() == last.completion_tokens


def test_a_stop_token_stays_out_of_the_text_and_in_the_ids(tokenizer: Tokenizer) -> None:
    script = spelled("yes.no", tokenizer)
    dot = script[3]
    runner = ScriptedRunner(model=lambda tokens, vocab: script[len(tokens) - 1])
    for keep, expected in ((False, "yes"), (True, "yes.")):
        bench = Bench(runner, tokenizer)
        params = SamplingParams(
            max_new_tokens=6, temperature=0.0, stop_token_ids=frozenset({dot}), ignore_eos=True
        )
        bench.scheduler.add([JobSpec("a", (5,), params, keep_stop=keep)])
        bench.run()
        assert "".join(delta.text for _, delta in bench.said) == expected
        assert bench.output("a") == tuple(script[:4])
        assert bench.last("a").finish == Finish("stop", matched=dot)


def test_one_delta_comes_for_each_step_and_the_first_brings_one_token(
    tokenizer: Tokenizer,
) -> None:
    bench = Bench(ScriptedRunner(drafts=3), tokenizer)
    bench.add("a", [5, 6, 7], 20)
    bench.run()
    sizes = [len(delta.token_ids) for _, delta in bench.said]
    assert sizes[0] == 1
    assert len(sizes) == 1 + len(bench.runner.decode_batches)
    assert max(sizes) > 1, "the script must accept drafts to test anything"


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 70), st.integers(1, 60)),
        st.tuples(st.just("abort"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("step"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    min_size=3,
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(operations, st.integers(0, 3))
def test_whatever_is_mixed_every_request_ends_once_and_nothing_is_left(
    tokenizer: Tokenizer, script: list[tuple[str, int, int]], drafts: int
) -> None:
    bench = Bench(ScriptedRunner(drafts=drafts, pool_tokens=208, slots=3), tokenizer)
    shapes: dict[str, tuple[int, int]] = {}
    for kind, first, second in script:
        if kind == "add":
            rid = f"r{len(shapes)}"
            shapes[rid] = (first, second)
            bench.add(rid, range(10, 10 + first), second)
        elif kind == "abort":
            bench.scheduler.abort(lambda rid, n=first: rid == f"r{n}", "Enough.")
        elif kind == "step":
            for _ in range(first):
                if not bench.scheduler.idle:
                    bench.scheduler.step()
        else:
            assert bench.scheduler.flush() == bench.scheduler.idle
        bench.runner.pool.check_integrity()
    bench.run()
    for rid, (prompt, tokens) in shapes.items():
        ends = [d.finish for who, d in bench.said if who == rid and d.finish is not None]
        assert len(ends) == 1
        expected = alone(range(10, 10 + prompt), tokens)
        if ends[0].kind == "length":
            assert bench.output(rid) == expected
        else:
            assert bench.output(rid) == expected[: len(bench.output(rid))]


def test_seconds_of_a_shared_step_count_once_and_those_of_prefill_add_up() -> None:
    from specdec.request import Sequence, StepResult, StepStats
    from specdec.totals import Totals

    sequence = Sequence("a", (1,), SamplingParams(), seed=0)
    decode = StepResult(sequence, (5,), StepStats(verify_steps=1, draft_s=0.5, verify_s=1.0))
    prefill = StepResult(sequence, (), StepStats(prefill_s=2.0, priming_s=0.25), 7)
    totals = Totals()
    totals.add_step([decode, decode])
    totals.add_step([prefill, prefill])
    assert (totals.draft_s, totals.verify_s, totals.verify_steps) == (0.5, 1.0, 2)
    assert (totals.prefill_s, totals.priming_s, totals.prefilled_tokens) == (4.0, 0.5, 14)
