"""What a needle run proves, one fault at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qualify.checks.retrieval import check
from qualify.checks.settings import Settings
from qualify.engines.protocol import Sampling
from qualify.evals.nouns import Completion, Score
from qualify.evals.recall import recall_of
from qualify.evals.standing import standing_scores
from qualify.plan import EvalPlan, LaunchPlan, Plan, Side
from qualify.records.run import Run
from qualify.records.schema import CacheEvidence, Record, Timing, Usage
from qualify.report.heat import draw, heat_maps

LONG, LATER, FRESH = "8192/s0/t0", "8192/s0/t1", "fresh/1024/s0/t0"
SIZES = {LONG: 8192, LATER: 8250, FRESH: 1024}
CODES = ("K7-4410", "Q1-0093", "Z5-5582", "A8-7719", "L2-2046")
DEPTHS = (0.05, 0.3, 0.5, 0.7, 0.95)
ITEM = EvalPlan(
    "needles", "needles", ("codes",), "chat", Sampling(96), 1, "cold", 9.0,
    (LONG, LATER, FRESH), "f" * 64, options={"count": 5, "depths": None},
)  # fmt: skip


def answer(problem: str) -> Completion:
    record = Record(
        run="r", launch="l#1", round=1, side="mtp", mode="mtp", cell="needles", workload="needles",
        tokens=SIZES[problem], concurrency=1, phase="measured", index=0, turn=0, prompt_id=problem,
        prompt_sha256="p", request={}, request_sha256="q",
        started_at=f"2026-01-01T00:00:0{ITEM.problems.index(problem)}+00:00", t_start_s=0.0,
        ok=True, failure=None, http_status=200,
        usage=Usage(SIZES[problem], 40, 8192 if problem == LATER else 0),
        timing=Timing("first-event", 1.0, 1.0, 2.0, 2.0, 1, 1.0, 1.0, None, None, ()),
        finish_reason="stop", output_text=", ".join(CODES), reasoning_text=None, output_ids=None,
        output_sha256="s", speculation=None,
        cache=CacheEvidence("cold", "flush", 200, 0.01, 1), client_delay_ms=0.0,
    )  # fmt: skip
    placed = [
        {"code": c, "asked_depth": d, "depth": d + 0.001, "position": int(8192 * d)}
        for c, d in zip(CODES, DEPTHS, strict=True)
    ]
    evidence = {
        "prompt": {"needles": placed, "repeated": False},
        "counters": {"values": {"retractions": 0.0}, "problem": None},
    }
    return Completion("needles", problem, "b", f"mtp/{problem}", record, evidence)


def score(problem: str, found: int = 5) -> Score:
    needles = [
        {"code": c, "asked_depth": d, "found": i < found}
        for i, (c, d) in enumerate(zip(CODES, DEPTHS, strict=True))
    ]
    return Score(
        "needles", "mtp", problem, "codes", f"mtp/{problem}", "s", "scorer",
        "pass" if found == 5 else "fail", None if found == 5 else "missing",
        None if found == 5 else f"found {found} of 5",
        {
            "tokens": SIZES[problem],
            "role": "fresh" if problem == FRESH else "",
            "turn": int(problem == LATER),
            "needles": needles,
        },
    )  # fmt: skip


def run(
    edit: Callable[[Completion], Completion | None] = lambda c: c,
    scores: dict[str, int] | None = None,
) -> dict[str, Any]:
    made = [edit(answer(p)) for p in ITEM.problems]
    launch = LaunchPlan("l", 1, Side("mtp", "mtp", None, {}, {}), (), evals=(ITEM,))
    plan = Plan("h", {}, {}, {}, "mtp", (), (launch,), {})
    told = tuple(score(p, (scores or {}).get(p, 5)) for p in ITEM.problems)
    answers = tuple(c for c in made if c is not None)
    held = Run("r", Path("x"), plan, (), (), (), (), (), {}, answers, told)
    return {v.subject.partition(": ")[2]: v for v in check(held, Settings({}))}


def change(problem: str, **fields: Any) -> Callable[[Completion], Completion]:
    def edit(completion: Completion) -> Completion:
        if completion.problem != problem:
            return completion
        record = dataclasses.replace(completion.record, **fields)
        return dataclasses.replace(completion, record=record)

    return edit


def test_a_whole_run_has_every_proof() -> None:
    found = run()
    assert {name: v.outcome for name, v in found.items()} == dict.fromkeys(
        ("exact size", "cold", "retractions", "natural end", "depths", "later turns", "afterwards"),
        "pass",
    )
    assert "up to 8,250" in found["exact size"].sentence
    assert "Flush was answered 200" in found["afterwards"].sentence


@pytest.mark.parametrize(
    ("edit", "proof", "outcome", "says"),
    [
        (change(LONG, usage=Usage(8191, 40, 0)), "exact size", "fail", "8191 tokens of 8192"),
        (change(LONG, usage=Usage(None, 40, 0)), "exact size", "fail", "None"),
        (change(LONG, usage=Usage(8192, 40, 64)), "cold", "fail", "64 tokens"),
        (change(LONG, usage=Usage(8192, 40, None)), "cold", "inconclusive", "does not say"),
        (change(LATER, finish_reason="length"), "natural end", "fail", LATER),
        (change(LATER, usage=Usage(8250, 40, 0)), "later turns", "fail", "1 of 1"),
        (change(FRESH, usage=Usage(1024, 40, 8)), "afterwards", "fail", "8 of its tokens"),
        (
            change(FRESH, cache=CacheEvidence("cold", "flush", 400)),
            "afterwards",
            "fail",
            "answered 400",
        ),
        (change(FRESH, launch="l#2"), "afterwards", "inconclusive", "did not follow"),
        (change(LATER, started_at="2027"), "afterwards", "inconclusive", "did not follow"),
    ],
)  # fmt: skip
def test_each_fault_fails_its_own_proof_and_no_other(
    edit: Callable[[Completion], Completion], proof: str, outcome: str, says: str
) -> None:
    found = run(edit)
    assert found[proof].outcome == outcome
    assert says in found[proof].sentence
    others = {n for n, v in found.items() if v.outcome != "pass"} - {proof}
    assert others == set()


def test_retractions_that_are_not_reported_are_not_zero_and_decide_nothing() -> None:
    def silent(completion: Completion) -> Completion:
        return dataclasses.replace(completion, evidence={"prompt": completion.evidence["prompt"]})

    verdict = run(silent)["retractions"]
    assert (verdict.outcome, verdict.demanded) == ("not-run", False)


@pytest.mark.parametrize(("times", "outcome"), [(0, "pass"), (2, "fail")])
def test_an_answer_tells_its_retractions_itself(times: int, outcome: str) -> None:
    def uncounted(completion: Completion) -> Completion:
        record = dataclasses.replace(
            completion.record, extras={"meta_info": {"num_retractions": times}}
        )
        evidence = {"prompt": completion.evidence["prompt"]}
        return dataclasses.replace(completion, record=record, evidence=evidence)

    assert run(uncounted)["retractions"].outcome == outcome


def test_later_turns_that_leave_the_cache_aside_prove_nothing_of_it() -> None:
    bypass = CacheEvidence("cold", "bypass")
    verdict = run(change(LATER, cache=bypass, usage=Usage(8250, 40, 0)))["later turns"]
    assert (verdict.outcome, verdict.demanded) == ("not-run", False)


def test_a_retraction_fails() -> None:
    def one(completion: Completion) -> Completion:
        counters = {"values": {"retractions": 1.0}, "problem": None}
        return dataclasses.replace(
            completion, evidence={**completion.evidence, "counters": counters}
        )

    assert run(one)["retractions"].outcome == "fail"


def test_a_fresh_request_that_misses_a_code_fails_and_a_long_one_does_not_here() -> None:
    assert run(scores={FRESH: 4})["afterwards"].outcome == "fail"
    assert run(scores={LONG: 0})["afterwards"].outcome == "pass"


def test_without_every_answer_nothing_is_proven() -> None:
    found = run(lambda c: None if c.problem == LATER else c)
    assert [v.outcome for v in found.values()] == ["not-run"]


def test_the_heat_map_counts_first_turns_without_the_fresh_request() -> None:
    answers = {p: answer(p) for p in ITEM.problems}
    cells = recall_of(ITEM, "mtp", answers, standing_scores([score(LONG, 3), score(FRESH, 1)]))
    # Depths left to the seed are rounded to tenths: 0.05 and 0.95 go to 0.1 (or 0.0) and 0.9 (1.0).
    assert [(c.tokens, c.asked, c.found) for c in cells] == [
        (8192, 1, 1), (8192, 1, 1), (8192, 1, 1), (8192, 1, 0), (8192, 1, 0),
    ]  # fmt: skip
    (shown,) = heat_maps(cells)
    assert (shown.found, shown.asked) == (3, 5)
    picture = str(draw(shown))
    assert picture.count("heat4") == 3
    assert picture.count("heat0") == 2
    assert "8,192" in picture
    assert "style=" not in picture
