"""YAML's traps: a word that two readers would read differently is refused, never guessed at."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qualify.campaign.scalars import Trap, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-7", -7),
        ("1048576", 1048576),
        ("0.0", 0.0),
        ("1.25", 1.25),
        ("2.5e-3", 0.0025),
        ("llama-cpp", "llama-cpp"),
        ("corpora/code", "corpora/code"),
        ("r1.ngram", "r1.ngram"),
        ("1.2.3", "1.2.3"),
        ("8k", "8k"),
        ("on-time", "on-time"),
        ("y", "y"),
    ],
)
def test_a_plain_word_has_the_one_meaning_that_every_reader_gives_it(
    text: str, value: object
) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("1e6", "write 1000000"),
        ("1.5e3", "write 1500"),
        ("25921e05", '"25921e05"'),
        ("1e-3", "0.001"),
        ("012", "write 12"),
        ("007.5", "write 7.5"),
        ("0o17", '"0o17"'),
        ("0x1F", '"0x1F"'),
        ("0b11", '"0b11"'),
        ("1_000", "write 1000"),
        ("3:30", '"3:30"'),
        ("190:20:30", '"190:20:30"'),
        ("8080:80", '"8080:80"'),
        ("2026-08-19", '"2026-08-19"'),
        ("2026-08-19 10:00:00", '"2026-08-19 10:00:00"'),
        ("on", "write true"),
        ("Off", "write false"),
        ("YES", "write true"),
        ("no", "write false"),
        ("True", "write true"),
        ("Null", "write null"),
        (".inf", "finite number"),
        ("-.INF", "finite number"),
        (".nan", "finite number"),
        ("+5", "write 5"),
        (".5", "write 0.5"),
        ("5.", "write 5"),
        ("9" * 40, f'"{"9" * 40}"'),
        ("1.0e+999", "can be held"),
    ],
)
def test_a_trap_is_refused_with_what_to_write(text: str, write: str) -> None:
    found = resolve(text)
    assert isinstance(found, Trap)
    assert write in found.write


@given(st.from_regex(r"[-+.0-9:_eExXoOtruefalsynonf~]{1,12}", fullmatch=True))
def test_what_is_accepted_is_what_the_yaml_1_1_reader_would_have_read(text: str) -> None:
    """Truth: PyYAML's own 1.1 reader. A word is either refused or read the same by both."""
    found = resolve(text)
    if isinstance(found, Trap):
        return
    try:
        theirs = yaml.safe_load(f"k: {text}")
    except (yaml.YAMLError, ValueError):
        return
    if isinstance(theirs, dict) and set(theirs) == {"k"}:
        assert theirs["k"] == found
        assert type(theirs["k"]) is type(found)
