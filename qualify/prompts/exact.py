"""Prompts of exactly N token ids of real text."""

from __future__ import annotations

import hashlib
import math
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from qualify.errors import CellError, QualifyError
from qualify.prompts.corpus import Ring, ring
from qualify.prompts.draw import draw, spread
from qualify.prompts.fit import Fitted, fit
from qualify.prompts.frames import Frame, copy_frame, plain_frame, template_frame
from qualify.prompts.heads import Heads, lane
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.sources import open_source
from qualify.prompts.tokens import Tokenizer

REPETITIVE_RATIO = 0.2
SHARED_LIMIT = 16
# Parts of the loop of text from which each stream cuts: (start, width).
_REGIONS = ((0.0, 0.5), (0.5, 0.25), (0.75, 0.125), (0.875, 0.125))


def build(spec: PromptSpec, tokenizer: Tokenizer, corpora_root: Path | None = None) -> list[Prompt]:
    """The prompts of `spec`, in order of index (and of turn, in sessions).

    Each has exactly spec.tokens ids (BOS and template included) and a head of its own.
    Equal arguments give equal prompts in any process. Raises UsageError for a bad source,
    CellError where the source is too short or the shape cannot be built.
    """
    if spec.turns > 1:
        from qualify.prompts.sessions import build_sessions

        return build_sessions(spec, tokenizer, corpora_root)
    cut = cut_slices(spec, ring(open_source(spec.source, corpora_root), tokenizer), tokenizer)
    shared = frame_tokens(spec, tokenizer)
    prompts = [
        as_prompt(spec, tokenizer, index, piece.fitted, repeated=piece.repeated, frame=shared)
        for index, piece in enumerate(cut)
    ]
    check_distinct(prompts)
    return prompts


@dataclass(frozen=True)
class Slice:
    """One prompt's text and where the source stood after it (characters along the loop)."""

    fitted: Fitted
    end: int
    repeated: bool


def cut_slices(spec: PromptSpec, loop: Ring, tokenizer: Tokenizer) -> list[Slice]:
    """Disjoint slices: spread over the stream's part of the text, or packed where it is short."""
    if not loop.documents:
        raise CellError(f"{spec.source} holds no text.", "Give another source.")
    if not loop.corpus.whole:
        found = _spread_out(spec, loop, tokenizer)
        if found is not None:
            return found
    return _packed(spec, loop, tokenizer)


def _region(spec: PromptSpec, loop: Ring) -> tuple[float, float]:
    origin = draw("origin", spec.campaign, spec.workload, spec.tokens, spec.seed) / 2**64
    start, width = _REGIONS[lane(spec.stream)]
    return (origin + start) * loop.chars, width * loop.chars


def _spread_out(spec: PromptSpec, loop: Ring, tokenizer: Tokenizer) -> list[Slice] | None:
    start, width = _region(spec, loop)
    gap = width / 2 ** math.ceil(math.log2(spec.count))
    if spec.tokens > gap:  # a token is hardly ever less than a character
        return None
    heads = Heads(spec, tokenizer)
    found = []
    for index in range(spec.count):
        position = int(start + width * spread(index)) % loop.chars
        document, offset = loop.paragraph(*loop.place(position))
        fitted = _one(spec, loop, tokenizer, heads, index, (document, offset))
        begin = loop.starts[document] + offset
        if (begin - position) % loop.chars + fitted.chars > gap:
            return None
        found.append(Slice(fitted, begin + fitted.chars, False))
    return found


def _packed(spec: PromptSpec, loop: Ring, tokenizer: Tokenizer) -> list[Slice]:
    start = int(_region(spec, loop)[0]) % loop.chars
    document, offset = loop.paragraph(*loop.place(start))
    if loop.corpus.whole:
        offset = 0
    heads = Heads(spec, tokenizer)
    used = 0
    found = []
    for index in range(spec.count):
        fitted = _one(spec, loop, tokenizer, heads, index, (document, offset))
        begin = loop.starts[document] + offset
        end = begin + fitted.chars
        if loop.corpus.whole:
            last_used = loop.place(end - 1)[0]
            document, offset = (last_used + 1) % len(loop.documents), 0
        else:
            document, offset = loop.word(*loop.place(end))
        following = loop.starts[document] + offset
        used += max(fitted.chars, (following - begin) % loop.chars)
        if used > loop.chars and not spec.repeat:
            raise too_short(spec, loop)
        found.append(Slice(fitted, end, used > loop.chars))
    return found


def too_short(spec: PromptSpec, loop: Ring) -> CellError:
    """The refusal of a source with too little text for the shape."""
    total = loop.total_tokens()
    each = max(1, total // spec.tokens)
    need = spec.tokens * spec.count
    return CellError(
        f"{spec.source} has {total:,} tokens with this tokenizer; {spec.count} prompts of "
        f"{spec.tokens:,} need {need:,} (at most {each if need > total else spec.count - 1} fit).",
        "Ask for fewer or shorter prompts, give a larger source, or set `repeat: true`, "
        "which labels the prompts repetitive.",
    )


def _one(
    spec: PromptSpec,
    loop: Ring,
    tokenizer: Tokenizer,
    heads: Heads,
    index: int,
    place: tuple[int, int],
) -> Fitted:
    frame: Frame = plain_frame
    if spec.template:
        frame = template_frame(tokenizer, spec.thinking)
    if spec.source == "corpora/copy":
        frame = copy_frame(frame, _opening(spec, loop, tokenizer, place))
    return fit(
        frame,
        lambda words: heads.text(index, words),
        Heads.SHORT,
        loop.read(*place, spec.tokens),
        spec.tokens,
        tokenizer,
    )


def _opening(spec: PromptSpec, loop: Ring, tokenizer: Tokenizer, place: tuple[int, int]) -> str:
    """The first sixth of the document to be copied, up to the end of a word."""
    document, offset = place
    text = loop.documents[document].text[offset : offset + spec.tokens * 8]
    wanted = len(tokenizer.decode(tokenizer.encode(text)[: max(4, spec.tokens // 6)]))
    cut = text.rfind(" ", 0, wanted)
    return text[: cut if cut > 0 else wanted].rstrip()


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

    In sorted order the longest shared prefix is between neighbours, so one pass is enough.
    """
    first_turns = sorted((p for p in prompts if p.turn == 0), key=lambda p: p.ids)
    for a, b in pairwise(first_turns):
        shared = common_prefix(a.ids, b.ids) - min(a.frame_tokens, b.frame_tokens)
        if shared >= SHARED_LIMIT or a.ids == b.ids:
            raise QualifyError(
                f"Prompts {a.id} and {b.id} share their first {shared} tokens.",
                "Ask for longer prompts or fewer of them: short ones leave no room for a title.",
            )
