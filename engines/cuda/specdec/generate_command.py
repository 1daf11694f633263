"""`specdec generate`: one request, its answer and how long its two halves took."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.errors import RequestRefused, SpecdecError
from specdec.model_options import model_options
from specdec.settings import ServeSettings
from specdec.tokenizer import Tokenizer, TokenizerError

if TYPE_CHECKING:
    from specdec.contract import DecodeRunner
    from specdec.solo import Answer


@click.command("generate", context_settings={"show_default": True})
@model_options("prefix_cache", "snapshot_interval", "max_snapshots", "max_snapshot_bytes")
@click.option("--text", help="The prompt as text, for the checkpoint's tokenizer.")
@click.option("--ids", help="The prompt as token ids, with commas or spaces between.")
@click.option(
    "--ids-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of token ids, with commas, spaces or lines between.",
)
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=64, help="Tokens at most.")
@click.option("--temperature", type=click.FloatRange(min=0), default=0.0, help="0 is greedy.")
@click.option("--ignore-eos", is_flag=True, help="Go on past the checkpoint's end tokens.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def generate(
    text: str | None,
    ids: str | None,
    ids_file: Path | None,
    max_new_tokens: int,
    temperature: float,
    ignore_eos: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer one prompt and say how long prefill and decode took.

    The first token is prefill's. Loading is timed apart, and nothing is kept for a next request.
    Ends with 0, with 1 when the request failed, 2 when it was refused or the model could not start.
    """
    from specdec.parallel.launch import load_runner
    from specdec.request import SamplingParams
    from specdec.solo import answer

    settings = ServeSettings(**options, prefix_cache=False, max_running_requests=1)
    params = SamplingParams(max_new_tokens, temperature=temperature, ignore_eos=ignore_eos)
    try:
        tokenizer = _tokenizer(settings.model, needed=text is not None)
        prompt = _prompt(tokenizer, text, ids, ids_file)
        runner = load_runner(settings.model, settings.runner_options(), log_level="warning")
        with closing(runner):
            done = answer(runner, "generate", prompt, params)
    except (SpecdecError, TokenizerError) as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    told = _facts(runner, done, tokenizer)
    click.echo(json.dumps(told) if as_json else _plain(told))
    sys.exit(1 if told["finish_reason"] == "abort" else 0)


def _tokenizer(folder: Path, needed: bool) -> Tokenizer | None:
    """The checkpoint's; without one, ids still work."""
    try:
        return Tokenizer.load(folder)
    except TokenizerError:
        if needed:
            raise
        return None


def _prompt(
    tokenizer: Tokenizer | None, text: str | None, ids: str | None, ids_file: Path | None
) -> list[int]:
    given = [source for source in (text, ids, ids_file) if source is not None]
    if len(given) != 1:
        raise RequestRefused(
            "One prompt is needed.", "Give exactly one of --text, --ids and --ids-file."
        )
    if text is not None:
        assert tokenizer is not None
        return tokenizer.encode(text)
    listed = ids if ids is not None else Path(given[0]).read_text("utf-8")
    try:
        return [int(word) for word in listed.replace(",", " ").split()]
    except ValueError as error:
        raise RequestRefused(
            f"The ids are not all whole numbers: {error}.", "Write 12,34,56."
        ) from None


def _facts(runner: DecodeRunner, done: Answer, tokenizer: Tokenizer | None) -> dict[str, Any]:
    seq, counts = done.sequence, done.sequence.counters
    finish = seq.finish
    return {
        "text": tokenizer.decode(seq.output_ids) if tokenizer is not None else None,
        "output_ids": list(seq.output_ids),
        "finish_reason": finish.kind if finish is not None else None,
        "message": finish.message if finish is not None else None,
        "mode": runner.info.mode,
        "device": runner.info.device,
        "prompt_tokens": len(seq.prompt_ids),
        "completion_tokens": len(seq.output_ids),
        "prefill_s": done.prefill_s,
        "prefill_tokens_per_s": done.prefill_tokens_per_s,
        "decode_s": done.decode_s,
        "decode_tokens_per_s": done.decode_tokens_per_s,
        "verify_steps": counts.verify_steps,
        "proposed_drafts": counts.proposed_drafts,
        "correct_drafts": counts.correct_drafts,
        "plain_tokens": counts.plain_tokens,
        "trimmed_tokens": counts.trimmed_tokens,
        "draft_s": counts.draft_s,
        "verify_s": counts.verify_s,
    }


def _plain(told: dict[str, Any]) -> str:
    ids, text = told["output_ids"], told["text"]
    lines = [text if text is not None else ",".join(map(str, ids)), ""]
    if told["message"]:
        lines.append(told["message"])
    lines.append(
        f"prefill {told['prompt_tokens']} tokens in {told['prefill_s']:.3f} s, "
        f"{told['prefill_tokens_per_s']:.1f} tokens/s (the first new token is its last)"
    )
    rate = told["decode_tokens_per_s"]
    if rate is not None:
        lines.append(
            f"decode {told['completion_tokens'] - 1} tokens in {told['decode_s']:.3f} s, "
            f"{rate:.1f} tokens/s"
        )
    steps = told["verify_steps"]
    if steps:
        length = 1 + told["correct_drafts"] / steps
        lines.append(
            f"{steps} verify steps, {told['correct_drafts']} of {told['proposed_drafts']} drafts "
            f"right, accept length {length:.2f}"
        )
    return "\n".join(lines)
