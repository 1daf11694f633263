"""One rank against two (or more): prefill, decode, and whether the ids are the same.

    python benchmarks/specdec_tp.py                             # the fixture, on what there is
    python benchmarks/specdec_tp.py --model random --sizes 1 2  # a larger shape, random weights

CUDA devices with NCCL where there are as many as ranks, else the CPU with gloo, one thread a rank.
The ranks inherit this process's environment whole. Each size loads once, computes every cell twice
and counts the second time; a cell is `--batch` prompts of `--context` tokens read together and
decoded for `--new-tokens`. Prompts are ids by formula: the fixture's drafter is not at home there,
so MTP's speed says little, and its ids all the more.

Ends with 0; 1 when ids of one cell differ between sizes or modes; 3 when `--limit-s` was not
enough, with what was measured until then.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "engines" / "cuda"))

from safetensors.torch import save_file  # noqa: E402
from specdec.config import read_config  # noqa: E402
from specdec.contract import DecodeRunner, RunnerOptions  # noqa: E402
from specdec.parallel.launch import load_runner  # noqa: E402
from specdec.request import Phase, SamplingParams  # noqa: E402
from specdec.tensors import expected_tensors  # noqa: E402

FIXTURE = ROOT / "fixtures/models/tiny-qwen3.5"
SHAPE = {  # every size divides by 8; about 0.4 billion parameters with 16 layers
    "hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 32768,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "linear_num_key_heads": 8, "linear_num_value_heads": 16, "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One mode at one size. Rates are of all streams together."""

    mode: str
    ranks: int
    device: str
    context: int
    batch: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    step_ms: float
    tokens_per_step: float
    rank_tokens_compared: int | None
    ids: tuple[tuple[int, ...], ...]

    @property
    def place(self) -> tuple[int, int]:
        return self.context, self.batch

    def line(self) -> str:
        return (
            f"{self.mode:11} TP{self.ranks} {self.device:6} context {self.context:5} "
            f"batch {self.batch} | prefill {self.prefill_tokens_per_s:8.0f} tok/s | "
            f"decode {self.decode_tokens_per_s:7.1f} tok/s, step {self.step_ms:7.2f} ms x "
            f"{self.tokens_per_step:4.2f} tokens a stream"
        )


def measure(runner: DecodeRunner, mode: str, context: int, batch: int, new_tokens: int) -> Cell:
    """The second of two runs of a cell."""
    vocabulary = runner.info.vocab_size
    params = SamplingParams(max_new_tokens=new_tokens, temperature=0.0, ignore_eos=True)
    prompts = [
        [(i * i + 31 * i + 97 * n) % (vocabulary - 64) for i in range(context)]
        for n in range(batch)
    ]
    for _ in range(2):
        seqs = [runner.new_sequence(str(i), ids, params) for i, ids in enumerate(prompts)]
        begin = time.perf_counter()
        for seq in seqs:
            runner.admit(seq)
            while seq.phase is Phase.PREFILL:
                runner.prefill_step([seq])
        middle = time.perf_counter()
        steps = 0
        while going := [seq for seq in seqs if seq.phase is Phase.DECODE]:
            runner.decode_step(going)
            steps += 1
        end = time.perf_counter()
    decoded = sum(len(seq.output_ids) - 1 for seq in seqs)
    parity = runner.rank_parity
    return Cell(
        mode,
        runner.info.tp_size,
        runner.info.device,
        context,
        batch,
        batch * context / (middle - begin),
        decoded / (end - middle),
        1000 * (end - middle) / steps,
        decoded / steps / batch,
        None if parity is None else parity.tokens,
        tuple(tuple(seq.output_ids) for seq in seqs),
    )


def random_checkpoint(folder: Path, layers: int) -> Path:
    """A checkpoint of the fixture's kind and of ``SHAPE``, BF16, every weight random."""
    config = json.loads((FIXTURE / "config.json").read_text("utf-8"))
    folder.mkdir()
    types = (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4)
    shape = {**SHAPE, "layer_types": types, "num_hidden_layers": len(types)}
    (folder / "config.json").write_text(json.dumps({**config, **shape}), "utf-8")
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for expected in expected_tensors(read_config(folder)):
        scale = 0.1 if len(expected.shape) == 1 else expected.shape[-1] ** -0.5
        values = torch.randn(expected.shape, generator=generator) * scale
        own = expected.name.startswith(("mtp.", "lm_head."))
        tensors[expected.name if own else f"model.{expected.name}"] = values.bfloat16()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def differing(cells: list[Cell]) -> list[str]:
    """Sentences about cells whose ids are not those of the first one in their place."""
    first: dict[tuple[int, int], Cell] = {}
    said = []
    for cell in cells:
        base = first.setdefault(cell.place, cell)
        apart = sum(a != b for a, b in zip(cell.ids, base.ids, strict=True))
        if apart:
            said.append(
                f"{cell.mode} TP{cell.ranks}, context {cell.context}, batch {cell.batch}: "
                f"{apart} of {cell.batch} outputs differ from {base.mode} TP{base.ranks}"
            )
    return said


def report(cells: list[Cell], out: Path | None) -> int:
    """Ratios and the verdict on ids; returns the exit code."""
    one = {(c.mode, c.place): c for c in cells if c.ranks == 1}
    for cell in cells:
        base = one.get((cell.mode, cell.place))
        if cell.ranks > 1 and base is not None:
            print(
                f"{cell.mode:11} TP{cell.ranks} over TP1, context {cell.context}, batch "
                f"{cell.batch}: prefill {cell.prefill_tokens_per_s / base.prefill_tokens_per_s:.2f}"
                f"x, decode {cell.decode_tokens_per_s / base.decode_tokens_per_s:.2f}x"
            )
    said = differing(cells)
    if not cells:
        print("Nothing was measured.")
        return 1
    print("\n".join(said) if said else f"The ids are the same in all {len(cells)} cells.")
    if out is not None:
        told = [{k: v for k, v in asdict(c).items() if k != "ids"} for c in cells]
        out.write_text(json.dumps({"cells": told, "differing": said}, indent=1), "utf-8")
    return 1 if said else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(FIXTURE), help="a folder, or `random`")
    parser.add_argument("--layers", type=int, default=16, help="of the random one, a multiple of 4")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--modes", nargs="+", default=["target-only", "mtp"])
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--json", type=Path, help="write the cells there")
    asked = parser.parse_args()
    cells: list[Cell] = []
    over = threading.Timer(asked.limit_s, _out_of_time, (cells, asked.json, asked.limit_s))
    over.daemon = True
    over.start()
    names = ("NCCL", "TORCH_SYMM", "NVSHMEM", "CUDA_VISIBLE", "OMP_NUM")
    env = {name: value for name, value in sorted(os.environ.items()) if name.startswith(names)}
    print(f"torch {torch.__version__}, {torch.cuda.device_count()} CUDA devices, {env}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        if asked.model == "random":
            folder = random_checkpoint(Path(scratch) / "model", asked.layers)
        else:
            folder = Path(asked.model)
        for size in asked.sizes:
            for mode in asked.modes:
                _one_size(folder, size, mode, asked, cells)
    over.cancel()
    return report(cells, asked.json)


def _one_size(
    folder: Path, size: int, mode: str, asked: argparse.Namespace, cells: list[Cell]
) -> None:
    begin = time.perf_counter()
    longest = max(asked.contexts) + asked.new_tokens
    pages = -(-(longest + 8) // 64) * 64
    enough = torch.cuda.device_count() >= max(asked.sizes)
    device = asked.device if asked.device != "auto" else ("cuda" if enough else "cpu")
    options = RunnerOptions(
        mode=mode,  # type: ignore[arg-type]
        device=device,
        draft_steps=3 if mode == "mtp" else None,
        max_running_requests=max(asked.batches),
        context_length=longest,
        max_total_tokens=pages * max(asked.batches),
        threads=1 if device == "cpu" else None,
        tp_size=size,
    )
    with closing(load_runner(folder, options, log_level="warning")) as runner:
        seconds = time.perf_counter() - begin
        detail = runner.info.invariance.detail
        print(f"{mode} TP{size} on {runner.info.device} in {seconds:.1f} s: {detail}", flush=True)
        for context in asked.contexts:
            for batch in asked.batches:
                cells.append(measure(runner, mode, context, batch, asked.new_tokens))
                print(cells[-1].line(), flush=True)


def _out_of_time(cells: list[Cell], out: Path | None, limit_s: float) -> None:
    print(f"{limit_s:g} s are over; what was measured until now:", flush=True)
    report(list(cells), out)
    sys.stdout.flush()
    os._exit(3)  # the ranks end with this process


if __name__ == "__main__":
    raise SystemExit(main())
