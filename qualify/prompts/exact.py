"""Prompts of exactly N token ids of real text."""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from qualify.errors import CellError, QualifyError
from qualify.prompts.chat import fit_conversation
from qualify.prompts.corpus import Ring, ring
from qualify.prompts.fit import Fitted, fit
from qualify.prompts.frames import Frame, copy_frame, plain_frame, template_frame
from qualify.prompts.heads import Heads
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.recall import recall_frame, table
from qualify.prompts.slices import Cut, Place, cut_slices
from qualify.prompts.sources import open_source
from qualify.prompts.tokens import Tokenizer

REPETITIVE_RATIO = 0.2
SHARED_LIMIT = 16


def build(
    spec: PromptSpec,
    tokenizer: Tokenizer,
    corpora_root: Path | None = None,
    *,
    need_text: bool = False,
) -> list[Prompt]:
    """The prompts of `spec`, in order of index (and of turn, in sessions).

    Each has exactly spec.tokens ids (BOS and template included) and a head of its own.
    Equal arguments give equal prompts in any process. With `need_text` (an engine that takes
    text only) a prompt whose text does not encode to N tokens is refused. Raises UsageError
    for a bad source, CellError where it is too short or the shape cannot be built.
    """
    if spec.count < 1:  # a workload without warm-up
        return []
    nearest: list[int | None] = [None] * (spec.count * spec.turns)
    if spec.turns > 1:
        from qualify.prompts.sessions import build_sessions

        prompts = build_sessions(spec, tokenizer, corpora_root)
    else:
        loop = ring(open_source(spec.source, corpora_root), tokenizer)
        shared = frame_tokens(spec, tokenizer)
        slices = cut_slices(spec, loop, cutter(spec, loop, tokenizer))
        nearest = [s.fitted.nearest for s in slices]
        prompts = [
            as_prompt(spec, tokenizer, i, s.fitted, repeated=s.repeated, frame=shared)
            for i, s in enumerate(slices)
        ]
    check_distinct(prompts)
    if not need_text:
        return prompts
    return [exact_text(p, tokenizer, n) for p, n in zip(prompts, nearest, strict=True)]


def cutter(spec: PromptSpec, loop: Ring, tokenizer: Tokenizer) -> Cut:
    """How one prompt of `spec` is cut from a place in its source."""
    heads = Heads(spec, tokenizer)

    def cut(index: int, place: Place, most_chars: float) -> Fitted | None:
        def head(words: int) -> str:
            return heads.text(index, words)

        document, offset = place
        if spec.template and loop.documents[document].messages:
            return fit_conversation(spec, loop, tokenizer, head, document)
        frame: Frame = plain_frame
        if spec.template:
            frame = template_frame(tokenizer, spec.thinking)
        if spec.source == "corpora/copy":
            frame = copy_frame(frame, _opening(spec, loop, tokenizer, place))
        if spec.source == "corpora/recall":
            frame = recall_frame(frame, table(spec, index))
        return fit(
            frame,
            head,
            Heads.SHORT,
            loop.read(document, offset, spec.tokens),
            spec.tokens,
            tokenizer,
            most_chars=most_chars,
        )

    return cut


def _opening(spec: PromptSpec, loop: Ring, tokenizer: Tokenizer, place: Place) -> str:
    """The first part of the document to be copied, three tenths of the prompt, in words.

    Less than that and a small model does not fall into copying; more leaves little to copy.
    """
    wanted = max(4, spec.tokens * 3 // 10)
    text, have = "", 0
    for segment in loop.read(*place, wanted):
        text += segment.text
        have += len(segment.ids)
        if have > wanted:
            break
    size = len(tokenizer.decode(tokenizer.encode(text)[:wanted]))
    cut = text.rfind(" ", 0, size)
    return text[: cut if cut > 0 else size].rstrip()


def frame_tokens(spec: PromptSpec, tokenizer: Tokenizer) -> int:
    """Leading tokens that every prompt of this spec shares: BOS and the template's opening."""
    if not spec.template:
        return len(tokenizer.prefix)
    frame = template_frame(tokenizer, spec.thinking)
    heads = [tokenizer.encode(frame(word, True)[0]) for word in ("alpha", "Zulu", "9")]
    return len(tokenizer.prefix) + min(common_prefix(heads[0], h) for h in heads[1:])


def as_prompt(
    spec: PromptSpec,
    tokenizer: Tokenizer,
    index: int,
    fitted: Fitted,
    *,
    turn: int = 0,
    shared: int = 0,
    repeated: bool = False,
    frame: int = 0,
) -> Prompt:
    """The noun for a fitted text, with its hash and its class."""
    raw = fitted.text.encode("utf-8", "replace")
    ratio = len(zlib.compress(raw, 6)) / max(1, len(raw))
    name = f"{spec.workload}@{spec.tokens}/{spec.stream}/{index}"
    return Prompt(
        id=name if spec.turns == 1 else f"{name}.{turn}",
        ids=fitted.ids,
        text=fitted.text,
        text_exact=fitted.exact,
        sha256=ids_sha256(fitted.ids),
        compress_ratio=round(ratio, 4),
        klass="repetitive" if repeated or ratio < REPETITIVE_RATIO else "natural",
        index=index,
        turn=turn,
        shared_prefix=shared,
        template_sha256=tokenizer.template_sha256 if spec.template else None,
        frame_tokens=frame,
    )


def exact_text(prompt: Prompt, tokenizer: Tokenizer, nearest: int | None = None) -> Prompt:
    """The prompt, if its text is proven to encode to exactly as many tokens as its ids.

    Where it encodes to as many but other tokens, the ids become those of the text. Raises
    CellError with the reason and the nearest length that a text reaches (`nearest`, if the
    builder found one).
    """
    if prompt.text_exact:
        return prompt
    ids = (*tokenizer.prefix, *tokenizer.encode(prompt.text), *tokenizer.suffix)
    if len(ids) == len(prompt.ids):
        return replace(prompt, ids=ids, sha256=ids_sha256(ids), text_exact=True)
    reached = nearest or len(ids)
    raise CellError(
        f"{prompt.id}: no text of exactly {len(prompt.ids):,} tokens was found, because this "
        "tokenizer does not encode its own output back to the same ids. "
        f"The nearest reachable length is {reached:,}.",
        f"Set tokens to {reached:,}, or use an engine that takes token ids.",
    )


def ids_sha256(ids: Sequence[int]) -> str:
    """SHA-256 over the ids as little-endian unsigned 32-bit integers."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return hashlib.sha256(packed.tobytes()).hexdigest()


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids two sequences share."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def check_distinct(prompts: Sequence[Prompt]) -> None:
    """Raises QualifyError if two prompts share 16 leading tokens beyond frame and session.

    Give it all prompts of a plan: in sorted order the longest shared prefix is between
    neighbours, so one pass is enough. Prompts of different streams may share none.
    """
    opening = sorted((p for p in prompts if p.turn == 0), key=lambda p: p.ids)
    for a, b in pairwise(opening):
        if a.id == b.id and a.ids == b.ids:
            continue  # the same prompt, measured again at another concurrency
        shared = common_prefix(a.ids, b.ids) - min(a.frame_tokens, b.frame_tokens)
        streams = {p.id.rsplit("/", 2)[0] + p.id.rsplit("/", 2)[1] for p in (a, b)}
        same_workload = a.id.rsplit("/", 2)[0] == b.id.rsplit("/", 2)[0]
        limit = 1 if len(streams) > 1 and same_workload else SHARED_LIMIT
        if shared >= limit or a.ids == b.ids:
            raise QualifyError(
                f"Prompts {a.id} and {b.id} share their first {shared} tokens.",
                "Ask for longer prompts or fewer of them: short ones leave no room for a title.",
            )
