"""The import direction of docs/architecture.md, read from the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import qualify

PACKAGE = Path(qualify.__file__).parent

# From the bottom up. A layer may import itself and what stands above it in this list.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("qualify.errors", "qualify.paths", "qualify.printable"),
    (
        "qualify.records.schema",
        "qualify.checks.verdict",
        "qualify.prompts.prompt",
        "qualify.client.reply",
        "qualify.engines.protocol",
        "qualify.plan",
        "qualify.evals.nouns",
    ),
    ("qualify.campaign",),
    ("qualify.planning",),
    ("qualify.prompts", "qualify.client", "qualify.engines", "qualify.inspect"),
    ("qualify.evals",),
    ("qualify.records",),
    ("qualify.run",),
    ("qualify.checks",),
    ("qualify.analysis",),
    ("qualify.report",),
    ("qualify.history",),
    ("qualify.doctor",),
    ("qualify.cli", "qualify.__main__"),
)


def layer_of(module: str) -> int:
    """The layer with the longest matching name; nouns therefore win over their package."""
    best, found = -1, -1
    for rank, names in enumerate(LAYERS):
        for name in names:
            if (module == name or module.startswith(name + ".")) and len(name) > best:
                best, found = len(name), rank
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "_data" not in parts and name != "qualify":
            yield name, path


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are written in full"
            assert node.module is not None
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def test_every_module_has_a_layer() -> None:
    assert [name for name, _ in modules() if layer_of(name) < 0] == []


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line} imports {target}"
        for name, path in modules()
        for line, target in imports_of(path)
        if target.startswith("qualify.") and layer_of(target) > layer_of(name)
    ]
    assert wrong == []


def test_the_harness_and_the_bundled_engine_do_not_know_each_other() -> None:
    assert [
        f"{path}:{line}"
        for _, path in modules()
        for line, target in imports_of(path)
        if target.split(".")[0] == "specdec"
    ] == []
    engine = PACKAGE.parent / "engines" / "cuda" / "specdec"
    if not engine.is_dir():
        pytest.skip("the bundled engine is not beside this installation")
    assert [
        f"{path}:{line}"
        for path in engine.rglob("*.py")
        for line, target in imports_of(path)
        if target.split(".")[0] == "qualify"
    ] == []


def test_recomputing_a_summary_shares_no_code_with_the_harness() -> None:
    script = PACKAGE.parent / "scripts" / "recompute.py"
    assert [t for _, t in imports_of(script) if t.split(".")[0] == "qualify"] == []


def test_a_file_has_one_idea() -> None:
    """About 250 lines; more is a sign of a second idea."""
    sizes = {name: len(path.read_text("utf-8").splitlines()) for name, path in modules()}
    assert {name: size for name, size in sizes.items() if size > 300} == {}


def test_an_import_against_the_direction_would_be_seen() -> None:
    """The walk above finds something at all: the same rule with two layers swapped fails."""
    assert layer_of("qualify.plan") < layer_of("qualify.campaign") < layer_of("qualify.engines")
    assert layer_of("qualify.engines.protocol") < layer_of("qualify.engines.llamacpp")
    upward = [
        target
        for name, path in modules()
        for _, target in imports_of(path)
        if name.startswith("qualify.cli") and target.startswith("qualify.run.")
    ]
    assert upward, "function-level imports count too"
