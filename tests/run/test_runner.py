"""A run on a scripted engine of known truth: what is measured, kept, failed and survived."""

from __future__ import annotations

import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from qualify.client.reply import RawReply, Reply
from qualify.engines.sglang import SGLangProtocol
from qualify.errors import CellError, ExitCode, UsageError
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.records.store import load_run
from qualify.run import events as e
from qualify.run.runner import run_campaign
from tests.run.drive import build, cell, drive, engine, plan, spec
from tests.scripted_engine.model import output_ids
from tests.scripted_engine.process import EngineProcess


def test_every_cell_is_measured_and_every_record_holds_what_the_engine_did(tmp_path: Path) -> None:
    cells = (cell("prose"), cell("code", concurrency=2, count=4))
    outcome = drive(tmp_path / "run", plan(cells, ("target-only", "mtp")), engine(tmp_path))
    assert (outcome.measured, outcome.failed, outcome.exit_code) == (4, 0, None)
    run = load_run(tmp_path / "run")
    assert [(c.launch, c.cell, c.status) for c in run.cells] == [
        (f"r1.{side}#1", name, "finished")
        for side in ("target-only", "mtp")
        for name in ("prose@48/c1", "code@48/c2")
    ]
    for record in run.measured():
        prompt = next(p for p in build(spec(record.workload, 48, 4)) if p.index == record.index)
        assert record.ok
        assert record.usage.prompt_tokens == 48
        assert record.usage.cached_tokens == 0
        assert record.output_ids == tuple(output_ids(prompt.ids, 8))
        assert record.cache.method == "flush"
        assert record.cache.flush_status == 200
    mtp = [r for r in run.measured() if r.side == "mtp"]
    assert all(r.speculation is not None and r.speculation.V for r in mtp)


def test_f038_warm_up_then_flush_then_measure_with_other_prompts(tmp_path: Path) -> None:
    with EngineProcess("--dialect", "sglang") as server:
        drive(tmp_path / "run", plan([cell("prose")]), engine(tmp_path, url=server.url))
    run = load_run(tmp_path / "run")
    order = [(r.phase, r.prompt_id) for r in run.records]
    assert [phase for phase, _ in order] == ["probe"] * 2 + ["warmup"] + ["measured"] * 3
    assert {r.tokens for r in run.records if r.phase != "probe"} == {48}
    assert [r.usage.cached_tokens for r in run.measured()] == [0, 0, 0]
    heads = [tuple(t["prompt_head"]) for t in server.truth]
    assert len(set(heads)) == len(heads) - 1  # only the planted prompt came twice
    flush = run.cells[0].evidence["cold"]["flush"]
    assert flush["status"] == 200
    assert flush["seconds"] >= 0


def test_a_planted_warm_prompt_shows_that_the_engine_counts_cached_tokens(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("prose")]), engine(tmp_path))
    cold = load_run(tmp_path / "run").cells[0].evidence["cold"]
    assert cold["first_cached"] == 0
    assert cold["planted_cached"] > 0
    assert cold["method"] == "flush"


def test_f082_what_the_first_request_of_a_shape_compiles_is_paid_by_the_warm_up(
    tmp_path: Path,
) -> None:
    slow = ("--first-request-extra-ms", "1500")
    drive(tmp_path / "run", plan([cell("one"), cell("two", tokens=64)]), engine(tmp_path, *slow))
    run = load_run(tmp_path / "run")
    for end in run.cells:
        assert end.evidence["warmup"]["seconds"] > 1.5
        assert all((r.timing.ttft_s or 9) < 1.5 for r in run.measured(cell=end.cell))


def test_an_engine_that_hides_its_cache_leaves_the_planted_count_unknown(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("prose")]), engine(tmp_path, "--no-cached"))
    assert load_run(tmp_path / "run").cells[0].evidence["cold"]["planted_cached"] is None


def test_an_engine_without_flush_is_bypassed_and_the_bypass_is_shown_to_work(
    tmp_path: Path,
) -> None:
    outcome = drive(tmp_path / "run", plan([cell("prose")]), engine(tmp_path, dialect="llamacpp"))
    assert outcome.measured == 1
    run = load_run(tmp_path / "run")
    cold = run.cells[0].evidence["cold"]
    assert cold["method"] == "bypass"
    assert cold["planted_cached"] > 0
    assert cold["bypass_cached"] == 0
    assert {r.usage.cached_tokens for r in run.measured()} == {0}


def test_a_warm_cell_is_primed_and_shows_its_reuse(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("prose", cache="warm")]), engine(tmp_path))
    run = load_run(tmp_path / "run")
    assert all((r.usage.cached_tokens or 0) > 0 for r in run.measured())
    assert run.cells[0].evidence["primed"] == {"requests": 3, "ok": 3}


def test_the_turns_of_a_session_come_in_order_and_record_what_each_reused(tmp_path: Path) -> None:
    cells = [cell("chat", cache="session", turns=3, count=2, concurrency=2, tokens=40)]
    drive(tmp_path / "run", plan(cells), engine(tmp_path))
    run = load_run(tmp_path / "run")
    for index in (0, 1):
        turns = [r for r in run.measured() if r.index == index]
        assert [r.turn for r in turns] == [0, 1, 2]
        assert [r.usage.prompt_tokens for r in turns] == [40, 80, 120]
        assert [r.usage.cached_tokens for r in turns] == [0, 40, 80]


def test_sixty_four_prompts_at_sixteen_streams_are_sixty_four_different_bodies(
    tmp_path: Path,
) -> None:
    drive(
        tmp_path / "run",
        plan([cell("prose", count=64, concurrency=16, warmup=0)]),
        engine(tmp_path),
    )
    run = load_run(tmp_path / "run")
    assert len({r.request_sha256 for r in run.measured()}) == 64
    assert min(r.t_start_s for r in run.measured()) >= 0
    client = run.cells[0].evidence["client"]
    assert client["max_in_flight"] == 16


def test_f040_a_flush_that_is_refused_is_retried_with_patience(tmp_path: Path) -> None:
    refusals = ("--flush-response", "400", "--flush-response", "400")
    drive(tmp_path / "run", plan([cell("prose")]), engine(tmp_path, *refusals))
    run = load_run(tmp_path / "run")
    record = run.measured()[0]
    assert record.cache.flush_attempts == 3
    assert record.cache.flush_s is not None
    assert record.cache.flush_s >= 0.4  # at least 0.2 s between two tries
    assert record.timing.ttft_s is not None
    assert record.timing.ttft_s < 0.4  # and none of it is in the request's time


def test_a_cell_whose_flush_is_never_confirmed_fails_alone(tmp_path: Path) -> None:
    refusals = [word for _ in range(40) for word in ("--flush-response", "400")]
    outcome = drive(
        tmp_path / "run",
        plan([cell("prose"), cell("warm", cache="warm")]),
        engine(tmp_path, *refusals),
    )
    run = load_run(tmp_path / "run")
    assert run.cells[0].status == "failed"
    assert "could not be flushed: status 400" in str(run.cells[0].reason)
    assert outcome.failed >= 1


def test_f088_a_cell_of_which_every_request_fails_does_not_end_the_sweep(tmp_path: Path) -> None:
    # Requests 0 and 1 are the probe; each cell sends one warm-up and three measured ones.
    faults = [w for n in range(6, 10) for w in ("--fault", f"{n}=http-500")]
    outcome = drive(
        tmp_path / "run",
        plan([cell("one"), cell("two"), cell("three")]),
        engine(tmp_path, *faults),
    )
    run = load_run(tmp_path / "run")
    assert [c.status for c in run.cells] == ["finished", "failed", "finished"]
    assert "3 x http-status" in str(run.cells[1].reason)
    assert (outcome.measured, outcome.failed, outcome.exit_code) == (2, 1, None)
    assert all(r.failure is not None for r in run.measured(cell="two@48/c1"))


def test_one_failed_request_is_recorded_with_its_cause_and_the_cell_goes_on(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path, "--fault", "4=cut"))
    run = load_run(tmp_path / "run")
    assert [r.failure.cause if r.failure else None for r in run.measured()] == [
        None,
        "truncated-stream",
        None,
    ]
    assert (run.cells[0].status, run.cells[0].ok) == ("finished", 2)


def test_a_request_without_the_servers_count_is_no_success(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path, "--fault", "4=no-usage"))
    causes = [r.failure.cause if r.failure else None for r in load_run(tmp_path / "run").measured()]
    assert causes == [None, "no-usage", None]


def test_an_engine_that_dies_in_a_cell_fails_it_and_is_started_again_for_the_rest(
    tmp_path: Path,
) -> None:
    # It exits at its ninth generation: in the second cell of the first start, never after.
    outcome = drive(
        tmp_path / "run",
        plan([cell("one"), cell("two"), cell("three")]),
        engine(tmp_path, "--fault", "8=exit"),
    )
    run = load_run(tmp_path / "run")
    assert [(c.launch, c.status) for c in run.cells] == [
        ("r1.target-only#1", "finished"),
        ("r1.target-only#1", "failed"),
        ("r1.target-only#2", "finished"),
    ]
    assert "the engine ended during the cell: exit code 1" in str(run.cells[1].reason)
    assert outcome.failed == 1


def test_an_engine_that_never_starts_fails_every_cell_at_once_with_its_last_words(
    tmp_path: Path,
) -> None:
    outcome = drive(
        tmp_path / "run",
        plan([cell("one"), cell("two")]),
        engine(tmp_path, "--die-after-s", "0", "--ready-after-s", "60"),
    )
    assert outcome.exit_code == ExitCode.ENGINE_FAILED
    run = load_run(tmp_path / "run")
    assert {c.status for c in run.cells} == {"failed"}
    assert "exit code 1" in str(run.cells[0].reason)
    assert run.records == ()


def test_a_prompt_that_the_running_engine_cannot_hold_fails_its_cell_before_it_is_sent(
    tmp_path: Path,
) -> None:
    drive(
        tmp_path / "run",
        plan([cell("long", tokens=300), cell("short")]),
        engine(tmp_path, "--context", "280"),
    )
    run = load_run(tmp_path / "run")
    assert [c.status for c in run.cells] == ["failed", "finished"]
    assert "300 + 8 tokens do not fit the 280" in str(run.cells[0].reason)
    assert not [r for r in run.records if r.cell == "long@300/c1"]


def test_the_last_turn_of_a_session_must_fit_too(tmp_path: Path) -> None:
    cells = [cell("chat", cache="session", turns=3, count=1, tokens=100, warmup=0)]
    drive(tmp_path / "run", plan(cells), engine(tmp_path, "--context", "280"))
    (end,) = load_run(tmp_path / "run").cells
    assert "300 + 8 tokens do not fit the 280" in str(end.reason)


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))
    with pytest.raises(UsageError, match="already holds a run"):
        drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))


def test_resume_refuses_a_changed_plan_and_names_what_changed(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))
    with pytest.raises(UsageError, match="campaign file differs"):
        drive(tmp_path / "run", plan([cell("one")], hash_="other"), engine(tmp_path), resume=True)


def test_resume_of_a_finished_run_starts_nothing(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))
    before = (tmp_path / "run" / "launches.jsonl").read_bytes()
    seen: list[e.Event] = []
    outcome = drive(
        tmp_path / "run", plan([cell("one")]), engine(tmp_path), resume=True, watch=seen.append
    )
    assert outcome.measured == 1
    assert (tmp_path / "run" / "launches.jsonl").read_bytes() == before
    assert not [event for event in seen if isinstance(event, e.LaunchStarting)]


def test_resume_measures_a_failed_cell_again_and_leaves_the_finished_ones(tmp_path: Path) -> None:
    cells = [cell("one"), cell("two")]
    faults = [w for n in range(6, 10) for w in ("--fault", f"{n}=http-500")]
    drive(tmp_path / "run", plan(cells), engine(tmp_path, *faults))
    first = load_run(tmp_path / "run").measured(cell="one@48/c1")
    outcome = drive(tmp_path / "run", plan(cells), engine(tmp_path), resume=True)
    run = load_run(tmp_path / "run")
    assert outcome.failed == 0
    assert run.measured(cell="one@48/c1") == first
    assert {r.launch for r in run.measured(cell="two@48/c1")} == {"r1.target-only#2"}
    assert len([r for r in run.superseded if r.cell == "two@48/c1"]) == 4


def test_what_ran_is_on_record(tmp_path: Path) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))
    started, stopped = load_run(tmp_path / "run").launches
    assert started.status == "started"
    assert "tests.scripted_engine" in json.dumps(started.origin)
    assert started.origin["capabilities"]["flush"] is True
    assert stopped.status == "stopped"
    assert stopped.origin["exit"] == "exit code 0"


def test_a_cell_that_an_earlier_start_left_without_an_end_is_closed_as_superseded(
    tmp_path: Path,
) -> None:
    drive(tmp_path / "run", plan([cell("one"), cell("two")]), engine(tmp_path))
    cells = tmp_path / "run" / "cells.jsonl"
    cells.write_bytes(cells.read_bytes().splitlines(keepends=True)[0])  # killed before the second
    drive(tmp_path / "run", plan([cell("one"), cell("two")]), engine(tmp_path), resume=True)
    ends = [json.loads(line) for line in cells.read_bytes().splitlines()]
    assert [(end["launch"], end["cell"], end["status"]) for end in ends] == [
        ("r1.target-only#1", "one@48/c1", "finished"),
        ("r1.target-only#1", "two@48/c1", "superseded"),
        ("r1.target-only#2", "two@48/c1", "finished"),
    ]


def test_a_start_killed_before_it_wrote_run_json_is_resumed_and_can_be_read(
    tmp_path: Path,
) -> None:
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))
    (tmp_path / "run" / "run.json").unlink()
    outcome = drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path), resume=True)
    assert outcome.measured == 1
    assert load_run(tmp_path / "run").meta["campaign"] == "drive"


def test_prompts_that_cannot_be_made_end_the_run_as_a_wrong_campaign_before_any_start(
    tmp_path: Path,
) -> None:
    def nothing(spec: PromptSpec) -> list[Prompt]:
        raise CellError("the source is too short", "Give a larger one.")

    the_plan, resolver = plan([cell("one")]), engine(tmp_path)
    with pytest.raises(UsageError, match="too short") as caught:
        run_campaign(
            the_plan,
            out=tmp_path / "run",
            resume=False,
            resolved={"target-only": resolver("target-only")},
            build=nothing,
        )
    assert caught.value.exit_code == ExitCode.USAGE
    assert not (tmp_path / "run" / "launches.jsonl").exists()


def test_f028_an_engine_that_counts_the_warm_up_otherwise_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = SGLangProtocol.decode

    def counting_otherwise(self: SGLangProtocol, raw: RawReply) -> Reply:
        reply = decode(self, raw)
        return dataclasses.replace(reply, usage=dataclasses.replace(reply.usage, prompt_tokens=49))

    monkeypatch.setattr(SGLangProtocol, "decode", counting_otherwise)
    drive(tmp_path / "run", plan([cell("one")]), engine(tmp_path))
    run = load_run(tmp_path / "run")
    (end,) = run.cells
    assert end.status == "failed"
    assert "asked 48, engine saw 49" in str(end.reason)
    assert run.measured() == []


def test_f035_a_second_run_on_the_same_living_engine_is_cold_again(tmp_path: Path) -> None:
    with EngineProcess("--step-ms", "5") as living:
        for name in ("first", "second"):
            drive(tmp_path / name, plan([cell("one")]), engine(tmp_path, url=living.url))
    run = load_run(tmp_path / "second")
    assert [r.usage.cached_tokens for r in run.measured()] == [0, 0, 0]
    assert {r.cache.flush_status for r in run.measured()} == {200}
    (end,) = run.cells
    assert end.evidence["cold"]["planted_cached"] > 0
    # The same prompts had been there: it is the flush that made them cold.
    assert {r.prompt_sha256 for r in run.measured()} == {
        r.prompt_sha256 for r in load_run(tmp_path / "first").measured()
    }


class _Page(BaseHTTPRequestHandler):
    """What answers 200 to everything, and is no engine."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><h1>Welcome</h1></html>")

    def log_message(self, *_: object) -> None:
        pass


def test_a_web_page_at_the_attached_address_is_no_engine_and_nothing_is_measured(
    tmp_path: Path,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{page.server_port}"
        resolver = engine(tmp_path, dialect="llamacpp", url=url)
        outcome = drive(tmp_path / "run", plan([cell("one")]), resolver)
        page.shutdown()
    assert outcome.exit_code == ExitCode.ENGINE_FAILED
    assert "does not answer as a llamacpp server does" in outcome.engine_failures[0]
    assert load_run(tmp_path / "run").records == ()


def test_a_run_that_is_refused_for_its_prompts_leaves_no_folder_to_be_found(tmp_path: Path) -> None:
    def refuse(_: PromptSpec) -> list[Prompt]:
        raise CellError("The text is too short.", "Give a longer one.")

    (tmp_path / "mine").mkdir()
    for folder, stays in ((tmp_path / "run", False), (tmp_path / "mine", True)):
        with pytest.raises(UsageError, match="too short"):
            run_campaign(
                plan([cell("prose")]),
                out=folder,
                resume=False,
                resolved={"target-only": engine(tmp_path)("target-only")},
                build=refuse,
            )
        assert folder.exists() == stays
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_resume_that_is_refused_for_its_prompts_keeps_what_was_measured(tmp_path: Path) -> None:
    cells = [cell("prose"), cell("code")]
    folder = tmp_path / "run"
    drive(folder, plan(cells), engine(tmp_path))
    lines = (folder / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "cells.jsonl").write_bytes(lines[0])

    def refuse(_: PromptSpec) -> list[Prompt]:
        raise CellError("The text is gone.", "Bring it back.")

    with pytest.raises(UsageError, match="is gone"):
        run_campaign(
            plan(cells),
            out=folder,
            resume=True,
            resolved={"target-only": engine(tmp_path)("target-only")},
            build=refuse,
        )
    assert len(load_run(folder).cells) == 1
