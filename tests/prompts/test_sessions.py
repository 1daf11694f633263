"""Conversations: exact growth, and every turn a prefix of the next."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from qualify.errors import CellError
from qualify.prompts.exact import build
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.sessions import open_sessions
from qualify.prompts.tokens import Tokenizer

SPEC = PromptSpec("test", "talk", "corpora/prose", 200, 2, 0, turns=4, growth=120)


@pytest.mark.parametrize("template", [False, True])
def test_each_turn_grows_by_the_stated_tokens_over_the_whole_turn_before(
    words: Tokenizer, template: bool
) -> None:
    prompts = build(replace(SPEC, template=template), words)
    assert [(p.index, p.turn) for p in prompts] == [(i, t) for i in range(2) for t in range(4)]
    for before, after in pairwise(prompts):
        assert len(after.ids) == 200 + 120 * after.turn
        if after.turn:
            assert after.ids[: len(before.ids)] == before.ids
            assert after.shared_prefix == len(before.ids)
    assert len({p.sha256 for p in prompts}) == 8
    assert all(p.text_exact for p in prompts)
    assert all(words.backend.encode(p.text).ids == list(p.ids) for p in prompts)


@pytest.mark.parametrize("answer", [1, 17, 64, 100])
def test_the_measured_answer_is_spliced_in_and_the_shape_stays(
    words: Tokenizer, answer: int
) -> None:
    session = open_sessions(replace(SPEC, template=True), words)[1]
    output = words.encode("She answered that nothing could be more agreeable to her, " * 20)[
        :answer
    ]
    following = session.next_turn(session.first, output)
    assert len(following.ids) == 320
    assert list(following.ids[200 : 200 + answer]) == output
    last = session.next_turn(following, output)
    assert len(last.ids) == 440
    assert last.ids[:320] == following.ids
    assert last.id == "talk@200/measured/1.2"


def test_an_answer_that_ended_its_own_turn_is_not_ended_twice(words: Tokenizer) -> None:
    session = open_sessions(replace(SPEC, template=True), words)[0]
    end = words.id_of("<|im_end|>")
    following = session.next_turn(session.first, [*words.encode("Yes."), end])
    assert len(following.ids) == 320
    assert "<|im_end|>\n<|im_end|>" not in following.text
    assert "Yes.<|im_end|>\n<|im_start|>user\n" in following.text


def test_an_answer_longer_than_the_growth_is_refused_with_the_growth_it_needs(
    words: Tokenizer,
) -> None:
    session = open_sessions(SPEC, words)[0]
    with pytest.raises(CellError, match="answer of 120 tokens leaves 0") as caught:
        session.next_turn(session.first, [5] * 120)
    assert "Set growth to at least 12" in caught.value.remedy


def test_an_engine_that_takes_text_only_gets_text_of_the_exact_length(words: Tokenizer) -> None:
    session = open_sessions(SPEC, words)[0]
    odd = [i for i in words.encode("unagreeableness") for _ in range(3)]
    following = session.next_turn(session.first, odd, need_text=True)
    assert len(following.ids) == 320
    assert words.backend.encode(following.text).ids == list(following.ids)


def test_later_turns_do_not_depend_on_what_was_answered_for_their_text(words: Tokenizer) -> None:
    session = open_sessions(SPEC, words)[0]
    one = session.next_turn(session.first, [7] * 40)
    two = session.next_turn(session.first, [9] * 40)
    assert one.ids[240:] == two.ids[240:]
