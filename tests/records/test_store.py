"""The append-only store: nothing whole is lost, nothing broken is believed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qualify.engines.protocol import Sampling
from qualify.errors import UsageError
from qualify.plan import CellPlan, LaunchPlan, Plan, Side
from qualify.prompts.prompt import PromptSpec
from qualify.records.codec import from_line, to_dict, to_line
from qualify.records.schema import CacheEvidence, CellEnd, Record, Timing, Usage
from qualify.records.store import Store, load_run, write_whole


def make_record(launch: str = "r1.a#1", cell: str = "w@8/c1", index: int = 0) -> Record:
    return Record(
        run="x",
        launch=launch,
        round=1,
        side="a",
        mode="target-only",
        cell=cell,
        workload="w",
        tokens=8,
        concurrency=1,
        phase="measured",
        index=index,
        turn=0,
        prompt_id=f"w@8/measured/{index}",
        prompt_sha256="00",
        request={"temperature": 0.0},
        request_sha256="11",
        started_at="2026-01-01T00:00:00Z",
        t_start_s=0.0,
        ok=True,
        failure=None,
        http_status=200,
        usage=Usage(8, 4, 0),
        timing=Timing(
            "first-event", 0.1, 0.1, 0.4, 0.5, 1, 100.0, 100.0, 100.0, 0.1, ((0.1, 1), (0.4, 3))
        ),
        finish_reason="length",
        output_text="a\u2028b\ud800",
        reasoning_text=None,
        output_ids=(1, 2, 3, 4),
        output_sha256="22",
        speculation=None,
        cache=CacheEvidence("cold", "flush", 200, 0.01, 1),
        client_delay_ms=0.2,
    )


def make_end(status: str, launch: str = "r1.a#1", cell: str = "w@8/c1") -> CellEnd:
    return CellEnd("x", launch, cell, status, None, 1, 1, "2026-01-01T00:00:00Z", 1.0, 1.0)  # type: ignore[arg-type]


def make_plan(cells: tuple[str, ...] = ("w@8/c1",)) -> Plan:
    spec = PromptSpec("c", "w", "corpora/prose", 8, 1, 0)
    side = Side("a", "target-only", None, {}, {})
    planned = tuple(
        CellPlan(cell, "w", spec, None, Sampling(4), 1, "cold", "length", 60.0) for cell in cells
    )
    return Plan(
        hash="h",
        campaign={},
        engine={},
        identity={},
        baseline="a",
        pairs=(),
        launches=(LaunchPlan("r1.a", 1, side, planned),),
        checks={},
    )


def write_run(folder: Path, plan: Plan) -> Store:
    store = Store(folder)
    store.write_json("plan.json", to_dict(plan))
    store.write_json("run.json", {"id": "x"})
    return store


def test_a_record_survives_the_file_with_every_field() -> None:
    record = make_record()
    back = from_line(Record, to_line(record))
    assert back == dataclasses.replace(record, output_text="a\u2028b\ufffd")


def test_a_line_is_one_line_whatever_the_text_holds() -> None:
    record = dataclasses.replace(make_record(), output_text="x\ny\r\u2028\u0085")
    assert to_line(record).count(b"\n") == 1


def test_a_number_that_is_not_one_never_reaches_the_file() -> None:
    record = dataclasses.replace(make_record(), client_delay_ms=math.nan)
    with pytest.raises(ValueError, match="JSON"):
        to_line(record)


def test_a_reader_accepts_an_older_line_without_the_newer_fields() -> None:
    data = json.loads(to_line(make_record()))
    del data["extras"], data["notes"]
    data["a_field_of_the_future"] = 1
    assert from_line(Record, json.dumps(data).encode()).notes == ()


def test_f089_a_cut_last_line_is_named_and_the_next_one_starts_whole(tmp_path: Path) -> None:
    with write_run(tmp_path, make_plan()) as store:
        store.append(make_record(index=0))
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(to_line(make_record(index=1))[:40])
    assert load_run(tmp_path).damage == ("records.jsonl: line 2 is incomplete (interrupted write)",)
    with Store(tmp_path) as store:
        store.append(make_record(index=2))
        store.append(make_end("finished"))
    run = load_run(tmp_path)
    assert [r.index for r in run.records] == [0, 2]
    assert run.damage == ("records.jsonl: line 2 is incomplete (interrupted write)",)


def test_records_of_an_unfinished_cell_are_kept_but_do_not_stand(tmp_path: Path) -> None:
    with write_run(tmp_path, make_plan()) as store:
        store.append(make_record("r1.a#1", index=0))
        store.append(make_end("superseded", "r1.a#1"))
        store.append(make_record("r1.a#2", index=0))
        store.append(make_end("finished", "r1.a#2"))
    run = load_run(tmp_path)
    assert [r.launch for r in run.records] == ["r1.a#2"]
    assert [r.launch for r in run.superseded] == ["r1.a#1"]
    assert [c.launch for c in run.cells] == ["r1.a#2"]


def test_a_finished_attempt_stands_before_a_failed_one_whatever_the_order(tmp_path: Path) -> None:
    with write_run(tmp_path, make_plan(("w@8/c1", "w@8/c2"))) as store:
        store.append(make_end("failed", "r1.a#1", "w@8/c2"))
        store.append(make_end("finished", "r1.a#2", "w@8/c1"))
        store.append(make_end("failed", "r1.a#3", "w@8/c1"))
    run = load_run(tmp_path)
    assert [(c.cell, c.status) for c in run.cells] == [
        ("w@8/c1", "finished"),
        ("w@8/c2", "failed"),
    ]


def test_a_second_writer_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(UsageError, match="another qualify process"):
        Store(tmp_path)


def test_a_folder_that_is_no_run_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run"):
        load_run(tmp_path)


def test_a_whole_file_is_never_seen_half_written(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, b"old")
    with pytest.raises(TypeError):
        write_whole(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_killed_at_any_moment_leaves_whole_lines_and_at_most_one_cut(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, pathlib\n"
        "from qualify.records.store import Store\n"
        "from tests.records.test_store import make_record\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "store.append(make_record(index=0))\n"
        "print('go', flush=True)\n"
        "i = 1\n"
        "while True:\n"
        "    store.append(make_record(index=i)); i += 1\n"
    )
    root = Path(__file__).resolve().parents[2]
    for delay in (0.01, 0.03, 0.05):
        folder = tmp_path / str(delay)
        write_run(folder, make_plan()).close()
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            cwd=root,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        child.kill()
        child.wait()
        child.stdout.close()
        run = load_run(folder)
        indexes = [r.index for r in run.superseded]
        assert indexes == list(range(len(indexes)))
        assert len(indexes) > 1
        assert len(run.damage) <= 1


@pytest.mark.parametrize("broken", ["{}", "[]", "null", '{"hash": 1}', '"plan"'])
@pytest.mark.parametrize("name", ["plan.json", "run.json"])
def test_json_that_is_no_plan_or_no_run_is_refused_with_a_remedy(
    tmp_path: Path, name: str, broken: str
) -> None:
    with write_run(tmp_path, make_plan()) as store:
        store.append(make_record())
    (tmp_path / name).write_text(broken)
    if name == "run.json" and broken.startswith("{"):
        load_run(tmp_path)  # its keys inform, none is needed
        return
    with pytest.raises(UsageError, match="run the campaign again"):
        load_run(tmp_path)


def test_a_file_in_place_of_a_runs_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a run"):
        load_run(tmp_path / "file")


def test_a_line_that_holds_nan_is_damage_and_a_text_that_names_it_is_not(tmp_path: Path) -> None:
    good = dataclasses.replace(make_record(), output_text="NaN and Infinity")
    with write_run(tmp_path, make_plan()) as store:
        store.append(good)
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(to_line(make_record(index=1)).replace(b'"client_delay_ms":0.2', b'"x":NaN'))
    run = load_run(tmp_path)
    assert [r.output_text for r in (*run.records, *run.superseded)] == ["NaN and Infinity"]
    assert len(run.damage) == 1
