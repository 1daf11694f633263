"""The command line as a user meets it: help, errors, exit codes, machine output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qualify.cli.app import COMMANDS, run
from qualify.errors import EngineError, ExitCode
from qualify.paths import campaigns_dir, data_root
from tests.factory import Maker, drafting, target
from tests.report.folder import write_run

HEAVY = ("pandas", "scipy", "matplotlib", "numpy", "httpx", "pydantic", "yaml", "rich", "torch")
LLAMA_CPP = str(campaigns_dir() / "llama-cpp.yaml")
BAD = str(data_root() / "fixtures" / "bad-campaigns" / "unknown-key.yaml")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["rin"], []])
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from qualify.cli.app import run\n"
        f"run({words!r})\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.endswith("HEAVY []\n"), done


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert "Usage: qualify " + name in capsys.readouterr().out


def test_a_mistyped_command_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["repotr"]) == ExitCode.USAGE
    assert "Did you mean `report`?" in capsys.readouterr().err


def test_a_wrong_campaign_ends_with_2_and_its_lines_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (["campaign", "check"], ["plan"], ["run"]):
        assert run([*command, BAD]) == ExitCode.USAGE
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "unknown-key.yaml:3: `baselin` is not a key" in shown.err
        assert "Did you mean `baseline`?" in shown.err
        assert "Traceback" not in shown.err


def test_a_wrong_campaign_can_be_told_to_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["campaign", "check", BAD, "--json"]) == ExitCode.USAGE
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["faults"][0]["line"] == 3


def test_a_good_campaign_is_said_to_be_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["campaign", "check", LLAMA_CPP]) == 0
    assert "can be planned" in capsys.readouterr().out
    assert run(["campaign", "check", LLAMA_CPP, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_the_schema_command_prints_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["campaign", "schema"]) == 0
    assert "workloads" in json.loads(capsys.readouterr().out)["properties"]


def test_an_error_of_an_engine_ends_with_3_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise EngineError("The engine is gone.", "Start it again.")

    monkeypatch.setattr("qualify.cli.prepare.prepare", broken)
    assert run(["plan", LLAMA_CPP]) == ExitCode.ENGINE_FAILED
    assert capsys.readouterr().err == "The engine is gone.\n  Start it again.\n"


def test_a_fault_of_our_own_shows_its_traceback_only_with_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("qualify.cli.prepare.prepare", broken)
    assert run(["plan", LLAMA_CPP]) == ExitCode.INTERNAL
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: planted" in shown
    assert "--debug" in shown
    assert "Traceback" not in shown
    with pytest.raises(ZeroDivisionError):
        run(["plan", LLAMA_CPP, "--debug"])


def test_ctrl_c_outside_of_a_run_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qualify.cli.prepare.prepare", stopped)
    assert run(["plan", LLAMA_CPP]) == ExitCode.INTERRUPTED
    assert "Interrupted" in capsys.readouterr().err


def test_a_reader_that_leaves_early_gets_no_complaint() -> None:
    """`qualify campaign schema | head -1` must not print a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "qualify", "campaign", "schema"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.stderr == ""
    assert done.returncode == ExitCode.BROKEN_PIPE


def test_a_filter_without_only_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", LLAMA_CPP, "mode=ngram"]) == ExitCode.USAGE
    assert "Filters follow --only" in capsys.readouterr().err


def test_two_modes_cannot_be_measured_on_one_attached_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = "http://127.0.0.1:9"
    assert run(["plan", LLAMA_CPP, "--attach", url]) == ExitCode.USAGE
    assert "--only mode=" in capsys.readouterr().err
    assert run(["plan", LLAMA_CPP, "--attach", url, "--only", "mode=ngram"]) == 0


def test_report_without_any_run_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report"]) == ExitCode.USAGE
    assert "qualify run campaigns/quickstart.yaml" in capsys.readouterr().err
    assert run(["report", str(tmp_path)]) == ExitCode.USAGE
    assert "is not a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "offered"), [("qualify pl", "plan"), ("qualify engines s", "show")]
)
def test_a_shell_completes_commands_and_subcommands(typed: str, offered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qualify"],
        env={
            **os.environ,
            "_QUALIFY_COMPLETE": "bash_complete",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
        },
        capture_output=True,
        text=True,
    )
    assert f"plain,{offered}" in done.stdout.splitlines()


CLI = [sys.executable, "-m", "qualify"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_the_signs_of_a_report_loses_no_report(
    encoding: str, tmp_path: Path
) -> None:
    folder = write_run(Maker(sides={"target-only": target(), "mtp": drafting()}).build(), tmp_path)
    env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(data_root())}
    done = subprocess.run([*CLI, "report", str(folder)], env=env, capture_output=True, timeout=100)
    assert done.returncode == ExitCode.QUALIFIED, done.stderr
    assert b"QUALIFIED" in done.stdout


def test_a_closed_stdout_is_no_fault() -> None:
    line = " ".join([*CLI, "engines", "list", ">&-"])
    done = subprocess.run(line, shell=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("columns", ["0", "1", "7"])
def test_a_terminal_that_states_no_usable_width_is_shown_words(columns: str) -> None:
    words = ["engines", "list"]
    env = {**os.environ, "COLUMNS": columns}
    done = subprocess.run([*CLI, *words], env=env, capture_output=True, text=True, timeout=60)
    assert "llama-cpp" in done.stdout
