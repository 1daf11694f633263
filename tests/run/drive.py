"""A whole small campaign on the scripted engine, as a function and as a program.

`python -m tests.run.drive FOLDER [--resume] [--step-ms N] [ENGINE OPTIONS]` runs it, so that
tests can interrupt and kill it like a user would.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from qualify.engines.protocol import Sampling
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.spec import load_engine
from qualify.plan import CellPlan, LaunchPlan, Plan, Side
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.run import events as e
from qualify.run.progress import line
from qualify.run.runner import RunOutcome, run_campaign

ROOT = Path(__file__).parents[2]
OUTPUT_TOKENS = 8


def spec(
    workload: str, tokens: int = 48, count: int = 3, stream: str = "measured", turns: int = 1
) -> PromptSpec:
    return PromptSpec("drive", workload, "made", tokens, count, 0, stream, turns)


def build(spec: PromptSpec) -> list[Prompt]:
    """Ids from a hash of what the spec names; in a session each turn extends the last."""
    prompts = []
    for index in range(spec.count):
        key = f"{spec.workload}/{spec.stream}/{index}".encode()
        stream = hashlib.shake_256(key).digest(2 * spec.tokens * spec.turns)
        ids = [
            3 + int.from_bytes(stream[i : i + 2], "little") % 4000 for i in range(0, len(stream), 2)
        ]
        for turn in range(spec.turns):
            mine = tuple(ids[: spec.tokens * (turn + 1)])
            text = "".join(f" w{i}" for i in mine)
            prompts.append(
                Prompt(
                    id=f"{spec.workload}@{spec.tokens}/{spec.stream}/{index}.{turn}",
                    ids=mine,
                    text=text,
                    text_exact=True,
                    sha256=hashlib.sha256(text.encode()).hexdigest(),
                    compress_ratio=0.5,
                    klass="natural",
                    index=index,
                    turn=turn,
                    shared_prefix=spec.tokens * turn,
                )
            )
    return prompts


def cell(
    workload: str,
    *,
    tokens: int = 48,
    count: int = 3,
    warmup: int = 1,
    concurrency: int = 1,
    cache: str = "cold",
    turns: int = 1,
    first_token_timeout_s: float = 20.0,
) -> CellPlan:
    return CellPlan(
        id=f"{workload}@{tokens}/c{concurrency}",
        workload=workload,
        prompts=spec(workload, tokens, count, turns=turns),
        warmup=spec(workload, tokens, warmup, "warmup") if warmup else None,
        sampling=Sampling(OUTPUT_TOKENS),
        concurrency=concurrency,
        cache=cache,
        until="length",
        first_token_timeout_s=first_token_timeout_s,
    )


def plan(
    cells: Sequence[CellPlan], sides: Sequence[str] = ("target-only",), hash_: str = "h"
) -> Plan:
    launches = tuple(
        LaunchPlan(f"r1.{name}", 1, Side(name, name, None, {}, {}), tuple(cells)) for name in sides
    )
    return Plan(
        hash=hash_,
        campaign={"campaign": "drive"},
        engine={},
        identity={"campaign": hash_},
        baseline=sides[0],
        pairs=tuple((sides[0], other) for other in sides[1:]),
        launches=launches,
        checks={},
    )


def engine(
    folder: Path,
    *options: str,
    dialect: str = "sglang",
    spec_options: Sequence[str] = ("--accept", "3,0,2"),
    url: str | None = None,
) -> Callable[[str], ResolvedLaunch]:
    """Definition of a scripted engine with modes target-only and mtp -> its resolver."""
    argv = ["{python}", "-m", "tests.scripted_engine", "--port", "{port}", "--model", "{alias}"]
    argv += ["--dialect", dialect, *options, "{args}"]
    quoted = ", ".join(f"'{part}'" for part in argv)
    mtp = ", ".join(
        f"{k.removeprefix('--')}: '{v}'" for k, v in zip(*[iter(spec_options)] * 2, strict=True)
    )
    file = folder / "engine.yaml"
    file.write_text(
        f"name: scripted\nprotocol: {dialect}\nalias: scripted\n"
        f"launch:\n  process: {{argv: [{quoted}], cwd: {ROOT}}}\n"
        "modes:\n  target-only: {drafter: none}\n"
        f"  mtp: {{drafter: model, args: {{{mtp}}}}}\n"
        "grace: {stop_s: 5, flush_s: 3}\n"
    )
    definition = load_engine(file)
    return lambda mode: resolve(definition, mode, attach_url=url)


def drive(
    folder: Path,
    the_plan: Plan,
    resolver: Callable[[str], ResolvedLaunch],
    *,
    resume: bool = False,
    watch: e.Watcher = e.unwatched,
) -> RunOutcome:
    sides = {launch.side.name for launch in the_plan.launches}
    return run_campaign(
        the_plan,
        out=folder,
        resume=resume,
        resolved={name: resolver(name) for name in sides},
        build=build,
        watch=watch,
        start_timeout_s=20.0,
    )


CAMPAIGN = (cell("prose"), cell("code", concurrency=2, count=4), cell("copy", warmup=0))
SIDES = ("target-only", "mtp")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--step-ms", default="5")
    options, more = parser.parse_known_args()
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    resolver = engine(options.folder.parent, "--step-ms", options.step_ms, *more)

    def say(event: e.Event) -> None:
        if (text := line(event)) is not None:
            print(text, flush=True)

    outcome = drive(
        options.folder, plan(CAMPAIGN, SIDES), resolver, resume=options.resume, watch=say
    )
    return int(outcome.exit_code or 0)


if __name__ == "__main__":
    sys.exit(main())
