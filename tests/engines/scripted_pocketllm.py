"""One rank of a worker that speaks PocketLLM's lines, with tokens and counts of a known plan.

Token k of an answer is (sum of the prompt + k) mod 1000. Run as a script with the engine's
flags; what it was given is printed first.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

flags = sys.argv[1:]


def value(name: str, default: str) -> str:
    return flags[flags.index(name) + 1] if name in flags else default


rank, world = int(value("--tp-rank", "0")), int(value("--tp-world", "1"))
id_path = Path(value("--nccl-id-path", "/nowhere"))
drafts = int(value("--qwen-mtp-tokens", "0"))
limit = int(value("--max-context", "64"))
print("argv", " ".join(flags), "gpu", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
print("switch", os.environ.get("POCKETLLM_TEST"), os.environ.get("DSV4_TEST"), flush=True)
if "--die-at-start" in flags:
    print("out of device memory", file=sys.stderr, flush=True)
    sys.exit(9)


def answer(new: int, prompt: list[int]) -> list[int]:
    return [(sum(prompt) + k) % 1000 for k in range(new)]


channel = id_path.with_suffix(".requests")
if rank == 0:
    assert not id_path.exists(), "the id file of an earlier start"
    id_path.write_text("id")
    time.sleep(float(value("--load-s", "0")))
    print(
        "qwen_startup=1 layers=64 persistent_stdin=1 prefix_cache="
        f"{int('--qwen-no-prefix-cache' not in flags)} max_context={limit}",
        flush=True,
    )
    seen: list[int] = []
    for line in sys.stdin:
        if not line.strip():
            continue
        new, *prompt = map(int, line.split())
        if new <= 0 or not prompt or len(prompt) + new > limit:
            raise SystemExit("terminate called after throwing an instance")
        with channel.open("a") as file:
            file.write(line)
        tokens = answer(new, prompt)
        steps = (new - 1) // (drafts + 1) if drafts else 0
        reused = 0
        if "--qwen-no-prefix-cache" not in flags and prompt == seen:
            reused = len(prompt) - 1
        seen = prompt
        print(
            f"qwen_persistent_result=1 prompt_tokens={len(prompt)} generated_tokens={new} "
            f"tokens={','.join(map(str, tokens))} wall=0.5 prefill_seconds=0.2 "
            f"decode_seconds=0.3 decode_tokens_per_s={(new - 1) / 0.3} "
            f"prefix_reused_tokens={reused} prefix_resume_source=empty "
            f"mtp_accept_rate=1 mtp_verify_count={steps} mtp_proposed_drafts={steps * drafts} "
            f"mtp_correct_drafts={steps * drafts} mtp_draft_seconds=0.05",
            flush=True,
        )
    (id_path.parent / "stop").touch()  # the end of input ends every rank
else:
    done = 0
    while id_path.parent.exists() and os.getppid() != 1:
        lines = channel.read_text().splitlines() if channel.exists() else []
        for line in lines[done:]:
            new, *prompt = map(int, line.split())
            tokens = answer(new, prompt)
            if "--rank-lies" in flags:
                tokens[-1] += 1
            if drafts:
                told = ",".join(map(str, tokens))
                print(f"qwen_persistent_worker_result=1 tp_rank={rank} tokens={told}", flush=True)
        done = len(lines)
        if (id_path.parent / "stop").exists():
            break
        time.sleep(0.01)
