"""Reading problem files, hashing problems, drawing subsets."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.evals.nouns import Problem, ProblemSet


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Every object of a .jsonl or .jsonl.gz file. Raises UsageError with the line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The problems at {path} cannot be read: {error.strerror}.", "Check the path."
        ) from None
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no JSONL file: {error}.", "Download it again.") from None
    # Only "\n" ends a line: str.splitlines would also cut at U+2028 inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number} is not JSON ({error}).", "Repair it.") from None
        if not isinstance(found, dict):
            raise UsageError(f"{path}:{number} is no JSON object.", "One object a line.")
        yield found


def problem_set(name: str, problems: Iterable[Problem], source: str) -> ProblemSet:
    """Raises UsageError where there are none or where two have one id."""
    listed = tuple(problems)
    if not listed:
        raise UsageError(f"There is no problem in {source}.", "Give another file.")
    seen: set[str] = set()
    for problem in listed:
        if problem.id in seen:
            raise UsageError(f"{source} has problem {problem.id} twice.", "Keep one of them.")
        seen.add(problem.id)
    return ProblemSet(name, listed, digest_of(listed), source)


def digest_of(problems: Iterable[Problem]) -> str:
    """The same problems have the same digest, whichever file they came from."""
    total = hashlib.sha256()
    for problem in problems:
        line = [problem.id, problem.text, problem.session, problem.data]
        text = json.dumps(line, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        total.update(text.encode() + b"\n")
    return total.hexdigest()


def draw(whole: ProblemSet, seed: int, count: int) -> ProblemSet:
    """A seeded subset in the set's own order; every problem of a session stays with it."""
    groups: dict[str, list[Problem]] = {}
    for problem in whole.problems:
        groups.setdefault(problem.session or problem.id, []).append(problem)
    if count > len(groups):
        raise UsageError(
            f"A subset of {count} was asked for, and {whole.name} has {len(groups)} problems.",
            f"Ask for {len(groups)} or fewer.",
        )
    # Ranked by hash: the draw depends on ids and seed only, not on a generator's version.
    order = sorted(groups, key=lambda g: hashlib.sha256(f"{seed}\0{g}".encode()).digest())
    chosen = set(order[:count])
    kept = tuple(p for p in whole.problems if (p.session or p.id) in chosen)
    return dataclasses.replace(
        whole, problems=kept, sha256=digest_of(kept), subset=f"{seed}:{count}"
    )
