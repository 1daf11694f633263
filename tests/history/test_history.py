"""Runs over time, from copies of the committed example run at other dates and speeds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qualify.cli.app import run as qualify
from qualify.errors import UsageError
from qualify.history.page import page, worded
from qualify.history.store import History
from qualify.history.trends import trends

pytest.importorskip("duckdb")
EXAMPLE = Path(__file__).parents[2] / "reports" / "example"
CELL = "code@256/c1"


def add_run(root: Path, day: int, speed: float = 1.0, name: str | None = None) -> Path:
    folder = root / (name or f"night-{day:02}")
    shutil.copytree(EXAMPLE, folder)
    for file in ("run.json", "summary.json"):
        data = json.loads((folder / file).read_text())
        data["created"] = f"2026-03-{day:02}T02:00:00.000+00:00"
        data["id" if file == "run.json" else "run"] = folder.name
        for side in data.get("sides", ()):
            side["tpot_ms"]["median"] *= speed
        (folder / file).write_text(json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def fortnight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen nights; from the ninth on every step takes a fifth longer."""
    root = tmp_path_factory.mktemp("reports")
    for day in range(1, 17):
        add_run(root, day, (1.2 if day > 8 else 1.0) * (1 + 0.004 * (day * 7 % 5 - 2)))
    History(root).sync()
    return root


def test_a_run_is_taken_in_once_and_again_when_it_was_judged_again(tmp_path: Path) -> None:
    folder = add_run(tmp_path, 1)
    history = History(tmp_path)
    assert history.sync() == ["night-01"]
    assert history.sync() == []
    (folder / "gate.json").write_text('{"word": "pass"}')
    assert history.sync() == ["night-01"]
    assert history.ask("SELECT run, gate FROM runs").rows == (("night-01", "pass"),)


def test_the_records_in_the_history_are_the_runs_own(fortnight: Path) -> None:
    lines = [json.loads(line) for line in (EXAMPLE / "records.jsonl").open()]
    mine = {(r["launch"], r["cell"], r["index"]): r["timing"]["tpot_ms"]
            for r in lines if r["phase"] == "measured" and r["turn"] == 0}  # fmt: skip
    found = History(fortnight).ask(
        "SELECT launch, cell, index, tpot_ms FROM records "
        "WHERE phase = 'measured' AND turn = 0 AND run LIKE 'example%' "
    )
    kept = {(a, b, c): d for a, b, c, d in found.rows}
    assert kept
    assert kept == mine


def test_a_trend_is_one_series_a_cell_and_names_the_night_it_changed(fortnight: Path) -> None:
    (trend,) = trends(History(fortnight), "tpot", side="mtp", cell=CELL)
    assert [p.run for p in trend.points] == [f"night-{d:02}" for d in range(1, 17)]
    (change,) = trend.changes
    assert trend.points[change.index].run == "night-09"
    assert change.ratio == pytest.approx(1.2, rel=0.01)
    assert "worse" in worded(trend)
    assert "night-09" in worded(trend)


def test_runs_on_other_prompts_or_machines_are_another_series(tmp_path: Path) -> None:
    add_run(tmp_path, 1)
    other = add_run(tmp_path, 2)
    launches = (other / "launches.jsonl").read_text().replace("AMD EPYC", "Another CPU")
    (other / "launches.jsonl").write_text(launches)
    history = History(tmp_path)
    history.sync()
    found = trends(history, "tpot", side="mtp", cell=CELL)
    assert [len(t.points) for t in found] == [1, 1]


def test_a_query_can_change_nothing_and_read_nothing_else(fortnight: Path, tmp_path: Path) -> None:
    history = History(fortnight)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (
        f"SELECT * FROM read_csv('{secret}')",
        f"COPY runs TO '{tmp_path}/out.csv'",
        "SET enable_external_access=true",
        "SELECT * FROM nights",
    ):
        with pytest.raises(UsageError):
            history.ask(sql)
    assert not (tmp_path / "out.csv").exists()


def test_a_copy_of_a_runs_folder_is_no_second_run(tmp_path: Path) -> None:
    shutil.copytree(add_run(tmp_path, 1), tmp_path / "copy")
    edited = shutil.copytree(tmp_path / "copy", tmp_path / "edited")
    for file in ("run.json", "summary.json"):
        text = (edited / file).read_text()
        (edited / file).write_text(text.replace("2026-03-01", "2026-03-02"))
    history = History(tmp_path)
    assert history.sync() == ["copy", "edited", "night-01"]
    (trend,) = trends(history, "tpot", side="mtp", cell=CELL)
    assert [p.created.day for p in trend.points] == [1, 2]


@pytest.mark.parametrize("sql", ["", " ; ", "SELECT 1; SELECT 2"])
def test_what_is_not_one_query_is_refused(tmp_path: Path, sql: str) -> None:
    with pytest.raises(UsageError, match="not one query"):
        History(tmp_path).ask(sql)


def test_an_empty_history_has_its_tables(tmp_path: Path) -> None:
    assert History(tmp_path).ask("SELECT count(*) FROM records").rows == ((0,),)
    assert trends(History(tmp_path), "tpot") == []


def test_an_unknown_metric_is_refused_with_those_there_are(fortnight: Path) -> None:
    with pytest.raises(UsageError) as refused:
        trends(History(fortnight), "speed")
    assert "throughput" in refused.value.remedy


def test_the_page_shows_every_series_and_its_change(fortnight: Path) -> None:
    found = trends(History(fortnight), "tpot")
    text = page(found)
    assert text.count("<svg") == len(found)
    assert "night-09" in text
    assert "<script" not in text


def test_the_command_shows_trends_and_answers_sql(
    fortnight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qualify(["history", "--reports", str(fortnight), "--json", "--cell", CELL]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {t["side"] for t in shown} == {"target-only", "mtp", "dflash2", "dspark"}
    assert qualify(["history", "--reports", str(fortnight), "--cell", CELL, "--side", "mtp"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "quickstart, 2 x AMD EPYC" in told
    assert "% (worse) from" in told
    ask = ["history", "--reports", str(fortnight), "sql", "SELECT count(*) AS n FROM runs"]
    assert qualify([*ask, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 16}]
