"""Every fault in public-faults.jsonl has a test whose name carries its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.client.streams import public_faults

TESTS = Path(__file__).parents[1]
# A case that does not concern this project, and why.
ELSEWHERE: dict[str, str] = {}


def named_after() -> dict[str, list[str]]:
    """Case -> the tests that are named after it: test_f026_..., or several: test_f061_f062_..."""
    found: dict[str, list[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                numbers = re.match(r"test_((?:f\d{3}_)+)", node.name)
                for number in re.findall(r"f(\d{3})", numbers[1] if numbers else ""):
                    found.setdefault(f"F{number}", []).append(f"{file.name}::{node.name}")
    return found


def test_each_public_fault_has_a_test_with_its_number_or_a_reason_why_not() -> None:
    cases, found = set(public_faults()), named_after()
    assert cases - set(found) - set(ELSEWHERE) == set()


def test_no_test_claims_a_case_that_is_not_there_and_no_reason_is_stale() -> None:
    cases, found = set(public_faults()), named_after()
    assert {name: tests for name, tests in found.items() if name not in cases} == {}
    assert set(ELSEWHERE) <= cases - set(found)
