"""What the prefix cache saves and what it costs, on one checkpoint.

    python benchmarks/specdec_prefix.py fixtures/models/tiny-qwen3.5 --start 512 --mode mtp

Three tables, one line a case as it goes:

- continuous requests: a start, two appends of 512 tokens and a prompt that keeps a part of the
  start, each cold (a runner without a cache) and on a runner that keeps the cache between them,
  with the tokens reused and computed and the time to the first token. The ids must agree.
- the price on a cold prompt: prefill with and without the cache, in which the passes are cut at the
  snapshots and their copies taken.
- one snapshot: its bytes, and the time to take one and to put one back.

Prompts are random ids: nothing here depends on what they say. The best of ``--repeats`` counts.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "engines" / "cuda"))

from specdec.contract import RunnerOptions  # noqa: E402
from specdec.request import Phase, SamplingParams, Sequence  # noqa: E402
from specdec.runner import Runner  # noqa: E402
from specdec.snapshots import capture, restore  # noqa: E402

NEW_TOKENS = 4
APPEND = 512


def request(runner: Runner, prompt: tuple[int, ...]) -> tuple[Sequence, float]:
    """Run one request; returns it and the seconds from its admission to its first token."""
    params = SamplingParams(max_new_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    seq = runner.new_sequence("r", prompt, params)
    begin = time.perf_counter()
    runner.admit(seq)
    while seq.phase is Phase.PREFILL:
        runner.prefill_step([seq])
    first_token_s = time.perf_counter() - begin
    while seq.phase is Phase.DECODE:
        runner.decode_step([seq])
    return seq, first_token_s


def conversation(runner: Runner, start: int, kept: int, seed: int) -> list[tuple[Sequence, float]]:
    """The four requests of the continuous table on one runner."""
    rng = random.Random(seed)

    def fresh(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(runner.info.vocab_size) for _ in range(count))

    done = [request(runner, fresh(start))]
    for _ in range(2):
        done.append(request(runner, (*done[-1][0].all_tokens(), *fresh(APPEND))))
    done.append(request(runner, (*done[0][0].prompt_ids[:kept], *fresh(APPEND))))
    return done


def continuous(cached: Runner, cold: Runner, start: int, kept: int, repeats: int) -> None:
    print(f"{'prompt':>8} {'reused':>8} {'computed':>8} {'resume':>9} {'cold ms':>9} {'hit ms':>9}")
    rows: dict[int, tuple[Sequence, list[float], list[float]]] = {}
    for seed in range(repeats):
        cached.flush_cache()
        for index, (seq, hit_s) in enumerate(conversation(cached, start, kept, seed)):
            plain, cold_s = request(cold, seq.prompt_ids)
            assert plain.output_ids == seq.output_ids, "a hit changed the answer"
            _, hits, colds = rows.setdefault(index, (seq, [], []))
            hits.append(hit_s)
            colds.append(cold_s)
    for seq, hits, colds in rows.values():
        prompt = len(seq.prompt_ids)
        print(
            f"{prompt:8} {seq.cached_tokens:8} {prompt - seq.cached_tokens:8} "
            f"{seq.resume_source:>9} {min(colds) * 1e3:9.1f} {min(hits) * 1e3:9.1f}"
        )


def price(cached: Runner, cold: Runner, length: int, repeats: int) -> None:
    rng = random.Random(1)
    prompt = tuple(rng.randrange(cold.info.vocab_size) for _ in range(length))
    times: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(repeats):
        cached.flush_cache()
        times["with"].append(request(cached, prompt)[1])
        times["without"].append(request(cold, prompt)[1])
    with_s, without_s = min(times["with"]), min(times["without"])
    size = cached.cache_size
    print(
        f"cold prompt of {length}: {without_s * 1e3:.1f} ms without the cache, "
        f"{with_s * 1e3:.1f} ms with it ({with_s / without_s - 1:+.1%}); it left "
        f"{size.snapshots} snapshots of {size.snapshot_bytes} bytes in all"
    )


def one_snapshot(runner: Runner, repeats: int) -> None:
    state = runner._core.state
    taken = capture(state, 0, 8, None, False)

    def best_us(work: Callable[[], object]) -> float:
        times = []
        for _ in range(50 * repeats):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return min(times) * 1e6

    take_us = best_us(lambda: capture(state, 0, 8, None, False))
    put_us = best_us(lambda: restore(state, 0, taken))
    print(
        f"one snapshot: {taken.size_bytes} bytes, taken in {take_us:.0f} us, put in {put_us:.0f} us"
    )


def kept_for_drafter(runner: Runner, length: int) -> None:
    """What a snapshot holds for the drafter beside the recurrent state."""
    rng = random.Random(2)
    prompt = [rng.randrange(runner.info.vocab_size) for _ in range(length)]
    params = SamplingParams(max_new_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    seq = runner.new_sequence("kept", prompt, params)
    runner.admit(seq)
    while seq.phase is Phase.PREFILL:
        runner.prefill_step([seq])
    drafter = runner._core.drafter
    assert drafter is not None
    with torch.inference_mode():
        kept = drafter.keep(seq, seq.computed)
    size = 0 if kept is None else kept.numel() * kept.element_size()
    print(f"beside it, for the drafter: {size} bytes after {length} tokens")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--mode", choices=["target-only", "mtp", "dflash2", "dspark"], default="target-only"
    )
    parser.add_argument(
        "--draft-model", type=Path, help="for dflash2 and dspark; default MODEL-MODE"
    )
    parser.add_argument("--draft-kv", choices=["shared", "ring"], default="shared")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--start", type=int, default=512, help="tokens of the first request")
    parser.add_argument(
        "--kept", type=int, help="tokens the last one keeps; default start/2, at most 4096"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    beside = args.model.with_name(f"{args.model.name}-{args.mode}")
    block = args.mode in ("dflash2", "dspark")
    options = RunnerOptions(
        draft_model=(args.draft_model or beside) if block else None, draft_kv=args.draft_kv,
        mode=args.mode, device=args.device, max_running_requests=1, threads=args.threads,
        max_total_tokens=max(4 * (args.start + 3 * APPEND), 4096),
    )  # fmt: skip
    cold = Runner.load(args.model, options)
    cached = Runner.load(args.model, replace(options, prefix_cache=True))
    print(cached.info.invariance.detail)
    kept = args.kept or min(args.start // 2, 4096)
    request(cold, tuple(range(1, 600)))  # the first pass of a process is slower
    continuous(cached, cold, args.start, kept, args.repeats)
    price(cached, cold, args.start, args.repeats)
    one_snapshot(cached, args.repeats)
    if cached.info.draft is not None:
        kept_for_drafter(cached, args.start)


if __name__ == "__main__":
    main()
