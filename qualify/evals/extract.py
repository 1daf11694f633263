"""From a completion to the program that is tested.

Prose, fences, thinking text, end markers, example calls: what surrounds a program is taken
away, what the program needs stays. Time is linear in the text: every line is looked at a
bounded number of times.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass

from qualify.evals.fences import before_fence, blocks, visible
from qualify.evals.program import defined, needed, parse, used

TRIES = 12  # cuts at a syntax error, or pieces joined, before giving up
PATIENCE = 100  # pieces that looked like code and were none, before only whole ones count
_START = re.compile(
    r"(?:async[ \t]+def|def|class|import|from|@)[ \t]*[\w.]|[A-Za-z_]\w*[ \t]*(?::[^=\n]+)?=[^=]"
)


@dataclass(frozen=True)
class Program:
    """code is empty where the completion holds none. how: what was done, for the record."""

    code: str
    how: tuple[str, ...] = ()


def extract(text: str, entry: str, *, prompt: str = "", continues: bool = False) -> Program:
    """The program in `text` that defines `entry`.

    prompt: code that the completion may continue (a signature with its docstring). With
    `continues`, as base models write on, a completion that starts indented is taken so before
    anything else. A program without `entry` is given back as it is, and fails by itself.
    """
    seen = visible(text)
    how = list(seen.notes)

    def made(code: str, *more: str) -> Program:
        return Program(_with_prompt(code, prompt), (*how, *more))

    fenced = [b for b in blocks(seen.text) if b.is_python and b.code.strip()]
    body = seen.text
    if fenced:
        how.append("fence" if len(fenced) == 1 else f"{len(fenced)} fences")
        if not fenced[-1].closed:
            how.append("fence never closed")
    first = next((line for line in body.split("\n") if line.strip()), "")
    if continues and first[:1] in (" ", "\t"):
        # Written on from the signature; a stray fence after it closes nothing of ours.
        found = _continued(prompt, before_fence(body), entry)
        if found is not None:
            return Program(found, (*how, "continues the prompt"))
    if fenced:
        found = _from_blocks([b.code for b in fenced], entry)
        if found is not None:
            return made(found)
    found = _from_text(body, entry)
    if found is not None:
        return made(found, "plain text")
    if prompt:
        for part in [b.code for b in fenced[::-1]] or [body]:
            found = _continued(prompt, part, entry)
            if found is not None:
                return Program(found, (*how, "continues the prompt"))
    if fenced:
        joined = "\n\n".join(b.code for b in fenced)
        return Program(joined if parse(joined) is not None else "", (*how, "no definition"))
    return Program("", (*how, "no code"))


def _with_prompt(code: str, prompt: str) -> str:
    """Imports and helpers that the prompt gave and the answer uses without repeating them."""
    given, own = parse(prompt), parse(code)
    if given is None or own is None or not prompt:
        return code
    missing = (used(own) - defined(own)) & defined(given)
    return f"{prompt.rstrip()}\n\n{code}" if missing else code


def trimmed(code: str) -> str | None:
    """The longest start of `code` that can be read, cut at each syntax error in turn."""
    lines = code.split("\n")
    for _ in range(TRIES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = min(error.lineno or 1, len(lines))
            # An unclosed bracket or string is told at its start, an empty body at its end.
            lines = lines[: max(at - 1, 0)]
            while lines and lines[-1].rstrip().endswith(":"):
                lines.pop()
            if not any(line.strip() for line in lines):
                return None
        except (ValueError, RecursionError, MemoryError):
            return None
        else:
            return "\n".join(lines)
    return None


def _from_blocks(codes: list[str], entry: str) -> str | None:
    """The last block that defines `entry`, with the earlier blocks that it needs."""
    for at in range(len(codes) - 1, -1, -1):
        own = trimmed(codes[at])
        tree = parse(own) if own is not None else None
        if own is None or tree is None or entry not in defined(tree):
            continue
        for earlier in range(at - 1, -1, -1):
            before = trimmed(codes[earlier])
            given = parse(before) if before is not None else None
            both = parse(own)
            if before is None or given is None or both is None:
                continue
            if (used(both) - defined(both)) & (defined(given) - {entry}):
                own = f"{before}\n\n{own}"
        return needed(own, entry)
    return None


def _from_text(text: str, entry: str) -> str | None:
    """Code that stands in a text without fences, prose around it or not."""
    whole = _defining(text, entry)
    if whole is not None:
        return whole
    code = "\n".join(_code_chunks(text))
    return _defining(code, entry) if code else None


def _defining(code: str, entry: str) -> str | None:
    tree = parse(code)
    return needed(code, entry) if tree is not None and entry in defined(tree) else None


def _continued(prompt: str, body: str, entry: str) -> str | None:
    """`prompt` + `body`, the body indented if it is not, cut where it stops being Python."""
    first = next((line for line in body.split("\n") if line.strip()), "")
    if not first:
        return None
    forms = [prompt + body]
    if not prompt.endswith("\n"):
        forms.append(f"{prompt}\n{body}")
    if not first[0].isspace():
        forms.append(prompt.rstrip("\n") + "\n" + textwrap.indent(body, "    "))
    for form in forms:
        code = trimmed(form)
        tree = parse(code) if code is not None else None
        if code is None or tree is None or entry not in defined(tree):
            continue
        if len(code) > len(prompt.rstrip()) and not _empty(tree, entry):
            return needed(code, entry)
    return None


def _empty(tree: ast.Module, entry: str) -> bool:
    """Whether the function is nothing but its docstring: the completion added nothing."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry:
            return all(
                isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body
            )
    return False


def _code_chunks(text: str) -> list[str]:
    """Top-level pieces that are Python: a line at the margin with what is indented below it.

    A piece that ends inside a string or bracket takes the following ones in, a few at most.
    """
    pieces: list[list[str]] = []
    for line in text.split("\n"):
        if pieces and (not line.strip() or line[0] in " \t)]}"):
            pieces[-1].append(line)
        else:
            pieces.append([line])
    found: list[str] = []
    at = failed = 0
    while at < len(pieces):
        taken = 1
        if _START.match(pieces[at][0]):
            code, taken = _joined(pieces, at, TRIES if failed < PATIENCE else 1)
            if code is None and failed < PATIENCE:
                code = trimmed("\n".join(pieces[at]))
            failed += code is None
            if code is not None:
                found.append(code)
        at += taken
    return found


def _joined(pieces: list[list[str]], at: int, most: int) -> tuple[str | None, int]:
    lines: list[str] = []
    for taken, piece in enumerate(pieces[at : at + most], start=1):
        lines += piece
        if parse("\n".join(lines)) is not None:
            return "\n".join(lines), taken
        if taken == 1 and not _open_ended("\n".join(lines)):
            break
    return None, 1


def _open_ended(code: str) -> bool:
    """Whether more lines could still make it Python: a string, bracket or decorator is open."""
    if code.lstrip().startswith("@"):
        return True
    return any(code.count(quote) % 2 for quote in ('"""', "'''")) or any(
        code.count(a) > code.count(b) for a, b in ("()", "[]", "{}")
    )
