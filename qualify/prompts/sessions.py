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
from qualify.prompts.exact import as_prompt, common_prefix, cutter, frame_tokens
from qualify.prompts.fit import Fitted, fit
from qualify.prompts.frames import Frame
from qualify.prompts.heads import Heads
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.slices import cut_slices
from qualify.prompts.sources import open_source
from qualify.prompts.template import Message
from qualify.prompts.tokens import Tokenizer

_PART = "\n\n"
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

    def next_turn(
        self,
        previous: Prompt,
        output_ids: Sequence[int] | None = None,
        *,
        need_text: bool = False,
    ) -> Prompt:
        """The prompt after `previous`, with the answer that was generated to it.

        Without output_ids the answer is half a growth of real text. With need_text (engines
        that take text only) the ids are those of the text, which may part the answer otherwise.
        Raises CellError where the answer leaves no room for a user's message in the growth.
        """
        turn, tokenizer, spec = previous.turn + 1, self.tokenizer, self.spec
        if output_ids is None:
            output_ids = self._planned_answer(previous.index, turn)
        base = previous.ids[: len(previous.ids) - len(tokenizer.suffix)]
        wanted = spec.tokens + turn * growth_of(spec)
        room = wanted - len(base) - len(output_ids) - len(tokenizer.suffix)
        for _ in range(4):
            added = self._message(previous, turn, output_ids, room)
            ids = (*base, *output_ids, *added, *tokenizer.suffix)
            text = tokenizer.decode(ids[len(tokenizer.prefix) : len(ids) - len(tokenizer.suffix)])
            again = (*tokenizer.prefix, *tokenizer.encode(text), *tokenizer.suffix)
            if not need_text or len(again) == wanted:
                break
            room += wanted - len(again)
        exact = again == ids
        if need_text and len(again) == wanted:
            ids, exact = again, True
        return as_prompt(
            spec,
            tokenizer,
            previous.index,
            Fitted(text, ids, exact, 0),
            turn=turn,
            shared=common_prefix(base, ids),
            repeated=self.repeated,
            frame=previous.frame_tokens,
        )

    def _message(
        self, previous: Prompt, turn: int, output_ids: Sequence[int], room: int
    ) -> tuple[int, ...]:
        """Ids of the user's next message with what stands around it, `room` of them."""
        opening, closing = self._glue(output_ids)

        def frame(head: str, body: bool) -> tuple[str, str]:
            return f"{opening}{head}{_PART if body else ''}", closing

        least = len(self.tokenizer.encode("".join(frame("a", False))))
        if room < least:
            raise CellError(
                f"{previous.id}: an answer of {len(output_ids)} tokens leaves {room} for the next "
                f"message of a session that grows by {growth_of(self.spec)} a turn.",
                f"Set growth to at least {len(output_ids) + least}, or fewer output tokens.",
            )
        return self._fragment(frame, previous.index, turn, 0.5, room)

    def _planned_answer(self, index: int, turn: int) -> tuple[int, ...]:
        start = "" if self.spec.template else _PART

        def frame(head: str, body: bool) -> tuple[str, str]:
            return f"{start}{head}{_PART if body else ''}", ""

        return self._fragment(frame, index, turn, 0.0, max(2, growth_of(self.spec) // 2))

    def _fragment(
        self, frame: Frame, index: int, turn: int, at: float, tokens: int
    ) -> tuple[int, ...]:
        """Exactly `tokens` ids from the stretch of text that belongs to the turn.

        Each turn has a stretch of the session's text to itself, whatever was answered: the
        planned answer is cut from its start, the user's words from its middle.
        """
        document, offset = self.place
        begin = self.loop.starts[document] + offset
        first = self.spec.tokens / total_tokens(self.spec)
        share = first + (1 - first) * (turn - 1 + at) / max(1, self.spec.turns - 1)
        place = self.loop.paragraph(*self.loop.place(begin + int(self.chars * share)))
        heads = Heads(replace(self.spec, seed=self.spec.seed + turn), self.tokenizer)
        around = len(self.tokenizer.prefix) + len(self.tokenizer.suffix)
        found = fit(
            frame,
            lambda words: heads.text(index, words),
            Heads.SHORT,
            self.loop.read(*place, tokens),
            tokens + around,
            self.tokenizer,
        )
        assert found is not None
        return found.ids[len(self.tokenizer.prefix) : len(found.ids) - len(self.tokenizer.suffix)]

    def _glue(self, output_ids: Sequence[int]) -> tuple[str, str]:
        """Text between the answer and the user's words, and after them."""
        if not self.spec.template:
            return _PART, ""
        return between_turns(self.tokenizer, self.spec.thinking, output_ids)


def between_turns(
    tokenizer: Tokenizer, thinking: bool | None, output_ids: Sequence[int]
) -> tuple[str, str]:
    """What the chat template writes between an answer and the user's next words, and after
    them; without the end of turn that the answer brought itself."""
    template = tokenizer.template
    assert template is not None  # the first turn was built with it
    roles = ("user", "assistant", "user")
    messages = [Message(r, m) for r, m in zip(roles, _MARKS, strict=True)]
    text = template.render(messages, thinking=thinking)
    opening = text.partition(_MARKS[1])[2].partition(_MARKS[2])[0]
    closing = text.partition(_MARKS[2])[2]
    stop = tokenizer.encode(opening)[:1]
    if stop and list(output_ids[-1:]) == stop:
        opening = opening[len(tokenizer.decode(stop)) :]
    return opening, closing


def open_sessions(
    spec: PromptSpec, tokenizer: Tokenizer, corpora_root: Path | None = None
) -> list[Session]:
    """One session an index, each with its first prompt built and disjoint text reserved."""
    loop = ring(open_source(spec.source, corpora_root), tokenizer)
    whole = replace(spec, tokens=total_tokens(spec), turns=1)
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


def total_tokens(spec: PromptSpec) -> int:
    """Tokens of the last turn, which holds all of a session."""
    return spec.tokens + (spec.turns - 1) * growth_of(spec)
