"""Is a model class registered? Read from the sources, nothing imported.

SGLang takes what a module of its models calls EntryClass; vLLM and others keep a table whose keys
are the architectures' names. A class that is defined and not registered cannot be served, and a
checkpoint that declares it is then taken for another.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping


def registered(name: str, sources: Mapping[str, str]) -> str | None:
    """Where class `name` is registered: "EntryClass in PATH", "a table in PATH"; None: nowhere.

    The class must also be defined somewhere among the sources (path -> text).
    """
    places = [(path, _tree(text)) for path, text in sorted(sources.items()) if name in text]
    trees = [(path, tree) for path, tree in places if tree is not None]
    if not any(_defines(tree, name) for _, tree in trees):
        return None
    for path, tree in trees:
        if _entry(tree, name):
            return f"EntryClass in {path}"
    return next((f"a table in {path}" for path, tree in trees if _key(tree, name)), None)


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _defines(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(tree))


def _entry(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "EntryClass" for t in node.targets
        ):
            value = node.value
            items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            return any(isinstance(item, ast.Name) and item.id == name for item in items)
    return False


def _key(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(key, ast.Constant) and key.value == name
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
    )
