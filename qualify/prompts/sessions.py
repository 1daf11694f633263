"""Conversations that grow turn by turn over a shared prefix.

Turn t has exactly tokens + t * growth ids: all ids of turn t-1, then the answer, then new
user text that fills the rest. The answer is the engine's own when the runner hands it in,
and real text of the corpus in a plan made beforehand, so every turn's shape is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qualify.errors import CellError
from qualify.prompts.corpus import Ring, ring
from qualify.prompts.digest import growth_of
from qualify.prompts.exact import as_prompt, cutter, frame_tokens
from qualify.prompts.fit import Fitted, fit
from qualify.prompts.heads import Heads
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.slices import cut_slices
from qualify.prompts.sources import open_source
from qualify.prompts.template import Message
from qualify.prompts.tokens import Tokenizer

_MARKS = ("\u241fA\u241f", "\u241fB\u241f", "\u241fC\u241f")


@dataclass(frozen=True)
class Session:
    """One conversation: its first prompt, and where its later text comes from.

    place: (document, offset) of its text in the source; chars: how much of it is its own;
    repeated: the source was used a second time.
    """

    spec: PromptSpec
    tokenizer: Tokenizer
    loop: Ring
    first: Prompt
    place: tuple[int, int]
    chars: int
    repeated: bool

    def next_turn(self, previous: Prompt, output_ids: Sequence[int] | None = None) -> Prompt:
        """The prompt after `previous`, with the answer that was generated to it.

        Without output_ids the answer is half a growth of real text. Raises CellError where
        the answer leaves no room for a user's message inside the growth.
        """
        turn = previous.turn + 1
        if output_ids is None:
            output_ids = self._planned_answer(turn)
        opening, closing = self._glue(output_ids)
        spec, tokenizer = self.spec, self.tokenizer
        base = previous.ids[: len(previous.ids) - len(tokenizer.suffix)]
        room = growth_of(spec) - len(output_ids)
        heads = Heads(replace(spec, seed=spec.seed + turn), tokenizer)

        def frame(head: str, body: bool) -> tuple[str, str]:
            return f"{opening}{head}\n\n" if body else f"{opening}{head}", closing

        least = len(tokenizer.encode("".join(frame(heads.text(0, 1), False))))
        if room < least:
            raise CellError(
                f"{previous.id}: an answer of {len(output_ids)} tokens leaves {room} for the next "
                f"message of a session that grows by {growth_of(spec)}.",
                f"Set growth to at least {len(output_ids) + least}, or fewer output tokens.",
            )
        document, offset = self._text_of(turn)
        message = fit(
            frame,
            lambda words: heads.text(previous.index, words),
            Heads.SHORT,
            self.loop.read(document, offset, room),
            room + len(tokenizer.prefix) + len(tokenizer.suffix),
            tokenizer,
        )
        assert message is not None
        end = len(message.ids) - len(tokenizer.suffix)
        added = message.ids[len(tokenizer.prefix) : end]
        ids = (*base, *output_ids, *added, *tokenizer.suffix)
        text = tokenizer.decode(ids[len(tokenizer.prefix) : len(ids) - len(tokenizer.suffix)])
        exact = (*tokenizer.prefix, *tokenizer.encode(text), *tokenizer.suffix) == ids
        return as_prompt(
            spec,
            tokenizer,
            previous.index,
            Fitted(text, ids, exact, message.chars),
            turn=turn,
            shared=len(base),
            repeated=self.repeated,
            frame=previous.frame_tokens,
        )

    def _text_of(self, turn: int) -> tuple[int, int]:
        """Each turn has its own stretch of the session's text, whatever was answered."""
        document, offset = self.place
        begin = self.loop.starts[document] + offset
        first = self.spec.tokens / _total(self.spec)
        share = first + (1 - first) * (turn - 1) / max(1, self.spec.turns - 1)
        return self.loop.paragraph(*self.loop.place(begin + int(self.chars * share)))

    def _planned_answer(self, turn: int) -> list[int]:
        size = growth_of(self.spec) // 2
        ids: list[int] = []
        for segment in self.loop.read(*self._text_of(turn), size):
            ids.extend(segment.ids)
            if len(ids) >= size:
                return ids[:size]
        raise AssertionError("a loop has no end")

    def _glue(self, output_ids: Sequence[int]) -> tuple[str, str]:
        """Text between the answer and the user's words, and after them."""
        if not self.spec.template:
            return "\n\n", ""
        template = self.tokenizer.template
        assert template is not None  # the first turn was built with it
        roles = ("user", "assistant", "user")
        messages = [Message(r, m) for r, m in zip(roles, _MARKS, strict=True)]
        text = template.render(messages, thinking=self.spec.thinking)
        opening = text.partition(_MARKS[1])[2].partition(_MARKS[2])[0]
        closing = text.partition(_MARKS[2])[2]
        stop = self.tokenizer.encode(opening)[:1]
        if stop and list(output_ids[-1:]) == stop:  # the answer brought its own end of turn
            opening = opening[len(self.tokenizer.decode(stop)) :]
        return opening, closing


def open_sessions(
    spec: PromptSpec, tokenizer: Tokenizer, corpora_root: Path | None = None
) -> list[Session]:
    """One session an index, each with its first prompt built and disjoint text reserved."""
    loop = ring(open_source(spec.source, corpora_root), tokenizer)
    whole = replace(spec, tokens=_total(spec), turns=1)
    reserved = cut_slices(whole, loop, cutter(whole, loop, tokenizer))
    cut = cutter(spec, loop, tokenizer)
    shared = frame_tokens(spec, tokenizer)
    found = []
    for index, piece in enumerate(reserved):
        fitted = cut(index, piece.place, float("inf"))
        assert fitted is not None
        first = as_prompt(spec, tokenizer, index, fitted, repeated=piece.repeated, frame=shared)
        found.append(
            Session(spec, tokenizer, loop, first, piece.place, piece.fitted.chars, piece.repeated)
        )
    return found


def build_sessions(
    spec: PromptSpec, tokenizer: Tokenizer, corpora_root: Path | None = None
) -> list[Prompt]:
    """Every turn of every session, with planned answers, by index and turn."""
    prompts: list[Prompt] = []
    for session in open_sessions(spec, tokenizer, corpora_root):
        prompts.append(session.first)
        for _ in range(1, spec.turns):
            prompts.append(session.next_turn(prompts[-1]))
    return prompts


def _total(spec: PromptSpec) -> int:
    return spec.tokens + (spec.turns - 1) * growth_of(spec)
