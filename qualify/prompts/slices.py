"""Which stretch of the source each prompt is cut from.

Every stream has its own part of the loop of text, and inside it the slices lie evenly
spread, so that a few prompts already see all of a corpus. Where the text is too short for
that, slices are packed one behind the other; where even that is too short, it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from qualify.errors import CellError
from qualify.prompts.corpus import Ring
from qualify.prompts.draw import draw, spread
from qualify.prompts.fit import Fitted
from qualify.prompts.heads import lane
from qualify.prompts.prompt import PromptSpec

# Parts of the loop from which each stream cuts: (start, width), in the order of the lanes.
_REGIONS = ((0.0, 0.5), (0.5, 0.25), (0.75, 0.125), (0.875, 0.125))

Place = tuple[int, int]  # document, offset in characters
# cut(index, place, most_chars) -> the prompt, or None if it needs more than most_chars
Cut = Callable[[int, Place, float], Fitted | None]


@dataclass(frozen=True)
class Slice:
    """One prompt, where its text begins, and whether the source was used a second time."""

    fitted: Fitted
    place: Place
    repeated: bool


def cut_slices(spec: PromptSpec, loop: Ring, cut: Cut) -> list[Slice]:
    """Disjoint slices, one an index. Raises CellError where the source is too short."""
    if not loop.documents:
        raise CellError(f"{spec.source} holds no text.", "Give another source.")
    if not loop.corpus.whole:
        found = _spread_out(spec, loop, cut)
        if found is not None:
            return found
    return _packed(spec, loop, cut)


def _region(spec: PromptSpec, loop: Ring) -> tuple[float, float]:
    origin = draw("origin", spec.campaign, spec.workload, spec.tokens, spec.seed) / 2**64
    start, width = _REGIONS[lane(spec.stream)]
    return (origin + start) * loop.chars, width * loop.chars


def _spread_out(spec: PromptSpec, loop: Ring, cut: Cut) -> list[Slice] | None:
    start, width = _region(spec, loop)
    gap = width / 2 ** math.ceil(math.log2(spec.count))
    if spec.tokens > gap:  # a token is hardly ever less than a character
        return None
    found = []
    for index in range(spec.count):
        position = int(start + width * spread(index)) % loop.chars
        document, offset = loop.paragraph(*loop.place(position))
        begin = loop.starts[document] + offset
        room = gap - (begin - position) % loop.chars
        fitted = cut(index, (document, offset), room)
        if fitted is None or fitted.chars > room:
            return None
        found.append(Slice(fitted, (document, offset), False))
    return found


def _packed(spec: PromptSpec, loop: Ring, cut: Cut) -> list[Slice]:
    document, offset = loop.place(int(_region(spec, loop)[0]))
    document, offset = (document, 0) if loop.corpus.whole else loop.paragraph(document, offset)
    used = 0
    found = []
    for index in range(spec.count):
        fitted = cut(index, (document, offset), math.inf)
        assert fitted is not None  # only a limit on the text makes it None
        begin = loop.starts[document] + offset
        end = begin + max(1, fitted.chars)
        if loop.corpus.whole:
            following = ((loop.place(end - 1)[0] + 1) % len(loop.documents), 0)
        else:
            following = loop.word(*loop.place(end))
        advance = (loop.starts[following[0]] + following[1] - begin) % loop.chars
        used += max(fitted.chars, advance)
        if used > loop.chars and not spec.repeat:
            raise _too_short(spec, loop, index)
        found.append(Slice(fitted, (document, offset), used > loop.chars))
        document, offset = following
    return found


def _too_short(spec: PromptSpec, loop: Ring, possible: int) -> CellError:
    total = f"{loop.total_tokens():,} tokens with this tokenizer"
    if loop.corpus.whole:
        total += f" in {len(loop.documents):,} prompts, each used once"
    return CellError(
        f"{spec.source} has {total}; that is enough for {possible} of the {spec.count} prompts of "
        f"{spec.tokens:,} tokens ({spec.tokens * spec.count:,} in all).",
        "Ask for fewer or shorter prompts, give a larger source, or set `repeat: true`, "
        "which labels the prompts repetitive.",
    )
