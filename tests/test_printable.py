"""What comes from outside cannot command a terminal."""

from __future__ import annotations

import pytest

from qualify.printable import printable


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    text = "Zeile eins\ndéjà\t日本語 ☃ 1 234 “x”"
    assert printable(text) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[31mred", "a\\x1b[31mred"),  # colours, the cursor
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),  # the window's title
        ("gone\rover", "gone\\rover"),  # writes over the line's start
        ("\x9b2J", "\\x9b2J"),  # the eight-bit form of ESC [
        ("user\u202efdp.exe", "user\\u202efdp.exe"),  # turns the direction of writing
        ("\ud800", "\\ud800"),  # half a character: no terminal's encoding takes it
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(given: str, shown: str) -> None:
    assert printable(given) == shown
