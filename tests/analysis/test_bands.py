"""The table of bands: what it merges, what it infers, and that it contradicts nothing."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from qualify.analysis.analyse import Analysis, analyse
from qualify.analysis.bands import CACHED, HIGH_ACCEPTANCE, MEASURED, Band, bands
from qualify.analysis.outcomes import Finding
from qualify.analysis.pairs import PairResult
from qualify.analysis.recommend import MIXED, recommend
from qualify.checks.all import run_checks
from qualify.checks.verdict import Verdict
from tests.factory import Maker, Mode, Work, drafting, editing, target, where

RATIOS = {"ahead": 1.1, "behind": 0.9, "tied": 1.0, "not enough data": 1.02}


def finding(outcome: str, *, n: int = 10) -> Finding:
    ratio = RATIOS[outcome]
    return Finding(
        ratio, ratio / 1.02, ratio * 1.02, "prompts", n, "within these launches only", 0.03,
        outcome, "",
    )  # fmt: skip


# The directions of the article's tables, DFlash2 against MTP: tied at 8K; MTP ahead at 16K and
# from 32K to 131K; DFlash2 ahead near native 256K; at 1M MTP ahead in decode, while one whole
# answer is nearly all prefill.
ARTICLE = {
    8192: ("tied", None),
    16384: ("behind", None),
    32768: ("behind", None),
    65536: ("behind", None),
    131072: ("behind", None),
    260992: ("ahead", None),
    1_000_000: ("behind", "tied"),
}


def article_table() -> list[Band]:
    run = Maker(
        sides={"mtp": drafting("mtp"), "dflash2": drafting("dflash2")},
        works=(
            Work("ten-prompts", (8192, 16384)),
            Work("long", (32768, 65536, 131072, 260992)),
            Work("retrieval", (1_000_000,)),
        ),
        output_tokens=31,
    ).build()
    found = analyse(run, ())
    pairs = []
    for pair in found.pairs:
        decode, wall = ARTICLE[pair.tokens]
        pairs.append(
            dataclasses.replace(
                pair, decode=finding(decode), wall=None if wall is None else finding(wall)
            )
        )
    rows = recommend(run.plan, found.cells, pairs, ())
    return bands("mtp", rows, pairs, found.sides)


def test_the_articles_directions_give_its_eight_rows() -> None:
    table = article_table()
    assert [(b.kind, b.workload, b.tokens_from, b.tokens_to, b.mode, b.also) for b in table] == [
        (MEASURED, "ten-prompts", 8192, 8192, "mtp", ("dflash2",)),
        (MEASURED, "ten-prompts", 16384, 16384, "mtp", ()),
        (MEASURED, "long", 32768, 131072, "mtp", ()),
        (MEASURED, "long", 260992, 260992, "dflash2", ()),
        (MEASURED, "retrieval", 1_000_000, 1_000_000, "mtp", ()),
        (CACHED, "retrieval", 1_000_000, 1_000_000, "mtp", ()),
        (MIXED, None, None, None, "mtp", ()),
        (HIGH_ACCEPTANCE, None, None, None, "dflash2", ()),
    ]
    tied, _, _, boundary, retrieval, repeated, mixed, accepted = table
    assert "effectively tied" in tied.why
    assert retrieval.whole_answer is not None
    assert "Either for a single whole answer" in retrieval.whole_answer
    assert "mtp for decode" in retrieval.whole_answer
    assert "Later turns do not pay the prefill again" in repeated.why
    assert not repeated.settled
    assert "Accept length over the cells" in mixed.why
    assert "loses least" in mixed.why
    assert accepted.evidence == boundary.evidence == ("long@260992/c1",)
    assert "measuring acceptance on your own prompts" in accepted.sure
    for band in table:
        assert band.why
        assert band.sure
        assert band.reverse
        assert "lossless" not in f"{band.why} {band.sure} {band.reverse}".lower()


def test_neighbouring_lengths_with_the_same_answer_are_one_band() -> None:
    table = article_table()
    (band,) = [b for b in table if (b.workload, b.mode) == ("long", "mtp")]
    assert band.evidence == ("long@32768/c1", "long@65536/c1", "long@131072/c1")
    assert band.name == "long, 32,768 to 131,072 tokens"
    assert "is behind, 0.90\u00d7 of mtp's decode speed, at 32,768, 65,536 and 131,072" in band.why


def test_concurrency_and_cache_make_bands_of_their_own() -> None:
    works = (Work("code", (256, 1024), concurrency=(1, 2)), Work("chat", (256,), cache="warm"))
    run = Maker(sides={"target-only": target(), "mtp": drafting()}, works=works).build()
    measured = [b for b in analyse(run, ()).bands if b.kind == MEASURED]
    assert [b.name for b in measured] == [
        "code, 256 to 1,024 tokens",
        "code, 256 to 1,024 tokens, 2 at once",
        "chat, 256 tokens, warm",
    ]


def test_a_cached_prefix_that_was_measured_is_not_inferred() -> None:
    works = (Work("long", (32768,)), Work("turns", (32768,), cache="session"))
    sides = {"target-only": target(10.0), "mtp": drafting(cycle_ms=15.0)}
    table = analyse(Maker(sides=sides, works=works, output_tokens=31).build(), ()).bands
    assert [b.kind for b in table] == [MEASURED, MEASURED, MIXED]
    alone = Maker(sides=sides, works=works[:1], output_tokens=31).build()
    table = analyse(alone, ()).bands
    assert [b.kind for b in table] == [MEASURED, CACHED]
    assert table[0].whole_answer is not None
    assert "99% of it is prefill" in table[0].whole_answer


def contradictions(
    baseline: str, found: Analysis, verdicts: tuple[Verdict, ...]
) -> list[tuple[Band, str]]:
    """What the table says against the verdicts and outcomes, found from these alone."""
    wrong = []
    outcome: dict[tuple[str, str], PairResult] = {
        (p.side, p.cell): p for p in found.pairs if p.reference == baseline
    }
    for band in found.bands:
        named = [s for s in (band.mode, *band.also) if s]
        for v in verdicts:
            cell = v.evidence.get("cell")
            if v.outcome == "fail" and v.demanded and (cell is None or cell in band.evidence):
                wrong += [(band, v.check) for side in named if v.evidence.get("side") == side]
        if band.kind != MEASURED:
            continue
        for cell in band.evidence:
            leads = [
                s
                for (s, c), p in outcome.items()
                if c == cell and p.decode and p.decode.outcome == "ahead" and p.proposed != 0
            ]
            if band.mode == baseline and set(leads) - set(band.refused):
                wrong.append((band, f"{leads} lead"))
            if band.mode not in (None, baseline) and band.mode not in leads:
                wrong.append((band, "does not lead"))
            for side in band.also:
                pair = outcome.get((side, cell))
                lead = pair is not None and side in leads
                if not lead and (
                    pair is None or pair.decode is None or pair.decode.outcome != "tied"
                ):
                    wrong.append((band, f"{side} does not tie"))
    return wrong


@pytest.mark.parametrize("seed", range(25))
def test_no_band_contradicts_the_verdicts_or_the_outcomes_on_any_run(seed: int) -> None:
    rng = random.Random(seed)
    modes: dict[str, Mode] = {"target-only": target()}
    for name in ("mtp", "dflash2", "ngram"):
        modes[name] = drafting(name, rng.uniform(8, 40), 4, [rng.randrange(4) for _ in range(3)])
    faults: list[dict[str, Any]] = [
        {"output_ids": (1, 2)},
        {"usage__cached_tokens": 9},
        {"usage__completion_tokens": 5},
        {"ok": False},
        {"speculation": None},
    ]
    edits = [
        editing(where(side=rng.choice(list(modes)), index=rng.randrange(4)), **rng.choice(faults))
        for _ in range(rng.randrange(3))
    ]

    def edit(record):  # type: ignore[no-untyped-def]
        for one in edits:
            record = one(record)
        return record

    works = (Work("prose", (256, 1024, 4096), concurrency=(1, 2)), Work("long", (65536,)))
    run = Maker(
        sides=modes,
        works=works,
        edit=edit,
        rounds=rng.choice((1, 3)),
        clock_noise=lambda *_: rng.uniform(0.97, 1.03),
    ).build()
    verdicts = run_checks(run)
    assert contradictions("target-only", analyse(run, verdicts), verdicts) == []


def test_a_contradiction_would_be_seen() -> None:
    edit = editing(where(side="mtp", index=0), output_ids=(1, 2, 3))
    run = Maker(sides={"target-only": target(), "mtp": drafting()}, edit=edit).build()
    verdicts = tuple(
        dataclasses.replace(v, evidence={**v.evidence, "side": "mtp"})
        for v in run_checks(run)
        if v.outcome == "fail"
    )
    found = analyse(run, ())
    assert found.bands[0].mode == "mtp"
    assert contradictions("target-only", found, verdicts) != []
