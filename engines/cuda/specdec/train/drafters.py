"""Train block drafters for a trained target in one command.

    python -m specdec.train.drafters --data DIR --target CHECKPOINT --work DIR
        [--kind dflash2|dspark|both] [--recipe published|smoke] [--out DIR]
        [--stage generate|train|evaluate|all] [--init DIR]
        [--generate-seconds S] [--train-seconds S] [--max-seconds S]

``generate`` lets the target continue stretches of training text, ``train`` learns on those,
``evaluate`` counts accepted drafts on the target's held-out prompts. State goes to ``--work``; the
same command again continues where the last one stopped. ``--out`` gets a checkpoint folder for each
kind. ``--init``: folders of checkpoints to start from. Exit code 0: finished; 75: the time limit
came first (run it again).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file, save_file
from specdec.train.continuations import Plan, PromptPlan, continue_round
from specdec.train.drafter_accept import accept_length
from specdec.train.drafter_heads import DFlash2, DSpark, make
from specdec.train.drafter_loop import DraftRecipe, train_drafters
from specdec.train.drafter_shape import SHAPES, Kind
from specdec.train.export import load_weights, round_to_bf16
from specdec.train.loop import Place
from specdec.train.model import HybridModel
from specdec.train.shape import ModelShape
from specdec.train.stages import stages
from specdec.train.vocabulary import Encoder
from specdec.train.workloads import workloads
from torch.utils.data import DataLoader

UNFINISHED = 75
PLANS = {
    "published": (Plan(512, 3072), Plan(1024, 2048)),
    "smoke": (Plan(128, 8, fresh=64), Plan(192, 8, fresh=64)),
}
RECIPES = {
    "published": DraftRecipe(),
    "smoke": DraftRecipe(steps=6, tokens=512, blocks=32, warmup=2),
}
ROUNDS = {"published": 2, "smoke": 3}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--kind", choices=(*SHAPES, "both"), default="both")
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="published")
    parser.add_argument("--stage", choices=("generate", "train", "evaluate", "all"), default="all")
    parser.add_argument("--init", type=Path, help="start from the checkpoints in this folder")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", help="of the prompts; another one gives other text")
    parser.add_argument("--generate-seconds", type=float, default=math.inf)
    parser.add_argument("--train-seconds", type=float, default=math.inf)
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--prompts", type=int, default=16, help="a workload, to evaluate on")
    return parser.parse_args()


def main() -> int:
    began = time.monotonic()
    options = arguments()
    cuda = torch.cuda.is_available()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    out: Path = options.out or options.work / "checkpoints"
    out.mkdir(parents=True, exist_ok=True)
    place = Place(
        data=options.data,
        state=options.work,
        log=out / "training-log.jsonl",
        device=torch.device("cuda" if cuda else "cpu"),
        workers=options.workers,
        deadline=began + options.max_seconds,
    )
    recipe = RECIPES[options.recipe]
    recipe = replace(recipe, steps=options.steps or recipe.steps)
    torch.manual_seed(recipe.seed)
    dtype = torch.bfloat16 if cuda else torch.float32
    model = HybridModel(ModelShape(), dtype).to(place.device)
    load_weights([options.target / "model.safetensors"], model, None)
    kinds = list(SHAPES) if options.kind == "both" else [cast(Kind, options.kind)]
    drafters = [make(SHAPES[kind], dtype).to(place.device) for kind in kinds]
    if options.init is not None:
        for drafter in drafters:
            stored = load_file(options.init / drafter.shape.kind / "model.safetensors")
            drafter.load_state_dict({name: value.float() for name, value in stored.items()})
    stage, finished = options.stage, True
    if stage in ("generate", "all"):
        generate(place, options, model, recipe)
    if stage in ("train", "all"):
        rounds = sorted(place.state.glob("round-*.pt"))
        run = stages(cuda and not options.no_compile)
        finished = train_drafters(
            place, recipe, model, drafters, rounds, run, options.train_seconds
        )
        for drafter in drafters:
            write(out / drafter.shape.kind, drafter)
    if stage in ("evaluate", "all"):
        evaluate(place, options, model, drafters)
    peak = torch.cuda.max_memory_allocated() if cuda else None
    place.note(finished=finished, seconds=round(time.monotonic() - began, 1), gpu_peak_bytes=peak)
    return 0 if finished else UNFINISHED


def generate(
    place: Place, options: argparse.Namespace, model: HybridModel, recipe: DraftRecipe
) -> None:
    """Continue prompts round by round; rounds that lie in the work folder are kept."""
    began = time.monotonic()
    count = options.rounds or ROUNDS[options.recipe]
    seed = f"{recipe.seed}/{options.seed or 'prompts'}"
    plans = PLANS[options.recipe]
    plan = PromptPlan(place.data, plans, count, seed, model.shape.max_positions)
    made = len(list(place.state.glob("round-*.pt")))
    todo = torch.utils.data.Subset(plan, range(made, count))
    loader = DataLoader(todo, batch_size=None, num_workers=place.workers)
    for number, given in enumerate(loader, made):
        start = time.monotonic()
        done = continue_round(model, given)
        done.save(place.state / f"round-{number:03d}.pt")
        now = time.monotonic()
        own = int((done.ids.shape[1] - done.starts).sum())
        sizes = {"sequences": len(done.ids), "length": done.ids.shape[1], "own_tokens": own}
        place.note(kind="generate", round=number, **sizes, seconds=round(now - start, 2))
        if now - began > options.generate_seconds:
            return


def write(folder: Path, drafter: DFlash2 | DSpark) -> None:
    """The checkpoint: BF16 tensors and ``config.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in drafter.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.dumps(drafter.shape.hf_config(), indent=2) + "\n"
    (folder / "config.json").write_text(config)


def evaluate(
    place: Place,
    options: argparse.Namespace,
    model: HybridModel,
    drafters: list[DFlash2 | DSpark],
) -> None:
    """Accept length on the target's held-out prompts, with the weights as stored."""
    encode = Encoder(options.target / "tokenizer.json")
    for drafter in drafters:
        round_to_bf16(drafter)
    for name, prompts in workloads(encode, options.target, options.prompts, 512).items():
        found = accept_length(model, drafters, [prompt.ids for prompt in prompts], 96)
        for kind, figures in found.items():
            place.note(kind=kind, workload=name, **figures)


if __name__ == "__main__":
    raise SystemExit(main())
