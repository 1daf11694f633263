"""How long a prompt of N tokens with five codes takes to build, and what memory it takes.

    python benchmarks/needles_build.py [N] [--model fixtures/models/tiny-qwen3.5]

Limits for N = 1,000,000: 5 s and 1 GB, on a machine that does nothing else. Reading the text and
the tokenizer is part of it. Exit code 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from qualify.prompts.corpus import ring
from qualify.prompts.needle_draft import Statement
from qualify.prompts.needles import build_haystack
from qualify.prompts.sources import open_source
from qualify.prompts.tokens import Tokenizer

LIMIT_S, LIMIT_BYTES = 5.0, 1_000_000_000
CODES = ("K7-4410", "Q1-0093", "Z5-5582", "A8-7719", "L2-2046")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--model", default="fixtures/models/tiny-qwen3.5")
    parser.add_argument("--source", default="corpora/prose")
    options = parser.parse_args()
    began, worked = time.perf_counter(), time.process_time()
    tokenizer = Tokenizer.load(options.model)
    loop = ring(open_source(options.source), tokenizer)
    statements = tuple(
        Statement(f"The secret code is {code}.", code, 0.04 + 0.23 * place)
        for place, code in enumerate(CODES)
    )
    around = "<|im_start|>user\n", "\n\nList all five codes.<|im_end|>\n<|im_start|>assistant\n"
    found = build_haystack(options.tokens, statements, around, loop, tokenizer, ("benchmark",))
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - worked
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{len(found.ids):,} tokens, proven by encoding: {found.exact}; {wall_s:.2f} s wall,"
        f" {cpu_s:.2f} s CPU, {memory / 1e6:.0f} MB at most"
    )
    # Every core works at the encoding: on a busy machine CPU seconds are the steadier figure.
    return 0 if min(wall_s, cpu_s) < LIMIT_S and memory < LIMIT_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
