"""The worker's lines and the one-shot command, held against the runner driven by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from driving import finish, greedy, start
from specdec.cli import main
from specdec.contract import Mode, RunnerOptions
from specdec.errors import RequestRefused
from specdec.runner import Runner
from specdec.settings import ServeSettings
from specdec.solo import answer
from specdec.worker import read_line, work

BASE = tuple(range(1, 41))
MODES: list[Mode] = ["target-only", "mtp", "dflash2", "dspark"]


def words(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split())


def worker(folder: Path, mode: Mode, *lines: str, cache: bool = True) -> list[dict[str, str]]:
    """What is said at the start, then to each line."""
    draft = folder / mode if mode in ("dflash2", "dspark") else None
    settings = ServeSettings(
        folder, mode, draft_model=draft, max_running_requests=1, prefix_cache=cache
    )
    out = io.StringIO()
    work(Runner.load(folder, settings.runner_options()), settings, lines, out)
    return [words(line) for line in out.getvalue().splitlines()]


def request(new_tokens: int, ids: tuple[int, ...]) -> str:
    return f"{new_tokens} {' '.join(map(str, ids))}\n"


def truth(folder: Path, new_tokens: int, ids: tuple[int, ...]) -> list[int]:
    """Target-only ids from a runner of its own."""
    runner = Runner.load(folder, RunnerOptions())
    (seq,) = finish(runner, start(runner, [ids], greedy(new_tokens)))
    return seq.output_ids


@pytest.mark.parametrize("mode", MODES)
def test_a_line_is_answered_with_the_targets_own_ids_and_counts_that_add_up(
    mode: Mode, agreeing: Path
) -> None:
    startup, said = worker(agreeing, mode, request(20, BASE))
    assert (startup["qwen_startup"], startup["mode"], startup["prefix_cache"]) == ("1", mode, "1")
    assert said["qwen_persistent_result"] == "1"
    assert [int(i) for i in said["tokens"].split(",")] == truth(agreeing, 20, BASE)
    v, c, p, t, w = (
        int(said[name])
        for name in (
            "mtp_verify_count", "mtp_correct_drafts", "mtp_proposed_drafts",
            "plain_tokens", "trimmed_tokens",
        )
    )  # fmt: skip
    assert 1 + c + v + t - w == int(said["generated_tokens"]) == 20
    if mode == "dspark":
        assert int(said["dspark_confidence_count"]) == p
        mean = float(said["dspark_confidence_mean"])
        least, most = (float(said[f"dspark_confidence_{name}"]) for name in ("min", "max"))
        assert 0 < least < mean < most < 1
    else:
        assert "dspark_confidence_mean" not in said
    if mode == "target-only":
        assert (v, p) == (0, 0)
        assert "mtp_accept_rate" not in said  # a rate of nothing is left out
    else:
        assert float(said["mtp_accept_rate"]) == pytest.approx(c / p, abs=1e-6)
        assert float(said["spec_accept_length"]) == pytest.approx(1 + c / v, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_the_second_line_goes_on_from_the_end_of_the_first(mode: Mode, agreeing: Path) -> None:
    """An append reuses the prompt and all of the output but its last token."""
    output = truth(agreeing, 4, BASE)
    appended = (*BASE, *output, 9, 8, 7)
    _, first, blank_is_skipped = worker(
        agreeing, mode, request(4, BASE), "\n", request(4, appended)
    )
    second = blank_is_skipped
    assert (first["prefix_reused_tokens"], first["prefix_resume_source"]) == ("0", "empty")
    assert int(second["prefix_reused_tokens"]) == len(BASE) + 4 - 1
    assert second["prefix_resume_source"] == "live"
    assert int(second["prefix_computed_tokens"]) == len(appended) - len(BASE) - 3
    assert [int(i) for i in second["tokens"].split(",")] == truth(agreeing, 4, appended)


def test_without_the_cache_every_line_is_cold(agreeing: Path) -> None:
    line = request(4, BASE)
    startup, *said = worker(agreeing, "mtp", line, line, cache=False)
    assert startup["prefix_cache"] == "0"
    assert [s["prefix_reused_tokens"] for s in said] == ["0", "0"]
    assert [s["prefix_snapshots"] for s in said] == ["0", "0"]
    assert [s["prefix_snapshot_bytes"] for s in said] == ["0", "0"]


@pytest.mark.parametrize("text", ["eight 1 2", "8 1 x", "8 1.5"])
def test_a_line_that_is_no_request_is_refused_by_its_words(text: str) -> None:
    with pytest.raises(RequestRefused, match="is no request"):
        read_line(text)


@pytest.mark.parametrize(
    ("line", "said"), [("0 1 2", "at least 1"), ("4", "empty"), ("9000 1 2", "context length")]
)
def test_a_request_that_cannot_be_served_ends_the_worker(
    line: str, said: str, agreeing: Path
) -> None:
    found = command(agreeing, "worker", "--stdin", input=f"2 5 6\n{line}\n2 5 6\n")
    assert found.exit_code == 1
    assert said in found.stderr
    assert found.stdout.count("qwen_persistent_result=1") == 1


def test_the_end_of_input_is_a_clean_end(agreeing: Path) -> None:
    found = command(agreeing, "worker", "--stdin", input="2 5 6\n\n2 5 6\n")
    assert found.exit_code == 0
    assert found.stdout.count("qwen_persistent_result=1") == 2


def command(folder: Path, name: str, *args: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, [name, "--model", str(folder), *args], input=input)


@pytest.mark.parametrize("source", ["--ids", "--ids-file"])
def test_generate_gives_the_same_ids_and_both_halves_of_the_time(
    source: str, agreeing: Path, tmp_path: Path
) -> None:
    given = ",".join(map(str, BASE))
    if source == "--ids-file":
        (tmp_path / "ids").write_text(given.replace(",", "\n"))
        given = str(tmp_path / "ids")
    args = [source, given, "--max-new-tokens", "12", "--mode", "mtp", "--ignore-eos", "--json"]
    found = command(agreeing, "generate", *args)
    assert found.exit_code == 0, found.stderr
    said = json.loads(found.stdout)
    assert said["output_ids"] == truth(agreeing, 12, BASE)
    assert (said["prompt_tokens"], said["completion_tokens"]) == (40, 12)
    assert said["text"] is None  # this checkpoint has no tokenizer
    assert said["decode_tokens_per_s"] == pytest.approx(11 / said["decode_s"])
    assert said["prefill_tokens_per_s"] == pytest.approx(40 / said["prefill_s"])


@pytest.mark.parametrize("args", [[], ["--ids", "1", "--ids-file", __file__], ["--ids", "1;2"]])
def test_generate_wants_exactly_one_prompt(args: list[str], agreeing: Path) -> None:
    found = command(agreeing, "generate", *args)
    assert found.exit_code == 2
    assert "Give exactly one" in found.stderr or "whole numbers" in found.stderr


def test_prefill_and_decode_are_timed_apart(agreeing: Path) -> None:
    """A clock that counts its readings: begin, first token, end."""
    readings = iter([10.0, 12.0, 15.0])
    runner = Runner.load(agreeing, RunnerOptions())
    done = answer(runner, "x", BASE, greedy(7), clock=lambda: next(readings))
    assert (done.prefill_s, done.decode_s, done.wall_s) == (2.0, 3.0, 5.0)
    assert (done.prefill_tokens_per_s, done.decode_tokens_per_s) == (20.0, 2.0)
