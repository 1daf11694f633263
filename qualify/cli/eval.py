"""`qualify eval NAME --attach URL`: one evaluation of servers that already run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualify.cli.needle_options import given, needle_options
from qualify.cli.options import json_option
from qualify.cli.output import print_json
from qualify.cli.sandbox_options import cage_of, sandbox_options
from qualify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from qualify.cli.attached import Attached

REPORTS = Path("reports")
PROTOCOLS = ("openai", "vllm", "sglang", "llamacpp")


@click.command()
@click.argument("name")
@click.option(
    "--attach",
    multiple=True,
    metavar="[MODE=]URL",
    help="A server, and the mode that it decodes in. Several are compared with the first.",
)
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="openai", show_default=True)
@click.option("--chat", is_flag=True, help="Send messages; the server applies its own template.")
@click.option("--model", help="The model's name for the server, where it serves several.")
@click.option(
    "--tokenizer", metavar="PATH", help="Apply its chat template here and send token ids."
)
@click.option("--base", is_flag=True, help="Plain text, as for a base model, also with a template.")
@click.option("--problems", metavar="FILE", help="A local file instead of the set's own download.")
@click.option("--subset", metavar="SEED:N", help="A seeded part of the problems.")
@click.option("--output-tokens", type=click.IntRange(1), help="The most tokens of an answer.")
@click.option("--concurrency", type=click.IntRange(1), default=1, show_default=True)
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="The run's folder.")
@click.option("--resume", is_flag=True, help="Go on in --out; the command must be the same.")
@click.option(
    "--reference",
    is_flag=True,
    help="Score the reference solutions instead of a server's answers: all must pass.",
)
@needle_options
@sandbox_options
@json_option
def command(
    name: str,
    attach: tuple[str, ...],
    protocol: str,
    chat: bool,
    model: str | None,
    tokenizer: str | None,
    base: bool,
    problems: str | None,
    subset: str | None,
    output_tokens: int | None,
    concurrency: int,
    temperature: float,
    out: Path | None,
    resume: bool,
    reference: bool,
    sandbox: str,
    sandbox_image: str | None,
    unsafe_no_sandbox: bool,
    as_json: bool,
    **own: Any,
) -> int:
    """Ask the problems of NAME and score the answers.

    NAME is humaneval, mbpp, minicode, gsm8k or needles.

    Exit code: 0 no quality was lost, 1 a regression, 4 unfinished, 2 a wrong command,
    3 no server, 130 interrupted (--out FOLDER --resume goes on).
    """
    from qualify.cli.attached import Wanted, attached, sides_of
    from qualify.evals.kinds import all_kinds

    if chat and (base or tokenizer is not None or protocol not in ("openai", "vllm")):
        raise click.UsageError("--chat goes with --protocol openai, without --base or --tokenizer.")
    kinds = all_kinds(cage_of(sandbox, sandbox_image, unsafe_no_sandbox))
    wanted = Wanted(
        name=name,
        sides=sides_of(attach),
        protocol=protocol,
        style="server-chat" if chat else "base" if base else "auto",
        model=model,
        tokenizer=tokenizer,
        problems=problems,
        subset=subset,
        output_tokens=output_tokens,
        concurrency=concurrency,
        temperature=temperature,
        options=given(own),
    )
    prepared = attached(wanted, kinds)
    prepared.bench.preflight()
    if reference:
        return _reference(prepared, as_json=as_json)
    if not wanted.sides:
        raise click.UsageError("Name a server: --attach URL, or --attach MODE=URL.")
    if resume and out is None:
        raise click.UsageError("--resume needs the folder that it goes on in: --out FOLDER.")
    return _ask(prepared, out, resume=resume, as_json=as_json)


def _ask(prepared: Attached, out: Path | None, *, resume: bool, as_json: bool) -> int:
    from qualify.cli.report import finish
    from qualify.cli.run import progress_for
    from qualify.run.folders import new_run_folder
    from qualify.run.runner import run_campaign

    folder = out if out is not None else new_run_folder(REPORTS, f"eval-{prepared.name}")
    with progress_for(as_json) as watch:
        outcome = run_campaign(
            prepared.plan,
            out=folder,
            resume=resume,
            resolved=prepared.resolved,
            build=lambda spec: [],  # no cells, so no prompts but those of the problems
            watch=watch,
            bench=prepared.bench,
            tokenizer=prepared.tokenizer,
            start_timeout_s=60.0,
        )
    judged = finish(outcome.folder, as_json=as_json)
    if outcome.exit_code == ExitCode.INTERRUPTED:
        click.echo(f"Interrupted. The same command with --out {folder} --resume goes on.", err=True)
    return judged if outcome.exit_code is None else outcome.exit_code


def _reference(prepared: Attached, *, as_json: bool) -> int:
    """Every reference solution, written as an answer, through extraction and sandbox."""
    from qualify.evals.code import CodeKind, reference_scores

    (plan,) = prepared.bench.plans
    kind = prepared.bench.kinds[plan.id]
    if not isinstance(kind, CodeKind):
        raise UsageError(f"{plan.name} has no reference programs.", "Only code evaluations have.")
    problems = prepared.bench.sets[plan.id]
    told = []
    for problem, judged in reference_scores(kind, problems):
        told.append({"problem": problem.id, "base": judged.base, "plus": judged.plus})
        if not judged.plus:
            click.echo(f"{problem.id}: {judged.cause}: {judged.detail}", err=True)
        elif sys.stderr.isatty():
            click.echo(f"\r{len(told)} of {len(problems.problems)}", nl=False, err=True)
    base, plus = (sum(bool(t[k]) for t in told) for k in ("base", "plus"))
    if as_json:
        print_json({"problems": len(told), "base": base, "plus": plus, "each": told})
    else:
        of = len(told)
        click.echo(f"{plan.name}: {base} of {of} base, {plus} of {of} base and plus")
    return ExitCode.QUALIFIED if base == plus == len(told) else ExitCode.NOT_QUALIFIED
