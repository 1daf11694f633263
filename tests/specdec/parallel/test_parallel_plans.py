"""Rank 0's calls, mirrored: a random mix of requests leaves both ranks alike and nothing behind."""

from __future__ import annotations

import queue
import random
from pathlib import Path

from driving import finish, greedy, random_prompts, start
from specdec.contract import RunnerOptions
from specdec.parallel.follower import Follower
from specdec.parallel.leader import Leader
from specdec.parallel.plans import Answer, End, Plan
from specdec.parallel.ranks import Ranks
from specdec.request import Finish, Phase, Sequence
from specdec.runner import Runner
from together import together

OPTIONS = RunnerOptions(
    mode="mtp", device="cpu", threads=1, max_total_tokens=512, max_running_requests=3,
    draft_steps=3, prefix_cache=True, max_snapshots=6,
)  # fmt: skip
STEM = random_prompts(1, [130], 256, seed=3)[0]
PROMPTS = [STEM[:100], STEM[:130], STEM[:70] + [9] * 20, STEM[5:60], STEM[:64]]
TOKENS = 12


class Pipe:
    """A link whose other end is a thread; nothing in it can break."""

    rank = 1
    ended = None

    def __init__(self) -> None:
        self.plans: queue.Queue[Plan] = queue.Queue()
        self.answers: queue.Queue[Answer] = queue.Queue()

    def send(self, plan: Plan) -> None:
        self.plans.put(plan)

    def receive(self, timeout_s: float) -> Answer:
        return self.answers.get(timeout=timeout_s)

    def leave(self) -> None:
        pass


def follow(runner: Runner, pipe: Pipe) -> Follower:
    follower = Follower(runner)
    while not isinstance(plan := pipe.plans.get(timeout=60), End):
        answer = follower.obey(plan)
        if answer is not None:
            pipe.answers.put(answer)
    return follower


def lead(leader: Leader, turns: int) -> list[Sequence]:
    """Requests come, run, are sent back, given up and forgotten; those that ran to their end."""
    rng = random.Random(8)
    waiting: list[Sequence] = []
    running: list[Sequence] = []
    done: list[Sequence] = []
    for turn in range(turns):
        if len(waiting) < 3:
            waiting.append(leader.new_sequence(str(turn), rng.choice(PROMPTS), greedy(TOKENS)))
        if waiting and leader.can_admit(waiting[0]):
            running.append(waiting.pop(0))
            leader.admit(running[-1])
        leader.prefill_step([seq for seq in running if seq.phase is Phase.PREFILL][:1])
        while leader.pages_short([seq for seq in running if seq.phase is Phase.DECODE]):
            leader.retract(running[-1])
            waiting.insert(0, running.pop())
        leader.decode_step([seq for seq in running if seq.phase is Phase.DECODE])
        chance = rng.random()
        if running and chance < 0.06:
            leader.retract(running[-1])
            waiting.insert(0, running.pop())
        elif running and chance < 0.12:
            leader.release(rng.choice(running), Finish("abort", message="left"))
        elif waiting and chance < 0.15:
            leader.release(waiting.pop(), Finish("abort", message="left"))  # it may be unheard of
        done += [s for s in running if s.finish is not None and s.finish.kind == "length"]
        running = [seq for seq in running if seq.phase is not Phase.FINISHED]
        if chance > 0.95:
            leader.flush_cache()
        leader.check_integrity()
    for seq in (*waiting, *running):
        leader.release(seq, Finish("abort", message="over"))
    leader.flush_cache()
    return done


def test_a_random_mix_keeps_the_ranks_alike_and_gives_the_ids_of_one_rank(agreeing: Path) -> None:
    pipe = Pipe()

    def program(ranks: Ranks) -> tuple[list[Sequence], int, int, int]:
        runner = Runner.load(agreeing, OPTIONS, ranks)
        if ranks.rank == 1:
            follower = follow(runner, pipe)
            return [], follower.sequences, runner.pool.free_tokens, runner.cache_size.pages
        leader = Leader(runner, [pipe], 60)  # type: ignore[list-item]
        done = lead(leader, turns=70)
        leader.close()
        assert leader.rank_parity.equal
        assert leader.rank_parity.tokens >= sum(len(seq.output_ids) for seq in done)
        return done, len(leader._numbers), runner.pool.free_tokens, runner.cache_size.pages

    (done, *first), (_, *second) = together(2, program)
    assert first == second == [0, 512, 0]
    assert len(done) > 8
    assert sum(seq.counters.retractions for seq in done) > 0
    assert sum(seq.cached_tokens for seq in done) > 0
    alone = Runner.load(agreeing, RunnerOptions(device="cpu", threads=1, max_total_tokens=256))
    expected = {
        tuple(prompt): finish(alone, start(alone, [prompt], greedy(TOKENS)))[0].output_ids
        for prompt in PROMPTS
    }
    for seq in done:
        assert seq.output_ids == expected[seq.prompt_ids], seq.request_id
        assert seq.rank_token_parity is True
