"""What a program binds and reads, and the part of it that one function needs."""

from __future__ import annotations

import ast
import symtable
import warnings


def parse(code: str) -> ast.Module | None:
    """None for what is no Python, or too deeply nested to read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined(tree: ast.Module) -> set[str]:
    """Names that the module's own statements bind."""
    return {name for statement in tree.body for name in bound(statement)}


def bound(statement: ast.stmt) -> set[str]:
    """Names that one top-level statement binds, in its branches too, not inside functions."""
    names: set[str] = set()
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.Lambda):
            continue
        else:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            todo += ast.iter_child_nodes(node)
    return names


def reads(code: str, tree: ast.AST) -> set[str]:
    """Names of the module that `code` reads; a function's own variables are none of them."""
    try:
        table = symtable.symtable(code, "<candidate>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return used(tree)
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    todo = list(table.get_children())
    while todo:
        scope = todo.pop()
        names |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
        todo += scope.get_children()
    return names


def used(tree: ast.AST) -> set[str]:
    """Names that are read anywhere in it."""
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def needed(code: str, entry: str) -> str:
    """`code` without what `entry` does not need: example calls, prints, reading of input,
    `if __name__` blocks, anything after the last definition that it uses.

    Imports stay, and so do statements that bind or change a name that `entry` reaches.
    """
    tree = parse(code)
    if tree is None:
        return code
    lines = code.split("\n")
    reached = _reached(tree, lines, entry)
    binding = [bool(bound(s) & reached) for s in tree.body]
    last = max((i for i, binds in enumerate(binding) if binds), default=-1)
    kept: set[int] = set()
    for index, statement in enumerate(tree.body):
        if _stays(statement, binding[index], reached, before=index <= last):
            kept.update(range(_first_line(statement) - 1, statement.end_lineno or 0))
    return "\n".join(line for number, line in enumerate(lines) if number in kept) + "\n"


def _reached(tree: ast.Module, lines: list[str], entry: str) -> set[str]:
    uses: dict[str, set[str]] = {}
    for statement in tree.body:
        own = "\n".join(lines[_first_line(statement) - 1 : statement.end_lineno])
        read = reads(own, statement)
        for name in bound(statement):
            uses.setdefault(name, set()).update(read)
    reached, todo = {entry}, [entry]
    while todo:
        for name in uses.get(todo.pop(), ()):
            if name in uses and name not in reached:
                reached.add(name)
                todo.append(name)
    return reached


def _stays(statement: ast.stmt, binds: bool, reached: set[str], *, before: bool) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.If) and _is_main(statement.test):
        return False
    if binds:
        return True
    if not before or isinstance(statement, ast.Assert):
        return False
    if isinstance(statement, ast.Expr):
        # sys.setrecursionlimit(...), table.append(...): not print(...) and not test().
        call = statement.value
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    if isinstance(statement, ast.For | ast.While | ast.With | ast.If | ast.Try):
        return bool(used(statement) & reached)
    return isinstance(statement, ast.Delete)


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test))


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *[d.lineno for d in decorators]])
