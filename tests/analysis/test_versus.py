"""Two runs compared: only like with like, and what differs is found as large as it is."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest

from qualify.analysis.outcomes import judge_apart
from qualify.analysis.versus import LikeCell, versus
from qualify.cli.app import run as cli
from qualify.records.run import Run
from qualify.records.schema import CacheEvidence
from tests.factory import Edit, Maker, Work, drafting, editing, target, where
from tests.report.folder import write_run


def made(id_: str, cycle_ms: float = 10.0, **more: object) -> Run:
    sides = {"target-only": target(cycle_ms), "mtp": drafting(cycle_ms=12.0)}
    more.setdefault("works", (Work(tokens=(256, 1024)),))
    run = Maker(sides=sides, output_tokens=31, self_parity=False, **more).build()  # type: ignore[arg-type]
    return dataclasses.replace(run, id=id_)


def cell(before: Run, after: Run, side: str = "target-only") -> LikeCell:
    return next(c for c in versus(before, after, 0.03).cells if c.side == side)


def test_a_slower_version_is_seen_in_the_mode_that_slowed_and_in_no_other() -> None:
    before, after = made("a"), made("b", 12.5)
    slowed = cell(before, after)
    assert slowed.decode is not None
    assert slowed.decode.ratio == pytest.approx(0.8)
    assert slowed.decode.outcome == "behind"
    assert slowed.throughput is not None
    assert slowed.throughput.ratio < 1
    same = cell(before, after, "mtp")
    assert same.decode is not None
    assert same.decode.ratio == pytest.approx(1.0)
    assert same.decode.outcome == "tied"
    assert same.accept_length is not None
    assert same.accept_length.ratio == pytest.approx(1.0)


def test_more_accepted_drafts_are_better_and_a_longer_first_token_is_worse() -> None:
    better = editing(where(side="mtp"), speculation__C=lambda r: r.speculation.C * 2)
    later = editing(where(side="mtp"), timing__ttft_s=lambda r: r.timing.ttft_s * 1.5)
    found = cell(made("a"), made("b", edit=lambda r: later(better(r))), "mtp")
    assert found.accept_length is not None
    assert found.accept_length.ratio == pytest.approx(5 / 3)  # 1 + 2 against 1 + 4
    assert found.ttft is not None
    assert found.ttft.ratio == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (
            editing(where(), cache=CacheEvidence("warm", "none")),
            "cache policy differs: cold then, warm now",
        ),
        (
            editing(where(), request=lambda r: {**r.request, "temperature": 0.7}),
            "temperature differs: 0.0 then, 0.7 now",
        ),
        (
            editing(where(), prompt_sha256=lambda r: "x" + r.prompt_sha256),
            "no hash is in both runs",
        ),
        (editing(where(), tokens=300), "prompt tokens differs: 256 then, 300 now"),
        (editing(where(), ok=False), "b has no request of it that counts"),
    ],
)
def test_what_was_not_measured_alike_is_listed_with_the_reason(edit: Edit, why: str) -> None:
    found = versus(made("a"), made("b", edit=edit), 0.03)
    assert found.cells == ()
    assert len(found.unlike) == 4
    assert why in found.unlike[0].why


def test_cells_of_one_run_alone_are_listed_as_such() -> None:
    found = versus(made("a"), made("b", works=(Work(tokens=(256,)),)), 0.03)
    assert [u.cell for u in found.unlike] == ["prose@1024/c1", "prose@1024/c1"]
    assert "only a plans it" in found.unlike[0].why


def test_prompts_whose_outputs_differ_in_length_stay_out() -> None:
    shorter = editing(where(index=0), usage__completion_tokens=12)
    assert cell(made("a"), made("b", edit=shorter)).prompts == 3


def test_unpaired_launches_are_judged_by_welchs_interval() -> None:
    # Equal spreads: Welch's test is Student's with 4 degrees of freedom, t = 2.776445.
    before, after = [0.10, 0.12, 0.14], [0.00, 0.02, 0.04]
    found = judge_apart(before, after, 0.0)
    assert found is not None
    half = 2.776445 * math.sqrt(2 * 0.0004 / 3)
    assert found.ratio == pytest.approx(math.exp(0.1))
    assert found.low == pytest.approx(math.exp(0.1 - half), rel=1e-6)
    assert found.df == pytest.approx(4.0)
    few = judge_apart(before[:2], after, 0.0)
    assert few is not None
    assert (few.basis, few.low, few.outcome) == ("one", None, "not enough data")


def test_intervals_between_runs_hold_the_truth_about_95_times_in_100() -> None:
    rng, held = random.Random(6), 0
    for _ in range(1000):
        before = [rng.gauss(math.log(1.2), 0.03) for _ in range(4)]
        after = [rng.gauss(0, 0.01) for _ in range(5)]
        found = judge_apart(before, after, 0.03)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.2 <= found.high
    assert 0.93 <= held / 1000 <= 0.97


def test_the_command_compares_and_says_what_it_could_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_run(made("a"), tmp_path / "a")
    two = write_run(made("b", 12.5, works=(Work(tokens=(256,)),)), tmp_path / "b")
    assert cli(["compare", str(one), str(two)]) == 0
    said = capsys.readouterr().out
    assert "b against a" in said
    assert "0.80" in said
    assert "Not comparable: 2" in said
    assert cli(["compare", str(one), str(two), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["cells"][0]["decode"]["ratio"] == pytest.approx(0.8)
    assert cli(["compare", str(one)]) == 2
