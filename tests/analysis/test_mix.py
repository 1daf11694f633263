"""A user's own mix: weights over measured cells, and an acceptance of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.analysis.analyse import Analysis, analyse
from qualify.analysis.mix import Mix, MixAnswer, answer_mix
from qualify.analysis.mixfile import read_mix
from qualify.campaign.faults import CampaignFaults
from qualify.checks.all import run_checks
from qualify.cli.app import run as cli
from qualify.records.run import Run
from tests.factory import Maker, Mode, Work, drafting, editing, target, where
from tests.report.folder import write_run

WORKS = (Work("prose", (256, 1024)), Work("copy", (256,)))
CELLS = ["prose@256/c1", "prose@1024/c1", "copy@256/c1"]


def made(**more: object) -> Run:
    """On copy 3.5 tokens a 10 ms step, on prose one in 12 ms."""
    ngram = Mode("ngram", 12.0, 4, lambda w, p, s: 3 if w == "copy" else 0)
    sides = {"target-only": target(10.0), "ngram": ngram}
    return Maker(sides=sides, works=WORKS, output_tokens=33, **more).build()  # type: ignore[arg-type]


def answered(
    run: Run, weights: dict[str, float], lengths: dict[str, float] | None = None
) -> MixAnswer:
    found: Analysis = analyse(run, run_checks(run))
    return answer_mix(
        Mix(weights, lengths or {}),
        "target-only",
        found.margin.value,
        found.recommendation,
        found.pairs,
        found.sides,
    )


def test_the_weights_decide_between_modes() -> None:
    mostly_prose = answered(made(), {"prose@256/c1": 0.95, "copy@256/c1": 0.05})
    assert mostly_prose.mode == "target-only"
    mostly_copy = answered(made(), {"prose@256/c1": 0.1, "copy@256/c1": 0.9})
    assert mostly_copy.mode == "ngram"
    assert mostly_copy.settled
    # 10 ms a token against 0.1 * 12 + 0.9 * 12 / 4.
    assert mostly_copy.sides[0].decode == pytest.approx(10 / (1.2 + 2.7))
    # Whole answers: 0.256 s of prefill and 32 tokens more.
    ours = 0.256 + 32 * 0.0039
    assert mostly_copy.sides[0].whole_answer == pytest.approx((0.256 + 0.32) / ours)
    assert mostly_copy.prefill_share == pytest.approx(0.256 / 0.576)


def test_an_acceptance_of_ones_own_replaces_the_measured_one() -> None:
    weights = {"copy@256/c1": 1.0}
    assert answered(made(), weights).sides[0].decode == pytest.approx(4 / 1.2)
    lower = answered(made(), weights, {"ngram": 1.1})
    assert lower.sides[0].decode == pytest.approx(1.1 / 1.2)
    assert lower.mode == "target-only"
    assert "at your accept length" in lower.why


def test_a_mode_that_fails_in_a_weighted_cell_is_out_and_elsewhere_is_not() -> None:
    edit = editing(where(side="ngram", cell="prose@1024/c1", index=0), output_ids=(1,))
    run = made(edit=edit)
    without = answered(run, {"copy@256/c1": 1.0})
    assert without.mode == "ngram"
    told = answered(run, {"copy@256/c1": 0.9, "prose@1024/c1": 0.1})
    assert told.mode == "target-only"
    assert "ngram is out: it fails parity in prose@1024/c1" in told.why


def test_nothing_is_recommended_where_the_baseline_fails() -> None:
    run = made(edit=editing(where(side="target-only", cell="copy@256/c1"), usage__cached_tokens=9))
    assert answered(run, {"copy@256/c1": 1.0}).mode is None


def test_one_prompt_a_cell_settles_no_mix() -> None:
    run = Maker(sides={"target-only": target(), "mtp": drafting()}, works=(Work(count=1),)).build()
    told = answered(run, {"prose@256/c1": 1.0})
    assert (told.mode, told.settled) == ("target-only", False)


def mix_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mix.yaml"
    path.write_text(text)
    return path


def test_weights_are_shares_by_cell_or_by_shape(tmp_path: Path) -> None:
    path = mix_file(
        tmp_path, "weights: {prose@256: 1, copy@256/c1: 3}\naccept_length: {ngram: 2}\n"
    )
    mix = read_mix(path, CELLS, ["ngram"])
    assert mix.weights == {"prose@256/c1": 0.25, "copy@256/c1": 0.75}
    assert mix.accept_length == {"ngram": 2.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("weights: {prose@512: 1}", "`prose@512` was not measured"),
        ("weights: {prose@256: -1}", "not a number of at least 0"),
        ("weights: {prose@256: yes}", "mix.yaml:1"),
        ("weight: {prose@256: 1}", "`weight` is not a key of a mix"),
        ("weights: {prose@256: 0}", "a mix needs weights"),
        ("weights: {prose@256: 1}\naccept_length: {mpt: 2}", "`mpt` is no drafting mode"),
        ("weights: {prose@256: 1}\naccept_length: {ngram: 0.5}", "at least 1"),
        ("weights: {copy@256: 1, prose: 1}", "`prose` was not measured"),
        ("- prose", "mix.yaml:1: a mix is a mapping of keys"),
    ],
)
def test_a_mix_that_says_something_wrong_is_refused_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(CampaignFaults) as refused:
        read_mix(mix_file(tmp_path, text), CELLS, ["ngram"])
    assert said in str(refused.value)
    assert "mix.yaml:" in str(refused.value)


def test_the_command_answers_for_bands_and_for_a_mix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(made(), tmp_path / "run")
    assert cli(["recommend", str(folder)]) == 0
    assert "prose, 256 to 1,024 tokens: target-only" in capsys.readouterr().out
    path = mix_file(tmp_path, "weights: {copy@256: 3, prose@256: 1}")
    assert cli(["recommend", str(folder), "--workload", str(path)]) == 0
    assert capsys.readouterr().out.startswith("ngram\n")
    assert cli(["recommend", str(folder), "--workload", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["mode"] == "ngram"
    assert told["weights"] == {"copy@256/c1": 0.75, "prose@256/c1": 0.25}
    assert cli(["recommend", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bands"][0]["mode"] == "target-only"
