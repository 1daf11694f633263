"""Time and memory of building one prompt of a million tokens, in a fresh process.

    python benchmarks/prompt_build.py [TOKENS] [TOKENIZER]

TOKENIZER defaults to the quickstart's model (fetched if need be). Prints one JSON object;
exits 1 above 5 s or 1 GB, or when the prompt is not exact. `load_before` tells how busy the
machine was: the time holds that as well.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

LIMIT_S = 5.0
LIMIT_BYTES = 1_000_000_000


def main(tokens: int, tokenizer_path: str | None) -> int:
    from qualify.prompts.exact import build
    from qualify.prompts.prompt import PromptSpec
    from qualify.prompts.tokens import Tokenizer

    if tokenizer_path is None:
        from qualify.engines.fetch import ensure_model
        from qualify.engines.spec import load_engine

        tokenizer_path = str(ensure_model(load_engine("llama-cpp")))
    load_before = os.getloadavg()[0]
    began, cpu = time.perf_counter(), time.process_time()
    tokenizer = Tokenizer.load(tokenizer_path)
    loaded = time.perf_counter()
    spec = PromptSpec("benchmark", "million", "corpora/prose", tokens, 1, 0)
    (prompt,) = build(spec, tokenizer)
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {
        "tokens": len(prompt.ids),
        "text_exact": prompt.text_exact,
        "klass": prompt.klass,
        "load_tokenizer_s": round(loaded - began, 3),
        "build_s": round(ended - loaded, 3),
        "wall_s": round(ended - began, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "peak_bytes": peak,
        "cores": os.cpu_count(),
        "load_before": round(load_before, 2),
        "limit_s": LIMIT_S,
        "limit_bytes": LIMIT_BYTES,
    }
    print(json.dumps(result, indent=2))
    met = len(prompt.ids) == tokens and prompt.text_exact and result["wall_s"] <= LIMIT_S
    return 0 if met and peak <= LIMIT_BYTES else 1


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    sys.exit(main(size, sys.argv[2] if len(sys.argv) > 2 else None))
