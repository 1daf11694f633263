"""The recommendation table: a row for each band of work, and for what lies between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis import band_words as words
from qualify.analysis.pairs import PairResult
from qualify.analysis.recommend import MIXED, Row
from qualify.analysis.sides import SideCell

MEASURED, CACHED, HIGH_ACCEPTANCE = "measured", "cached prefix", "high acceptance"
LONG_PREFILL = 0.5  # of the whole answer: from here on a decode lead hardly shows in one answer


@dataclass(frozen=True)
class Band:
    """One row of the table.

    kind: measured (neighbouring prompt lengths of one workload with the same answer), cached
    prefix (repeated turns where only cold cells were measured and prefill dominates them),
    mixed or unknown, high acceptance (prompts on which another mode commits more).
    settled False: a default, or an inference, that no comparison decided. also: ties with it.
    whole_answer: what holds of time to the last token where that differs from decode.
    evidence: the cells that it stands on.
    """

    kind: str
    name: str
    workload: str | None
    tokens_from: int | None
    tokens_to: int | None
    concurrency: int | None
    cache: str | None
    mode: str | None
    settled: bool
    also: tuple[str, ...]
    why: str
    sure: str
    reverse: str
    whole_answer: str | None
    evidence: tuple[str, ...]
    refused: dict[str, list[str]]


def bands(
    baseline: str, rows: Sequence[Row], pairs: Sequence[PairResult], sides: Sequence[SideCell]
) -> list[Band]:
    """From the rows of single cells, in plan order; what was not measured is not told of."""
    groups: dict[tuple[str, int | None, str | None], list[Row]] = {}
    for row in rows:
        if row.cell is not None:
            groups.setdefault((row.workload, row.concurrency, row.cache), []).append(row)
    table: list[Band] = []
    for group in groups.values():
        ordered = sorted(group, key=lambda r: r.tokens or 0)
        for _, same in itertools.groupby(ordered, key=_answer):
            table.append(_measured(baseline, list(same), pairs))
    table += [told for band in table if (told := _cached(baseline, band, table, pairs)) is not None]
    mixed = next((r for r in rows if r.cell is None), None)
    if mixed is not None:
        table.append(_mixed(mixed, sides))
        table += _high_acceptance(baseline, mixed, table, pairs)
    return table


def _answer(row: Row) -> tuple[object, ...]:
    return row.mode, row.also, row.settled, tuple(sorted(row.refused))


def _rivals(baseline: str, cells: Sequence[str], pairs: Sequence[PairResult]) -> list[PairResult]:
    return [p for p in pairs if p.reference == baseline and p.cell in cells and p.decode]


def _measured(baseline: str, rows: list[Row], pairs: Sequence[PairResult]) -> Band:
    first, last = rows[0], rows[-1]
    cells = tuple(r.cell for r in rows if r.cell is not None)
    here = _rivals(baseline, cells, pairs)
    single = len(rows) == 1
    return Band(
        kind=MEASURED,
        name=words.span(first.workload, first.tokens, last.tokens, first.concurrency, first.cache),
        workload=first.workload,
        tokens_from=first.tokens,
        tokens_to=last.tokens,
        concurrency=first.concurrency,
        cache=first.cache,
        mode=first.mode,
        settled=first.settled,
        also=first.also,
        why=first.why if single else words.why(rows, here),
        sure=words.weakest([r.sure for r in rows]),
        reverse=first.reverse if single else words.reverse(baseline, first.mode, here),
        whole_answer=_whole_answer(first.mode, baseline, here),
        evidence=cells,
        refused=first.refused,
    )


def _whole_answer(mode: str | None, baseline: str, here: Sequence[PairResult]) -> str | None:
    """Said where decode is decided and prefill makes the whole answer a tie."""
    for pair in here:
        decode, wall = pair.decode, pair.wall
        if decode is None or wall is None or mode not in (pair.side, baseline):
            continue
        if decode.outcome in ("ahead", "behind") and wall.outcome == "tied":
            return words.either(pair, mode)
    return None


def _cached(
    baseline: str, band: Band, table: Sequence[Band], pairs: Sequence[PairResult]
) -> Band | None:
    """What a cold band says of later turns: decode counts, prefill is not paid again."""
    if band.cache != "cold" or band.mode is None or not band.settled or band.also:
        return None
    here = _rivals(baseline, band.evidence, pairs)
    share = max((p.prefill_share or 0.0 for p in here), default=0.0)
    decided = [p for p in here if p.decode and p.decode.outcome in ("ahead", "behind")]
    measured = any(
        b.cache in ("warm", "session")
        and b.kind == MEASURED
        and b.concurrency == band.concurrency
        and (b.tokens_to or 0) >= (band.tokens_to or 0)
        for b in table
    )
    if share < LONG_PREFILL or not decided or measured or band.whole_answer is None:
        return None
    return Band(
        kind=CACHED,
        name=words.cached_name(band.workload, band.tokens_from, band.tokens_to),
        workload=band.workload,
        tokens_from=band.tokens_from,
        tokens_to=band.tokens_to,
        concurrency=band.concurrency,
        cache="cached",
        mode=band.mode,
        settled=False,
        also=(),
        why=words.why_cached(band.mode, share),
        sure="inferred from cold cells: no cached prefix was measured at this length",
        reverse="a measurement with `cache: warm` or `cache: session`",
        whole_answer=None,
        evidence=band.evidence,
        refused=band.refused,
    )


def _mixed(row: Row, sides: Sequence[SideCell]) -> Band:
    varied = words.acceptance_spread(sides)
    return Band(
        kind=MIXED,
        name=MIXED,
        workload=None,
        tokens_from=None,
        tokens_to=None,
        concurrency=None,
        cache=None,
        mode=row.mode,
        settled=row.settled,
        also=row.also,
        why=f"{row.why} {varied}".strip() if row.mode else row.why,
        sure=row.sure,
        reverse=row.reverse,
        whole_answer=None,
        evidence=row.evidence,
        refused=row.refused,
    )


def _high_acceptance(
    baseline: str, mixed: Row, table: Sequence[Band], pairs: Sequence[PairResult]
) -> list[Band]:
    """A mode that leads somewhere and is not the choice for mixed work: where it would pay."""
    rows = []
    for side in dict.fromkeys(b.mode for b in table if b.kind == MEASURED and b.mode):
        won = [b for b in table if b.kind == MEASURED and b.mode == side]
        cells = [c for b in won for c in b.evidence]
        here = [p for p in _rivals(baseline, cells, pairs) if p.side == side]
        if side in (mixed.mode, baseline) or side in mixed.refused or not here:
            continue
        rows.append(
            Band(
                kind=HIGH_ACCEPTANCE,
                name=f"prompts on which {side} is measured to commit more",
                workload=None,
                tokens_from=None,
                tokens_to=None,
                concurrency=None,
                cache=None,
                mode=side,
                settled=False,
                also=(),
                why=words.why_accepted(side, baseline, here),
                sure="after measuring acceptance on your own prompts",
                reverse=words.accepted_reverse(side, here),
                whole_answer=None,
                evidence=tuple(cells),
                refused={},
            )
        )
    return rows
