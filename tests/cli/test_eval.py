"""`qualify eval`: servers that run, several compared, resumed, refused with a remedy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from qualify.cli.app import run
from qualify.evals.code import CodeKind
from qualify.paths import data_root
from tests.evals.conftest import missing
from tests.evals.test_code import canned
from tests.scripted_engine.process import EngineProcess

MODEL = str(data_root() / "fixtures/models/tiny-qwen3.5")


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    from qualify.evals.sandbox.bubblewrap import Bubblewrap

    if not Bubblewrap().present:
        missing("bwrap is not installed: apt-get install bubblewrap")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    problems = CodeKind("minicode").problems({})
    return {
        "good": canned(tmp_path / "good.jsonl", problems, set()),
        "bad": canned(tmp_path / "bad.jsonl", problems, {"Mini/3"}),
    }


def serve(file: str) -> EngineProcess:
    return EngineProcess(
        "--dialect", "openai", "--step-ms", "0", "--ttft-ms", "0",
        "--accept", "31", "--width", "32", "--canned", file,
    )  # fmt: skip


COMMON = ["--sandbox", "bubblewrap", "--output-tokens", "2000", "--json"]


def test_two_servers_are_asked_and_the_second_is_compared_with_the_first(
    tmp_path: Path, answers: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(answers["good"]) as one, serve(answers["bad"]) as two:
        words = ["eval", "minicode", "--chat", "--subset", "4:8", *COMMON]
        words += ["--attach", f"target-only={one.url}", "--attach", f"mtp={two.url}"]
        code = run([*words, "--out", str(tmp_path / "run")])
        told = json.loads(capsys.readouterr().out)
        again = run([*words, "--out", str(tmp_path / "run"), "--resume"])
    assert [(r["side"], r["subset"]) for r in told["evals"]["results"]] == [
        ("target-only", "4:8"),
        ("mtp", "4:8"),
    ]
    assert told["evals"]["results"][0]["passed"] == 8
    lost = [c["problem"] for c in told["evals"]["pairs"][0]["regressions"]]
    assert lost == ["Mini/3"]
    assert code == again == 1
    asked = [made for made in one.truth if len(made["output"]) > 1]
    assert len(asked) == 8, "the second start asked nothing again"
    assert (tmp_path / "run/report.html").is_file()


def test_one_server_is_its_own_baseline(
    tmp_path: Path, answers: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(answers["good"]) as server:
        code = run(["eval", "minicode", "--base", "--attach", server.url, "--subset", "1:3",
                    *COMMON, "--out", str(tmp_path / "run")])  # fmt: skip
    told = json.loads(capsys.readouterr().out)
    assert (code, told["evals"]["results"][0]["passed"]) == (0, 3)
    assert told["outcome"]["word"] == "qualified"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["humanevall", "--attach", "http://127.0.0.1:1"], "humaneval"),
        (["minicode", "--subset", "x"], "SEED:N"),
        (["minicode", "--problems", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["minicode", "--attach", "a=http://h", "--attach", "a=http://i"], "two servers".title()),
        (["minicode", "--chat", "--base"], "--chat"),
        (["minicode", "--tokens", "64"], "takes no --tokens"),
        (["needles", "--attach", "http://127.0.0.1:1"], "--tokenizer PATH"),
        (["needles", "--tokenizer", MODEL, "--tokens", "many"], "no list of numbers"),
        (["needles", "--tokenizer", MODEL, "--depths", "0.5,1.5"], "--depths"),
        (["needles", "--tokenizer", MODEL, "--depths", "0.5"], "5 codes have 1 depths"),
        (["needles", "--tokenizer", MODEL, "--tokens", "64,64"], "sizes that differ"),
    ],
)
def test_a_wrong_command_is_refused_with_a_remedy(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", *words]) == 2
    assert says.lower() in capsys.readouterr().err.lower()


def test_without_a_sandbox_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert run(["eval", "minicode", "--attach", "http://127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert "only in a sandbox" in said
    assert "bubblewrap" in said
    assert "--unsafe-no-sandbox" in said


def test_needles_of_an_attached_server_prove_their_size_and_what_was_not_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EngineProcess("--step-ms", "0", "--ttft-ms", "0", "--eos-after", "4") as server:
        words = ["eval", "needles", "--protocol", "sglang", "--tokenizer", MODEL, "--json"]
        words += ["--tokens", "700,900", "--seed", "3", "--seeds", "2", "--fresh-tokens", "600"]
        code = run([*words, "--attach", server.url, "--out", str(tmp_path / "run")])
    told = json.loads(capsys.readouterr().out)
    (result,) = told["evals"]["results"]
    assert (result["passed"], result["problems"]) == (0, 2 * 2 + 1)
    assert sum(c["asked"] for c in told["evals"]["recall"]) == 4 * 5
    verdicts = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    proofs = {v["subject"].partition(": ")[2]: v for v in verdicts if v["check"] == "retrieval"}
    assert proofs["exact size"]["outcome"] == "pass"
    assert "up to 900" in proofs["exact size"]["sentence"]
    assert proofs["cold"]["outcome"] == "pass"
    assert proofs["afterwards"]["outcome"] == "fail"
    assert code == 1
