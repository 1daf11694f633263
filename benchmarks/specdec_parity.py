"""Whether the bundled engine's greedy output is the same bytes in every mode and batch.

    python benchmarks/specdec_parity.py fixtures/models/tiny-qwen3.5 --prompts 200

Prompts are stretches of 8 to 400 tokens of the texts under `fixtures/corpora`, different ones each
time. The modes dflash2 and dspark take the draft checkpoints beside the model, in the folders of
its name with `-dflash2` and `-dspark` after it; without such a folder a mode is left out and said
so. Every prompt is decoded target-only and alone; then each other mode and batch must give the
same ids. Prints one line a setting and exits 1 on any difference, or if a drafter contributed
nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "engines" / "cuda"), str(ROOT / "tests" / "specdec")]

from driving import generate, greedy  # noqa: E402
from specdec.contract import RunnerOptions  # noqa: E402
from specdec.runner import Runner  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def settings(model: Path) -> dict[str, RunnerOptions]:
    """The launches under test, by name; target-only first."""
    found = {
        "target-only": RunnerOptions(),
        "mtp k=3": RunnerOptions(mode="mtp", draft_steps=3),
        "mtp k=7": RunnerOptions(mode="mtp", draft_steps=7),
        "mtp adaptive": RunnerOptions(mode="mtp", draft_steps=7, adaptive=True),
    }
    blocks, sparks = (model.parent / f"{model.name}-{kind}" for kind in ("dflash2", "dspark"))
    if blocks.is_dir():
        plain = RunnerOptions(mode="dflash2", draft_model=blocks)
        found["dflash2"] = plain
        found["dflash2 ring"] = replace(plain, draft_kv="ring")
        found["dflash2 adaptive"] = replace(plain, adaptive=True)
    if sparks.is_dir():
        found["dspark"] = RunnerOptions(mode="dspark", draft_model=sparks)
    for folder in (blocks, sparks):
        if not folder.is_dir():
            print(f"{folder} is not there: its mode is left out")
    return found


def read_prompts(folder: Path, count: int) -> list[list[int]]:
    """Random stretches of the corpora, from a fixed seed."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    files = sorted(path for path in (ROOT / "fixtures" / "corpora").rglob("*") if path.is_file())
    documents = [
        tokenizer.encode(path.read_text(encoding="utf-8", errors="replace")).ids for path in files
    ]
    documents = [ids for ids in documents if len(ids) > 500]
    rng = random.Random(200)
    prompts = []
    for _ in range(count):
        ids, length = rng.choice(documents), rng.randrange(8, 400)
        start = rng.randrange(len(ids) - length)
        prompts.append(ids[start : start + length])
    return prompts


def main() -> int:
    parser = argparse.ArgumentParser(description="See the module's docstring.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--modes", nargs="+", help="names that begin so; all by default")
    args = parser.parse_args()
    launches = {
        name: options
        for name, options in settings(args.model).items()
        if options.mode == "target-only" or name.startswith(tuple(args.modes or [""]))
    }
    prompts = read_prompts(args.model, args.prompts)
    params = greedy(args.new_tokens)
    plain: list[list[int]] | None = None
    failed = False
    for name, options in launches.items():
        for batch in (1, args.batch):
            seqs = generate(Runner.load(args.model, options), prompts, params, batch)
            ids = [seq.output_ids for seq in seqs]
            plain = plain or ids
            same = sum(a == b for a, b in zip(ids, plain, strict=True))
            verified = sum(seq.counters.verify_steps for seq in seqs)
            correct = sum(seq.counters.correct_drafts for seq in seqs)
            dead = options.mode != "target-only" and not correct
            failed |= same != len(ids) or dead
            length = f", accept length {1 + correct / verified:.2f}" if verified else ""
            print(
                f"{name:16} batch {batch}: {same} of {len(ids)} prompts x {args.new_tokens} tokens "
                f"the same; V {verified}, C {correct}{length}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
