"""engine.yaml: what is read, what is refused, and where the refusal points."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualify.engines.definition import DefinitionError
from qualify.engines.spec import engine_names, load_engine
from qualify.errors import UsageError

GOOD = """\
name: toy
protocol: sglang
launch:
  process:
    argv: ["{python}", -m, toy, --port, "{port}"]
modes:
  target-only: {drafter: none}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "engine.yaml"
    file.write_text(text)
    return file


def refusal(folder: Path, text: str) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        load_engine(written(folder, text))
    return caught.value


def test_every_engine_that_comes_with_the_project_can_be_read() -> None:
    names = engine_names()
    assert {"llama-cpp", "cuda", "sglang"} <= set(names)
    for name in names:
        assert load_engine(name).name == name


def test_an_engine_is_found_by_name_by_file_and_by_folder(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    assert load_engine("llama-cpp").protocol == "llamacpp"
    assert load_engine(file) == load_engine(tmp_path) == load_engine(str(file))


def test_a_misspelt_engine_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean llama-cpp"):
        load_engine("lama-cpp")


def test_an_unknown_key_is_refused_with_its_line_and_a_suggestion(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("drafter: none", "drafter: none, arg: {}"))
    assert error.line == 7
    assert "modes.target-only.arg" in error.message
    assert "Did you mean args" in error.remedy


def test_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD + "name: other\n")
    assert error.line == 8
    assert "is written twice (first in line 1)" in error.message


@pytest.mark.parametrize("word", ["off", "3:30", "012", "1e6", "2026-08-19", "0x1F"])
def test_a_word_that_yaml_readers_disagree_about_is_refused(tmp_path: Path, word: str) -> None:
    error = refusal(tmp_path, GOOD.replace("drafter: none", f"drafter: none, args: {{a: {word}}}"))
    assert error.line == 7
    assert word in error.message


def test_quoted_words_are_text_and_plain_numbers_are_numbers(tmp_path: Path) -> None:
    args = '{graph: "off", x: "012", b: 1.5, c: -3, d: true}'
    text = GOOD.replace("drafter: none", f"drafter: none, args: {args}")
    assert load_engine(written(tmp_path, text)).modes["target-only"].args == {
        "graph": "off",
        "x": "012",
        "b": 1.5,
        "c": -3,
        "d": True,
    }


@pytest.mark.parametrize(
    "text", [GOOD + "x: &a 1\n", GOOD + "---\nname: b\n", "- a\n", "{{a}}: 1\n"]
)
def test_what_a_campaign_may_not_hold_a_definition_may_not_hold(tmp_path: Path, text: str) -> None:
    error = refusal(tmp_path, text)
    assert error.line is not None
    said = error.message.replace(str(tmp_path), "") + error.remedy
    assert "campaign" not in said


def test_a_wrong_type_is_refused_where_it_stands(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("drafter: none", "drafter: maybe"))
    assert error.line == 7
    assert "drafter" in error.message


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert (
        "protocol is missing" in refusal(tmp_path, GOOD.replace("protocol: sglang\n", "")).message
    )


def test_broken_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    assert refusal(tmp_path, GOOD + "x: [1\n").line is not None


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path, "")


def test_an_unknown_placeholder_is_refused_with_the_nearest(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("{port}", "{prot}"))
    assert "{prot}" in error.message
    assert "{port}" in error.remedy


def test_a_definition_without_any_launch_is_refused(tmp_path: Path) -> None:
    error = refusal(
        tmp_path, "name: x\nprotocol: openai\nlaunch: {}\nmodes: {a: {drafter: none}}\n"
    )
    assert "process:, docker: or attach:" in error.message


def test_forty_state_slots_at_five_a_request_serve_eight(tmp_path: Path) -> None:
    profile = "profiles: {p: {max_running: 16, state_slots: 40, state_slots_per_request: 5}}\n"
    spec = load_engine(written(tmp_path, GOOD + profile))
    assert spec.profiles["p"].effective_concurrency == 8


def test_texts_and_rough_rates_are_no_part_of_the_identity(tmp_path: Path) -> None:
    plain = load_engine(written(tmp_path, GOOD + "profiles: {p: {max_running: 2}}\n")).identity()
    rated = GOOD + (
        "about: fast\nprofiles: {p: {about: x, max_running: 2, "
        "rates: {prefill_tps: 10, decode_tps: 5}}}\n"
    )
    assert load_engine(written(tmp_path, rated)).identity() == plain
    other = load_engine(written(tmp_path, GOOD + "profiles: {p: {max_running: 3}}\n")).identity()
    assert other != plain


def test_the_identity_holds_no_path_of_this_machine(tmp_path: Path) -> None:
    identity = load_engine("llama-cpp").identity()
    assert str(Path.home()) not in str(identity)
    assert str(load_engine("llama-cpp").folder) not in str(identity)
    assert load_engine(written(tmp_path, GOOD)).identity() == {
        "name": "toy",
        "protocol": "sglang",
        "launch": {"process": {"argv": ["{python}", "-m", "toy", "--port", "{port}"]}},
        "modes": {"target-only": {"drafter": "none"}},
    }


def test_an_argument_that_is_taken_away_changes_the_identity(tmp_path: Path) -> None:
    def identity(args: str) -> object:
        text = GOOD.replace("drafter: none", f"drafter: none, args: {args}")
        return load_engine(written(tmp_path, text)).identity()

    assert identity("{flag: null}") != identity("{}")
