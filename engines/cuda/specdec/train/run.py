"""Train and evaluate the checkpoint in one command, from prepared data.

    python -m specdec.train.run --data DIR --work DIR [--recipe published|smoke] [--out DIR]
        [--stage target|mtp|tune|mtp-tune|evaluate|all] [--init CHECKPOINT]
        [--max-seconds S] [--threads N] [--workers N]

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
from specdec.train.export import load_weights, round_to_bf16, write_config, write_weights
from specdec.train.loop import Place, train_mtp, train_target
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead, MtpStages
from specdec.train.recipe import RECIPES, Recipe
from specdec.train.stages import Stages, stages
from specdec.train.vocabulary import Encoder
from torch import nn

STAGES = ("target", "mtp", "tune", "mtp-tune", "evaluate")
UNFINISHED = 75
SHARD_BYTES = 15 * 2**20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--init", type=Path, help="start from this checkpoint's weights")
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="published")
    parser.add_argument("--stage", default="all", help="one of them, several by comma, or all")
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--steps-per-phase", type=int, help="shorten every phase (a trial)")
    parser.add_argument("--recall-lengths", default="1024,2048,4096,8192")
    parser.add_argument("--recall-prompts", type=int, default=10)
    parser.add_argument("--chat-prompts", type=int, default=64)
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
    if options.init is not None:
        load_weights([options.init / "model.safetensors"], model, head)
    wanted = STAGES if options.stage == "all" else tuple(options.stage.split(","))
    unknown = sorted(set(wanted) - set(STAGES))
    if unknown:
        raise SystemExit(f"There is no stage {', '.join(unknown)}; use {', '.join(STAGES)} or all.")
    finished = True
    for stage in wanted:
        finished = finished and run_stage(stage, place, recipe, model, head, run, compiled, options)
        if stage != "evaluate":
            save_compile_cache(options.compile_cache if compiled else None)
            write_weights(out, model, None if stage == "target" else head, SHARD_BYTES)
    write_config(out, recipe.shape, Encoder(options.data / "tokenizer.json"))
    peak = torch.cuda.max_memory_allocated() if cuda else None
    place.note(finished=finished, seconds=round(time.monotonic() - began, 1), gpu_peak_bytes=peak)
    return 0 if finished else UNFINISHED


def run_stage(
    stage: str,
    place: Place,
    recipe: Recipe,
    model: HybridModel,
    head: MtpHead,
    run: Stages,
    compiled: bool,
    options: argparse.Namespace,
) -> bool:
    """One stage from the newest state of the stages before it; True when it is finished."""
    newest(place, ("tune", "target") if stage != "target" else (), model)
    newest(place, ("mtp-tune", "mtp") if stage != "mtp" else (), head)
    if stage in ("target", "tune"):
        finished = train_target(place, recipe, model, run, compiled, tune=stage == "tune")
        round_to_bf16(model)
        return finished
    round_to_bf16(model)
    if stage in ("mtp", "mtp-tune"):
        mtp_run = MtpStages.make(compiled)
        tune = stage == "mtp-tune"
        finished = train_mtp(place, recipe, model, head, run, mtp_run, tune=tune)
        round_to_bf16(head)
        return finished
    round_to_bf16(head)
    evaluate_all(place, options, model, head, stages(False))
    return True


def newest(place: Place, kinds: tuple[str, ...], module: nn.Module) -> None:
    """Load the first of these states that exists; without one the module stays as it is."""
    for kind in kinds:
        path = place.state / f"{kind}.pt"
        if path.exists():
            state = torch.load(path, map_location=place.device, weights_only=False)
            module.load_state_dict(state["module"])
            return


def evaluate_all(
    place: Place,
    options: argparse.Namespace,
    model: HybridModel,
    head: MtpHead,
    run: Stages,
) -> None:
    figures = evaluate.report(
        model,
        head,
        place.data,
        run,
        recall_lengths=[int(part) for part in options.recall_lengths.split(",") if part],
        prompts=options.recall_prompts,
        chat_prompts=options.chat_prompts,
        filler=read_stream(options.filler) if options.filler else None,
        note=place.note,
    )
    (place.log.parent / "evaluation.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
