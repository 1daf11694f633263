# ruff: noqa: E501 - programs stand on one line where they fit
"""Every shape in which a program was seen to come back, and the program that must come out."""

from __future__ import annotations

import io
import json
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qualify.evals.extract import extract
from qualify.evals.fences import blocks, visible

SQ = "def sq(x):\n    return x * x\n"
ROOT = Path(__file__).parents[2]


def call(code: str, entry: str, *arguments: Any) -> Any:
    """Runs programs of this file only, which are ours."""
    module: dict[str, Any] = {"__name__": "candidate"}
    with redirect_stdout(io.StringIO()):
        exec(compile(code, "<test>", "exec"), module)
        return module[entry](*arguments)


def passes(text: str, entry: str = "sq", **options: Any) -> tuple[str, ...]:
    found = extract(text, entry, **options)
    assert call(found.code, entry, 3) == 9, found.code
    return found.how


@pytest.mark.parametrize(
    "opening",
    ["```python", "```py", "```Python", "```python3", "```", "~~~python", "~~~", "````python",
     "``` python", "```{.python}", "```python title=\"a.py\""],
)  # fmt: skip
def test_every_kind_of_fence_is_read(opening: str) -> None:
    closing = opening[: len(opening) - len(opening.lstrip("`~"))]
    assert "fence" in passes(f"Sure:\n{opening}\n{SQ}{closing}\nThat is all.")


def test_an_indented_or_quoted_fence_is_read() -> None:
    indented = "".join(f"    {line}\n" for line in SQ.splitlines())
    passes(f"1. Do this:\n\n    ```python\n{indented}    ```\n\nDone.")
    quoted = "".join(f"> {line}\n" for line in ["```python", *SQ.splitlines(), "```"])
    passes(f"Like so:\n{quoted}")


def test_a_fence_that_is_never_closed_is_read_to_its_end() -> None:
    assert "fence never closed" in passes(f"Here:\n```python\n{SQ}")


def test_a_fence_closed_on_the_last_line_of_code() -> None:
    passes("```python\ndef sq(x):\n    return x * x```\nBye.")


def test_code_on_the_line_of_its_fence() -> None:
    passes("```python def sq(x):\n    return x * x\n```")


def test_prose_before_and_after_plain_code() -> None:
    passes(f"Here is the function you want:\n\n{SQ}\nIt multiplies x by itself.\nEnjoy = it!")


def test_of_several_blocks_the_last_that_defines_the_function_is_taken() -> None:
    wrong = SQ.replace("x * x", "x + x")
    passes(f"First try:\n```python\n{wrong}```\nBetter:\n```python\n{SQ}```\nUse:\n```\nsq(3)\n```")


def test_a_helper_in_an_earlier_block_comes_along() -> None:
    passes(
        "```python\ndef times(a, b):\n    return a * b\n```\nand\n"
        "```python\ndef sq(x):\n    return times(x, x)\n```"
    )


def test_a_block_in_another_language_is_not_code() -> None:
    passes(f"```bash\npip install x\n```\n```python\n{SQ}```\n```json\n{{}}\n```")


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning"])
def test_thinking_text_is_no_answer(tag: str) -> None:
    wrong = SQ.replace("x * x", "x + x")
    text = f"<{tag}>Maybe\n```python\n{wrong}```\n</{tag}>\n```python\n{SQ}```"
    assert "thinking" in passes(text)
    assert "thinking" in passes(f"Maybe\n```python\n{wrong}```\n</{tag}>\n{SQ}")


def test_code_inside_thinking_that_never_ends_does_not_count() -> None:
    found = extract(f"<think>\n```python\n{SQ}```\nbut wait", "sq")
    assert (found.code, found.how[0]) == ("", "thinking that never ends")


@pytest.mark.parametrize("marker", ["<|endoftext|>", "<|im_end|>", "</s>", "<|eot_id|>"])
def test_end_markers_are_removed_and_said(marker: str) -> None:
    assert "end marker" in passes(f"{SQ}{marker}")
    assert "end marker" in passes(f"```python\n{SQ}```{marker}\n")
    assert "end marker" in passes(f"{SQ}{marker}\nQuestion: what is {{{{?\n")


def test_carriage_returns() -> None:
    assert "carriage returns" in passes(f"Sure:\r\n```python\r\n{SQ}```\r\n".replace("\n", "\r\n"))
    passes(SQ.replace("\n", "\r"))


def test_statements_after_the_function_are_dropped() -> None:
    how = passes(f"{SQ}\n# try it\nn = int(input())\nprint(sq(n))\nassert sq(2) == 5\nsq(1)\n")
    assert how == ("plain text",)


def test_what_the_function_needs_stays_wherever_it_stands() -> None:
    passes(
        "import math, sys\nsys.setrecursionlimit(5000)\nTABLE = []\n"
        "for i in range(10):\n    TABLE.append(i * i)\nprint(TABLE)\n"
        "def sq(x):\n    return TABLE[x] + LATER\nLATER = 0\nprint(sq(2))\nraise SystemExit\n"
    )


def test_a_name_bound_after_its_definition_stays() -> None:
    passes("def square(x):\n    return x * x\n\nsq = square\nprint(sq(input()))\n")


def test_main_blocks_are_dropped_and_others_stay() -> None:
    passes(
        "try:\n    from math import prod\nexcept ImportError:\n    prod = None\n"
        "def sq(x):\n    return prod([x, x])\n"
        "if __name__ == '__main__':\n    print(sq(int(input())))\n"
    )


def test_decorated_helpers_and_inner_functions() -> None:
    text = (
        "from functools import lru_cache\n\n@lru_cache(None)\ndef fib(n):\n"
        "    return n if n < 2 else fib(n-1) + fib(n-2)\n\ndef f(n):\n    return fib(n)\n"
    )
    assert call(extract(text, "f").code, "f", 30) == 832040
    passes("def sq(x):\n    def times(y):\n        return x * y\n    return times(x)\n\nsq(3)")


def test_a_class_helper_and_type_annotations() -> None:
    passes(
        "from typing import List\n\nclass Box:\n    def __init__(self, v: int):\n        self.v = v\n"
        "\ndef sq(x: int) -> int:\n    return Box(x).v * x\n\nclass Unused(Missing): pass\n"
    )


def test_an_interactive_session_in_a_fence() -> None:
    passes("```pycon\n>>> def sq(x):\n...     return x * x\n>>> sq(3)\n9\n```")


def test_a_docstring_with_a_session_or_a_fence_inside() -> None:
    passes(
        '```python\ndef sq(x):\n    """Square.\n\n    >>> sq(2)\n    4\n    """\n    return x * x\n```'
    )
    passes('def sq(x):\n    """\n```\nsq(2)\n```\n    """\n    return x * x\n')


def test_code_cut_off_after_the_function_is_kept_up_to_the_cut() -> None:
    passes(f"```python\n{SQ}\ndef helper(y):\n    for i in range(")
    passes(f"{SQ}\nprint('unfinished")


PROMPT = 'def sq(x):\n    """Square of x.\n    >>> sq(2)\n    4\n    """\n'


@pytest.mark.parametrize(
    "body",
    [
        "    return x * x\n",
        "    y = x\n    return y * x\n\ndef other(z):\n    return (z",
        "    return x * x\n\n\nprint(sq(3))\n# That is it.\nSo the answer is x squared!",
        "    # multiply\n    return x * x\n<|endoftext|>def sq(x): return 0",
        "return x * x",
        "```python\n    return x * x\n```",
        f"```python\n{SQ}```",
        SQ,
    ],
)
def test_a_base_model_continues_the_prompt(body: str) -> None:
    passes(body, prompt=PROMPT, continues=True)


def test_a_chat_answer_with_the_body_alone_is_joined_to_the_prompt() -> None:
    how = passes("```python\n    return x * x\n```", prompt=PROMPT)
    assert "continues the prompt" in how


def test_imports_and_helpers_of_the_prompt_need_not_be_repeated() -> None:
    prompt = f"from typing import List\n\ndef twice(x):\n    return 2 * x\n\n{PROMPT}"
    passes("```python\ndef sq(x: List) -> int:\n    return twice(x) * x // 2\n```", prompt=prompt)


def test_an_empty_completion_or_plain_prose_is_no_code() -> None:
    for text in ("", "   \n", "I cannot help with that.", "```python\n```", PROMPT):
        found = extract(text, "sq", prompt=PROMPT, continues=True)
        assert "return" not in found.code, (text, found)


def test_a_program_without_the_function_is_given_back_to_fail_by_itself() -> None:
    found = extract("```python\ndef square(x):\n    return x * x\n```", "sq")
    assert "square" in found.code
    assert "no definition" in found.how


def public_cases() -> list[dict[str, Any]]:
    file = ROOT / "tests" / "cases" / "public-faults.jsonl"
    told = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    kinds = [c for c in told if c["kind"].startswith("codeeval/")]
    return [c for c in kinds if c["repro"]["surface"] == "completion"]


CALLS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "F101": ((1,), 2),
    "F103": ((30,), 832040),
    "F104": ((2, 3), 5),
    "F106": (([1.0, 1.05], 0.1), True),
    "F107": ((3,), 9),
}


@pytest.mark.parametrize("case", public_cases(), ids=lambda c: str(c["id"]))
def test_f101_f103_f104_f106_f107_code_is_cut_out_of_the_answer_and_right(
    case: dict[str, Any],
) -> None:
    arguments, wanted = CALLS[case["id"]]
    text, entry = case["repro"]["text"], case["repro"]["entry_point"]
    assert call(extract(text, entry).code, entry, *arguments) == wanted


def test_ten_thousand_lines_of_prose_are_read_in_under_a_second() -> None:
    lines = ["This is a sentence about how to import the thing = from where it was (or not).",
             "def is a word too, and class as well.", "import the module first", "from here on",
             "x = this is not code", '"""', "@decorated prose"]  # fmt: skip
    for text in (
        "\n".join(lines[n % len(lines)] for n in range(10_000)),
        "\n".join("def f(x" for _ in range(10_000)),
        "```\n" * 10_000,
        "(" * 100_000,
        "<think>" * 10_000,
        "```python\n" + "x = [\n" * 5_000,
    ):
        began = time.process_time()
        extract(text, "sq")
        assert time.process_time() - began < 1.0, text[:40]


def test_time_is_linear_in_the_text() -> None:
    def seconds(n: int) -> float:
        text = "\n".join(f"def f{k}(x):\n    return '''{k}\nimport me = ({k}" for k in range(n))
        return min(_timed(text) for _ in range(3))

    def _timed(text: str) -> float:
        began = time.process_time()
        extract(text, "sq")
        return time.process_time() - began

    small, large = seconds(500), seconds(4000)
    assert large < 8 * 3 * max(small, 0.005), (small, large)


PROSE = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="`~<>"), max_size=60
).filter(lambda s: "def sq" not in s)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    before=st.lists(PROSE, max_size=4),
    after=st.lists(PROSE, max_size=4),
    fence=st.sampled_from(["```", "````", "~~~"]),
    language=st.sampled_from(["", "python", "py", "Python3"]),
    closed=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    marker=st.sampled_from(["", "<|endoftext|>", "</s>"]),
)
def test_whatever_stands_around_a_fenced_program_it_comes_out(
    before: list[str], after: list[str], fence: str, language: str, closed: bool, end: str,
    marker: str,
) -> None:  # fmt: skip
    parts = [*before, f"{fence}{language}", SQ.rstrip("\n")]
    if closed:
        parts += [fence, *after]
    text = end.join("\n".join(parts).split("\n")) + end + marker
    passes(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400))
def test_no_text_breaks_it(text: str) -> None:
    extract(text, "sq")
    extract(text, "sq", prompt=PROMPT, continues=True)
    blocks(visible(text).text)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["def sq(x):", "    return x * x", "```", "```python", "~~~", "<think>", "</think>",
             '"""', "import os", "@cache", "x = (", ")", "    ", "if __name__ == '__main__':",
             "print(sq(3))", "class A:", "</s>", "\r", "\t", "for i in range(3):", "lambda:"]
        ),
        max_size=30,
    )
)  # fmt: skip
def test_pieces_of_code_in_any_order_do_not_break_it(pieces: list[str]) -> None:
    found = extract("\n".join(pieces), "sq")
    if found.code:
        compile(found.code, "<test>", "exec", dont_inherit=True)


def test_deep_nesting_is_no_code_and_no_crash() -> None:
    for text in ("[" * 50_000, "-" * 50_000 + "1", "if 1:\n" * 500, "(" * 199 + ")" * 199):
        extract(f"{text}\n{SQ}", "sq")
    assert sys.getrecursionlimit() < 10_000
