"""Tokens to text: the `tokenizers` library's own decoding is the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specdec.detokenize import Detokenizer
from specdec.tokenizer import Tokenizer, TokenizerError

SAMPLES = ["plain", "naïve café", "日本語とEmoji 🙂👩‍👩‍👧", "tab\tnew\nline", "‮ ￿ \x00 odd", " "]


@pytest.mark.parametrize("text", SAMPLES)
def test_text_survives_a_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pieces_join_to_the_library_s_decoding_of_any_tokens(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=24))
    skip = data.draw(st.booleans())
    stream = Detokenizer(tokenizer, skip_special_tokens=skip)
    joined = "".join([stream.push(token) for token in ids]) + stream.finish()
    assert joined == tokenizer.fast.decode(ids, skip_special_tokens=skip)
    assert tokenizer.decode(ids, skip_special_tokens=skip) == joined


def test_no_piece_holds_half_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂é漢")
    stream = Detokenizer(tokenizer)
    pieces = [stream.push(token) for token in ids]
    assert len(ids) > 3, "the sample must be split into bytes to test anything"
    assert "�" not in "".join(pieces)
    assert "".join(pieces) == "🙂é漢"


def test_an_unfinished_character_at_the_end_is_shown_as_a_replacement(tokenizer: Tokenizer) -> None:
    stream = Detokenizer(tokenizer)
    first_bytes = tokenizer.encode("🙂")[:1]
    assert stream.push(first_bytes[0]) == ""
    assert stream.finish() == "�"


def test_ids_outside_the_vocabulary_stand_for_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([10**6]) == ""


def plain_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Cut at the stop string that is complete first, read one character at a time."""
    for end in range(1, len(text) + 1):
        hits = [(end - len(word), word) for word in stops if text[:end].endswith(word)]
        if hits:
            at, word = min(hits)
            return text[:at], word
    return text, None


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="abc é", max_size=30),
    st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_text_is_cut_at_the_stop_string_and_nothing_leaks_before_it(
    tokenizer: Tokenizer, text: str, stops: list[str]
) -> None:
    byte_ids = [tokenizer.fast.token_to_id(char) for char in _alphabet_characters(text)]
    stream = Detokenizer(tokenizer, stop=stops)
    pieces = []
    for token in byte_ids:
        pieces.append(stream.push(token))
        if stream.matched is not None:
            break
    pieces.append(stream.finish())
    wanted, matched = plain_stop(text, stops)
    assert ("".join(pieces), stream.matched) == (wanted, matched)


def _alphabet_characters(text: str) -> list[str]:
    from specdec.tokenizer import BYTE_OF

    char_of = {byte: char for char, byte in BYTE_OF.items()}
    return [char_of[byte] for byte in text.encode()]


def test_the_stop_string_is_kept_when_asked(tokenizer: Tokenizer) -> None:
    stream = Detokenizer(tokenizer, stop=["river"], keep_stop=True)
    text = "".join(stream.push(token) for token in tokenizer.encode("the river was"))
    assert text == "the river"


def test_the_chat_template_is_rendered(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{% set x = messages.append(1) %}",
        "{{ raise_exception('no system message, please') }}",
        "{{ 1 / 0 }}",
        "{% for",
    ],
)
def test_a_hostile_or_broken_template_is_a_sentence_and_not_a_crash(
    tokenizer: Tokenizer, template: str
) -> None:
    broken = Tokenizer(tokenizer.fast, template)
    with pytest.raises(TokenizerError, match="chat template"):
        broken.render_chat([{"role": "user", "content": "hi"}])


def test_a_tokenizer_that_is_not_byte_level_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    saved = json.loads((checkpoint / "tokenizer.json").read_text())
    saved["decoder"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.raises(TokenizerError, match="byte-level"):
        Tokenizer.load(tmp_path)


def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode("a\ud800b")
