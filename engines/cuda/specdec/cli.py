"""``specdec``: the bundled engine's commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specdec import __version__
from specdec.errors import SpecdecError
from specdec.generate_command import generate
from specdec.serve_command import serve
from specdec.size_command import size
from specdec.worker_command import worker

if TYPE_CHECKING:
    from specdec.weights import AuditReport


@click.group()
@click.version_option(__version__, prog_name="specdec")
def main() -> None:
    """The bundled engine: a Qwen3.5-type hybrid, target-only or speculative."""


for command in (serve, worker, generate, size):
    main.add_command(command)


@main.command("audit")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def audit_command(model: Path, as_json: bool) -> None:
    """Check every tensor of the checkpoint MODEL without serving it.

    Exit status 0: it can be served; 1: the named tensors are at fault.
    """
    # Here, so that no other command waits for the model library.
    from specdec.weights import audit

    try:
        report = audit(model)
    except SpecdecError as error:
        if as_json:
            click.echo(json.dumps({"ok": False, "problems": [str(error)]}))
        else:
            click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(json.dumps(_as_json(report)) if as_json else _as_text(report))
    sys.exit(0 if report.ok else 1)


def _as_json(report: AuditReport) -> dict[str, object]:
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__}
    return {"ok": report.ok, **fields, "path": str(report.path)}


def _as_text(report: AuditReport) -> str:
    lines = [
        f"{report.path}: {report.architecture}",
        f"  {report.tensors} text tensors, {report.parameters:,} parameters, "
        f"stored as {', '.join(report.dtypes)}",
        f"  head {'tied to the embedding' if report.tied else 'of its own'}, "
        f"{report.drafter_tensors} MTP tensors, {report.quantized_modules} quantised modules",
    ]
    if report.vision_tensors:
        lines.append(f"  vision tower of {report.vision_tensors} tensors: recognised, not loaded")
    if report.ok:
        lines.append("  every tensor is present, shaped, finite and non-zero")
    else:
        count = len(report.problems)
        lines.append(f"  {count} problem{'' if count == 1 else 's'}:")
        lines += [f"    {problem}" for problem in report.problems]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
