"""What the views of a run show: evaluations count as cells, their scoring does not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from qualify.run import events as e
from qualify.run.progress import Tally, line
from tests.evals.kinds import Parity
from tests.evals.test_plumbing import go


def test_scoring_is_no_cell_of_its_own() -> None:
    tally = Tally()
    tally.take(e.RunStarted("r", "f", 1, 2, 0, 100))
    tally.take(e.CellEnded("l#1", "prose@64/c1", "finished", None, 1, 1, 1.0))
    tally.take(e.CellEnded("l#1", "eval:gsm8k", "finished", None, 8, 8, 1.0))
    tally.take(e.CellEnded("mtp", f"{e.SCORE}gsm8k", "finished", None, 8, 8, 1.0))
    assert (tally.cells_done, tally.cells) == (2, 2)


def test_the_time_left_follows_the_work_of_evaluations() -> None:
    tally = Tally()
    tally.take(e.RunStarted("r", "f", 1, 1, 0, 1000))
    assert tally.eta_s() is None
    tally.started = time.monotonic() - 10
    tally.take(e.RequestDone("l#1", "eval:gsm8k", "measured", True, 20, 1.0, 500))
    assert tally.eta_s() == pytest.approx(10.0, rel=0.05)


def test_a_run_says_how_many_evaluations_it_will_make_and_what_they_send(tmp_path: Path) -> None:
    seen: list[e.Event] = []
    go(tmp_path, Parity({}), watch=seen.append)
    (start,) = [x for x in seen if isinstance(x, e.RunStarted)]
    assert (start.cells, start.cells_done) == (2, 0), "one evaluation in two modes"
    assert start.work_tokens == 2 * 6 * 3 * 6  # sides, problems, weight, output tokens
    assert "2 cells and evaluations" in (line(start) or "")
    sent = [x.work_tokens for x in seen if isinstance(x, e.RequestDone)]
    assert len(sent) == 12
    assert min(sent) >= 3 * 6


def test_a_finished_run_has_nothing_left(tmp_path: Path) -> None:
    go(tmp_path, Parity({}))
    seen: list[e.Event] = []
    go(tmp_path, Parity({}), resume=True, watch=seen.append)
    (start,) = [x for x in seen if isinstance(x, e.RunStarted)]
    assert (start.cells, start.cells_done, start.work_tokens) == (2, 2, 0)
