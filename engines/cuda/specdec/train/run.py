"""Train and evaluate the checkpoint in one command, from prepared data.

    python -m specdec.train.run --data DIR --work DIR [--recipe published|smoke] [--out DIR]
        [--stage target|mtp|evaluate|all] [--max-seconds S] [--threads N] [--workers N]

State goes to ``--work``; the same command again continues where the last one stopped. Exit code
0: the stages asked for are finished; 75: the time limit came first (run it again).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from specdec.train import evaluate
from specdec.train.batches import read_stream
from specdec.train.export import round_to_bf16, write_config, write_weights
from specdec.train.loop import Place, train_mtp, train_target
from specdec.train.model import HybridModel, Stages, stages
from specdec.train.mtp import MtpHead, MtpStages
from specdec.train.recipe import RECIPES
from specdec.train.vocabulary import Encoder

UNFINISHED = 75
SHARD_BYTES = 15 * 2**20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="published")
    parser.add_argument("--stage", choices=("target", "mtp", "evaluate", "all"), default="all")
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--steps-per-phase", type=int, help="shorten every phase (a trial)")
    parser.add_argument("--recall-lengths", default="1024,2048,4096,8192")
    parser.add_argument("--recall-prompts", type=int, default=10)
    parser.add_argument("--filler", type=Path, help="token stream for recall beyond the held-out")
    parser.add_argument("--compile-cache", type=Path)
    return parser.parse_args()


def load_compile_cache(path: Path | None) -> None:
    if path is not None and path.exists():
        torch.compiler.load_cache_artifacts(path.read_bytes())


def save_compile_cache(path: Path | None) -> None:
    saved = torch.compiler.save_cache_artifacts() if path is not None else None
    if path is not None and saved is not None:
        path.write_bytes(saved[0])


def main() -> int:
    began = time.monotonic()
    options = arguments()
    recipe = RECIPES[options.recipe]
    if options.steps_per_phase:
        recipe = recipe.limited(options.steps_per_phase)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    compiled = cuda and not options.no_compile
    load_compile_cache(options.compile_cache if compiled else None)
    options.work.mkdir(parents=True, exist_ok=True)
    out: Path = options.out or options.work / "checkpoint"
    out.mkdir(parents=True, exist_ok=True)
    place = Place(
        data=options.data,
        state=options.work,
        log=out / "train-log.jsonl",
        device=device,
        workers=options.workers,
        deadline=began + options.max_seconds,
    )
    torch.manual_seed(recipe.seed)
    dtype = torch.bfloat16 if cuda else torch.float32
    model = HybridModel(recipe.shape, dtype).to(device)
    head = MtpHead(recipe.shape).to(device)
    run = stages(compiled)
    finished = True
    if options.stage in ("target", "all"):
        finished = train_target(place, recipe, model, run, compiled)
        save_compile_cache(options.compile_cache if compiled else None)
        write_weights(out, model, None, SHARD_BYTES)
    if finished and options.stage in ("mtp", "all"):
        load_target(options.work / "target.pt", model, device)
        round_to_bf16(model)
        finished = train_mtp(place, recipe, model, head, run, MtpStages.make(compiled))
        round_to_bf16(head)
        write_weights(out, model, head, SHARD_BYTES)
    write_config(out, recipe.shape, Encoder(options.data / "tokenizer.json"))
    if finished and options.stage in ("evaluate", "all"):
        load_target(options.work / "target.pt", model, device)
        round_to_bf16(model)
        trained_head = load_head(options.work / "mtp.pt", head, device)
        evaluate_all(place, options, model, trained_head, stages(False), out)
    peak = torch.cuda.max_memory_allocated() if cuda else None
    place.note(finished=finished, seconds=round(time.monotonic() - began, 1), gpu_peak_bytes=peak)
    return 0 if finished else UNFINISHED


def load_target(path: Path, model: HybridModel, device: torch.device) -> None:
    model.load_state_dict(torch.load(path, map_location=device, weights_only=False)["module"])


def load_head(path: Path, head: MtpHead, device: torch.device) -> MtpHead | None:
    """The trained MTP head, or None when there is none yet."""
    if not path.exists():
        return None
    head.load_state_dict(torch.load(path, map_location=device, weights_only=False)["module"])
    round_to_bf16(head)
    return head


def evaluate_all(
    place: Place,
    options: argparse.Namespace,
    model: HybridModel,
    head: MtpHead | None,
    run: Stages,
    out: Path,
) -> None:
    figures = evaluate.report(
        model,
        head,
        place.data,
        run,
        recall_lengths=[int(part) for part in options.recall_lengths.split(",") if part],
        prompts=options.recall_prompts,
        filler=read_stream(options.filler) if options.filler else None,
        note=place.note,
    )
    (out / "evaluation.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
