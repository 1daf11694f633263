"""`specdec size`: memory arithmetic without weights and without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from specdec.errors import SpecdecError


@click.command("size", context_settings={"show_default": True})
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--tp", type=click.IntRange(min=1), default=1, help="Ranks that share the model.")
@click.option("--context", type=click.IntRange(min=1), default=32768, help="Tokens of KV.")
@click.option(
    "--snapshots", type=click.IntRange(min=0), default=82, help="Recurrent snapshots kept."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["fp16", "fp32"]),
    default="fp16",
    help="All but FP8 matrices and recurrent state: FP16, or FP32 as this engine holds them.",
)
@click.option(
    "--kv-cache-dtype",
    type=click.Choice(["auto", "fp8"]),
    default="auto",
    help="Keys and values: the format's own, or FP8 with scales.",
)
@click.option(
    "--draft-model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A DFlash2 checkpoint's folder, its config.json in it; every rank holds all of it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def size(model: Path, as_json: bool, **options: Any) -> None:
    """Say what MODEL takes on each rank; its folder or its config.json alone is enough."""
    # Here, so that no other command waits for the model library.
    try:
        facts = _facts(model, **options)
    except SpecdecError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    click.echo(json.dumps(facts) if as_json else _plain(facts))


def _facts(
    model: Path,
    tp: int,
    context: int,
    snapshots: int,
    form: str,
    kv_cache_dtype: str,
    draft_model: Path | None,
) -> dict[str, Any]:
    from specdec.config import read_config
    from specdec.sizing import FORMATS, model_size
    from specdec.sizing_draft import dflash2_parameters

    the_form = FORMATS[form]
    config = read_config(model)
    found = model_size(config, tp, the_form, "fp8" if kv_cache_dtype == "fp8" else "plain")
    draft = None
    if draft_model is not None:
        draft = dflash2_parameters(draft_model, config) * the_form.dense_bytes
    parts = {
        "weight_bytes": found.target.weight_bytes,
        "scale_bytes": found.target.scale_bytes,
        "kv_bytes": context * found.kv_bytes_per_token,
        "kv_scale_bytes": context * found.kv_scale_bytes_per_token,
        "snapshots_bytes": snapshots * found.snapshot_bytes,
    }
    if draft is not None:
        parts["draft_bytes"] = draft
    return {
        "model": str(model),
        "ranks": tp,
        "format": the_form.name,
        "parameters": found.target.parameters,
        "context_tokens": context,
        "snapshots": snapshots,
        **parts,
        "total_bytes": sum(parts.values()),
        "mtp_weight_bytes": found.draft_head.weight_bytes,
        "mtp_scale_bytes": found.draft_head.scale_bytes,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "kv_scale_bytes_per_token": found.kv_scale_bytes_per_token,
        "snapshot_bytes": found.snapshot_bytes,
    }


def _plain(f: dict[str, Any]) -> str:
    rows = [
        ("weights", f["weight_bytes"], ""),
        ("scales of the weights", f["scale_bytes"], ""),
        ("keys and values", f["kv_bytes"], f"{f['kv_bytes_per_token']:,} a token"),
        ("their scales", f["kv_scale_bytes"], f"{f['kv_scale_bytes_per_token']:,} a token"),
        ("recurrent snapshots", f["snapshots_bytes"], f"{f['snapshot_bytes']:,} each"),
    ]
    if "draft_bytes" in f:
        rows.append(("draft model, on every rank", f["draft_bytes"], ""))
    rows.append(("together", f["total_bytes"], ""))
    mtp = f["mtp_weight_bytes"] + f["mtp_scale_bytes"]
    if mtp:
        rows.append(("with --mode mtp also", mtp, "its head, without its KV"))
    lines = [
        f"{f['model']}: {f['parameters']:,} parameters; each of {f['ranks']} ranks, "
        f"{f['context_tokens']:,} tokens, {f['snapshots']} snapshots, {f['format']}",
        *(
            f"  {name:28}{count:>18,} bytes {count / (1 << 20):>12,.2f} MiB  {note}".rstrip()
            for name, count, note in rows
        ),
    ]
    return "\n".join(lines)
