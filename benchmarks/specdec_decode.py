"""Decode and prefill speed of the bundled engine beside `transformers`, same weights, same run.

    python benchmarks/specdec_decode.py fixtures/models/tiny-qwen3.5
    python benchmarks/specdec_decode.py random --contexts 512 --batches 1   # the shape alone

Prints one line a cell as it goes, then the ratios. Prompts are text that the checkpoint was not
trained on, from its `heldout.jsonl` (`--domain`, default code) or from `--text` files, tokenised by
its own tokenizer; with `random`, a checkpoint of the same kind with random weights and random
tokens, whose acceptance says nothing. `--drafters` adds the modes dflash2 (its block whole, and
with adaptive widths under `--adaptive`) and dspark, with the checkpoints in the folders beside the
model's of its name and `-dflash2`, `-dspark`.

Each cell is warmed up once. The engine's decode time is that of its decode steps alone.
`transformers` decodes with `generate` and its default (dynamic) cache, which is the fastest that
its hybrid classes take; its decode time is `generate` of N + 1 tokens less `generate` of 1.
Both run in FP32 on the same number of threads. Greedy, the end token ignored by both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "engines" / "cuda"))

from specdec.contract import RunnerOptions  # noqa: E402
from specdec.request import Phase, SamplingParams  # noqa: E402
from specdec.runner import Runner  # noqa: E402


@dataclass(frozen=True)
class Cell:
    """What one setting did in one cell."""

    name: str
    context: int
    batch: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    step_ms: float
    tokens_per_step: float
    draft_ms: float | None = None
    verify_ms: float | None = None
    draft_match_rate: float | None = None
    ids: tuple[tuple[int, ...], ...] = ()

    def line(self) -> str:
        parts = [
            f"{self.name:16} context {self.context:5} batch {self.batch}",
            f"prefill {self.prefill_tokens_per_s:8.0f} tok/s",
            f"decode {self.decode_tokens_per_s:7.1f} tok/s",
            f"step {self.step_ms:6.2f} ms x {self.tokens_per_step:4.2f} tokens a stream",
        ]
        if self.draft_ms is not None:
            parts.append(f"draft {self.draft_ms:5.2f} ms, verify {self.verify_ms:5.2f} ms")
            rate = "none" if self.draft_match_rate is None else f"{self.draft_match_rate:.2f}"
            parts.append(f"draft match rate {rate}")
        return " | ".join(parts)


def engine_cell(name: str, runner: Runner, prompts: list[list[int]], new_tokens: int) -> Cell:
    """Prefill and decode the prompts together; the second of two runs counts."""
    for _ in range(2):
        params = SamplingParams(max_new_tokens=new_tokens + 1, temperature=0.0, ignore_eos=True)
        seqs = [runner.new_sequence(str(i), ids, params) for i, ids in enumerate(prompts)]
        for seq in seqs:
            runner.admit(seq)
        begin = time.perf_counter()
        for seq in seqs:
            while seq.phase is Phase.PREFILL:
                runner.prefill_step([seq])
        middle = time.perf_counter()
        steps = 0
        while running := [seq for seq in seqs if seq.phase is Phase.DECODE]:
            runner.decode_step(running)
            steps += 1
        end = time.perf_counter()
    decoded = sum(len(seq.output_ids) - 1 for seq in seqs)
    stream_steps = sum(s.counters.verify_steps + s.counters.plain_tokens for s in seqs)
    proposed = sum(seq.counters.proposed_drafts for seq in seqs)
    correct = sum(seq.counters.correct_drafts for seq in seqs)
    longest = max(seqs, key=lambda seq: seq.counters.verify_s)
    speculative = runner.info.mode != "target-only"
    return Cell(
        name=name,
        context=len(prompts[0]),
        batch=len(prompts),
        prefill_tokens_per_s=sum(len(ids) for ids in prompts) / (middle - begin),
        decode_tokens_per_s=decoded / (end - middle),
        step_ms=(end - middle) / steps * 1e3,
        tokens_per_step=decoded / stream_steps,
        draft_ms=longest.counters.draft_s / steps * 1e3 if speculative else None,
        verify_ms=longest.counters.verify_s / steps * 1e3 if speculative else None,
        draft_match_rate=correct / proposed if proposed else None,
        ids=tuple(tuple(seq.output_ids) for seq in seqs),
    )


def transformers_cell(model, prompts: list[list[int]], new_tokens: int) -> Cell:  # type: ignore[no-untyped-def]
    """`generate` on the same prompts; the better of two runs for each of its two lengths."""
    ids = torch.tensor(prompts)
    mask = torch.ones_like(ids)

    def seconds(count: int) -> tuple[float, torch.Tensor]:
        begin = time.perf_counter()
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count,
            do_sample=False, use_cache=True, pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
        return time.perf_counter() - begin, out[:, ids.shape[1] :]

    model.generate(ids[:, :64], max_new_tokens=4, do_sample=False, pad_token_id=0)
    first = min(seconds(1)[0] for _ in range(2))
    whole, out = seconds(new_tokens + 1)
    decode = max(whole - first, 1e-9)
    return Cell(
        name="transformers",
        context=ids.shape[1],
        batch=ids.shape[0],
        prefill_tokens_per_s=ids.numel() / first,
        decode_tokens_per_s=ids.shape[0] * new_tokens / decode,
        step_ms=decode / new_tokens * 1e3,
        tokens_per_step=1.0,
        ids=tuple(tuple(row) for row in out.tolist()),
    )


def random_checkpoint(folder: Path) -> Path:
    """A hybrid of about 13 M parameters with random weights, saved by `transformers`."""
    sys.path.insert(0, str(ROOT / "tests" / "specdec"))
    from checkpoints import random_model, save_checkpoint

    model = random_model(
        0, vocab_size=4096, hidden_size=320, intermediate_size=896, num_hidden_layers=8,
        num_attention_heads=4, num_key_value_heads=1, head_dim=128, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=128, linear_value_head_dim=128,
        tie_word_embeddings=True, max_position_embeddings=16384, eos_token_id=0,
    )  # fmt: skip
    return save_checkpoint(folder, model)


def read_texts(folder: Path, domain: str, files: list[Path]) -> list[str]:
    """The named files, or the checkpoint's held-out documents of a domain."""
    if files:
        return [path.read_text(encoding="utf-8", errors="replace") for path in files]
    lines = (folder / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["text"] for row in map(json.loads, lines) if row["domain"] == domain]


def read_prompts(
    folder: Path, domain: str, files: list[Path], longest: int, count: int
) -> list[list[int]]:
    """`count` prompts of `longest` ids: documents in turn, joined to the length; or random ids."""
    if not (folder / "tokenizer.json").is_file():
        generator = torch.Generator().manual_seed(0)
        return torch.randint(1, 4000, (count, longest), generator=generator).tolist()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = read_texts(folder, domain, files)
    documents = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    prompts: list[list[int]] = []
    for i in range(count):
        ids: list[int] = []
        turn = i
        while len(ids) < longest:
            ids += documents[turn % len(documents)]
            turn += 1
        prompts.append(ids[:longest])
    return prompts


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="See the module's docstring.")
    parser.add_argument("model", help="checkpoint folder, or `random`")
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--draft-steps", type=int, nargs="+", default=[3])
    parser.add_argument("--adaptive", action="store_true", help="also with adaptive widths")
    parser.add_argument("--drafters", action="store_true", help="also dflash2 and dspark")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--domain", default="code", help="of the checkpoint's held-out documents")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="files for prompts")
    parser.add_argument("--no-transformers", action="store_true")
    parser.add_argument("--json", type=Path, default=None, help="write the cells here too")
    return parser.parse_args(words)


def settings(args: argparse.Namespace) -> dict[str, RunnerOptions]:
    """The engine's launches under test, by name."""
    room = max(args.contexts) + args.new_tokens + 128
    common = {
        "device": "cpu",
        "threads": args.threads,
        "max_running_requests": max(args.batches),
        "max_total_tokens": max(args.batches) * room,
    }
    found = {"target-only": RunnerOptions(**common)}
    for steps in args.draft_steps:
        found[f"mtp k={steps}"] = RunnerOptions(mode="mtp", draft_steps=steps, **common)
    if args.adaptive:
        found["mtp adaptive"] = RunnerOptions(
            mode="mtp", draft_steps=max(args.draft_steps), adaptive=True, **common
        )
    if args.drafters:
        blocks, sparks = (Path(f"{args.model}-{kind}") for kind in ("dflash2", "dspark"))
        found["dflash2"] = RunnerOptions(mode="dflash2", draft_model=blocks, **common)
        if args.adaptive:
            found["dflash2 adaptive"] = RunnerOptions(
                mode="dflash2", draft_model=blocks, adaptive=True, **common
            )
        found["dspark"] = RunnerOptions(mode="dspark", draft_model=sparks, **common)
    return found


def ratios(cells: list[Cell]) -> list[str]:
    """Each cell against target-only and transformers, with the break-even accept length."""
    lines = []
    by_key = {(cell.name, cell.context, cell.batch): cell for cell in cells}
    for cell in cells:
        plain = by_key.get(("target-only", cell.context, cell.batch))
        other = by_key.get(("transformers", cell.context, cell.batch))
        if cell.name == "transformers" or plain is None:
            continue
        words = f"{cell.name:16} context {cell.context:5} batch {cell.batch}:"
        if cell is plain and other is not None:
            words += (
                f" decode {cell.decode_tokens_per_s / other.decode_tokens_per_s:.2f}x and prefill "
                f"{cell.prefill_tokens_per_s / other.prefill_tokens_per_s:.2f}x transformers"
            )
            same = sum(a == b for a, b in zip(cell.ids, other.ids, strict=True))
            words += f"; {same} of {cell.batch} outputs the same"
        elif cell is not plain:
            words += (
                f" decode {cell.decode_tokens_per_s / plain.decode_tokens_per_s:.2f}x target-only; "
                f"{cell.tokens_per_step:.2f} tokens a step, break-even at "
                f"{cell.step_ms / plain.step_ms:.2f}; ids "
                f"{'equal' if cell.ids == plain.ids else 'DIFFERENT'}"
            )
        lines.append(words)
    return lines


def main() -> int:
    args = parse()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = random_checkpoint(Path(scratch)) if args.model == "random" else Path(args.model)
        prompts = read_prompts(
            folder, args.domain, args.text, max(args.contexts), max(args.batches)
        )
        runners = {name: Runner.load(folder, options) for name, options in settings(args).items()}
        print(f"command: {' '.join(sys.argv)}; load average {os.getloadavg()[0]:.1f}")
        print(next(iter(runners.values())).info.invariance.detail)
        model = None
        if not args.no_transformers:
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        cells: list[Cell] = []
        for context in args.contexts:
            for batch in args.batches:
                part = [ids[:context] for ids in prompts[:batch]]
                for name, runner in runners.items():
                    cells.append(engine_cell(name, runner, part, args.new_tokens))
                    print(cells[-1].line(), flush=True)
                if model is not None:
                    cells.append(transformers_cell(model, part, args.new_tokens))
                    print(cells[-1].line(), flush=True)
    print("\n".join(ratios(cells)))
    if args.json:
        rows = [{k: v for k, v in vars(cell).items() if k != "ids"} for cell in cells]
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
