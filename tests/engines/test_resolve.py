"""From a definition to the command that is started."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import yaml

from qualify.engines.definition import DefinitionError
from qualify.engines.resolve import command_line, resolve
from qualify.engines.spec import EngineSpec, load_engine
from qualify.errors import UsageError


def engine(folder: Path, **changes: object) -> EngineSpec:
    definition: dict[str, object] = {
        "name": "toy",
        "protocol": "sglang",
        "launch": {
            "process": {
                "argv": ["{python}", "-m", "toy", "--port", "{port}"],
                "env": {"A": "launch", "B": "launch", "WHERE": "{engine_dir}"},
            },
            "attach": {"url": "http://127.0.0.1:1234/"},
        },
        "args": {"level": "engine", "log": True},
        "profiles": {"small": {"args": {"level": "profile", "pool": 64}, "env": {"B": "profile"}}},
        "modes": {
            "target-only": {"drafter": "none", "args": {"level": "mode"}},
            "mtp": {
                "drafter": "model",
                "args": {"num-steps": 7, "topk": 1, "num-draft": 8},
                "drafts": "num-steps",
                "block": "num-draft",
                "constraints": [
                    {"arg": "num-draft", "one_more_than": "num-steps", "why": "anchor first"}
                ],
            },
            "dflash2": {
                "drafter": "model",
                "args": {"num-draft": 8, "block": 8},
                "drafts": 7,
                "requires": ["draft-model-path"],
                "constraints": [{"arg": "num-draft", "same_as": "block", "why": "one block"}],
            },
        },
        "constraints": [{"arg": "topk", "equals": 1, "why": "no trees"}],
    }
    definition.update(changes)
    file = folder / "engine.yaml"
    file.write_text(yaml.safe_dump(definition))
    return load_engine(file)


def test_a_variant_lies_over_the_mode_over_the_profile_over_the_engine(tmp_path: Path) -> None:
    spec = engine(tmp_path)
    assert resolve(spec, "mtp").args["level"] == "profile"
    assert resolve(spec, "target-only").args["level"] == "mode"
    assert resolve(spec, "target-only", args={"level": "variant"}).args["level"] == "variant"
    env = resolve(spec, "target-only", env={"A": "variant"}).env
    assert env == {"A": "variant", "B": "profile", "WHERE": str(tmp_path)}


def test_null_and_false_take_a_flag_away_and_true_gives_it_without_a_value(tmp_path: Path) -> None:
    spec = engine(tmp_path)
    argv = resolve(spec, "target-only", args={"pool": None, "fast": True}).argv
    assert "--pool" not in argv
    assert argv[-1] == "--fast"
    assert "--log" in argv
    assert "--log" not in resolve(spec, "target-only", args={"log": False}).argv


def test_the_port_is_filled_in_at_the_launch(tmp_path: Path) -> None:
    resolved = resolve(engine(tmp_path), "target-only")
    assert resolved.argv[0] == sys.executable
    assert resolved.argv_for(4321)[3:5] == ("--port", "4321")


def test_the_printed_line_says_the_same_as_the_launch(tmp_path: Path) -> None:
    resolved = resolve(engine(tmp_path), "target-only", args={"note": "two words; rm -rf"})
    words = shlex.split(command_line(resolved, port=77))
    assert words[:3] == ["A=launch", "B=profile", f"WHERE={tmp_path}"]
    assert tuple(words[3:]) == resolved.argv_for(77)


def test_json_in_an_argument_is_left_alone(tmp_path: Path) -> None:
    text = '{"method":"mtp","n":{"a":1}}'
    assert text in resolve(engine(tmp_path), "target-only", args={"config": text}).argv


def test_drafts_and_block_follow_the_variant(tmp_path: Path) -> None:
    spec = engine(tmp_path)
    assert (resolve(spec, "mtp").drafts, resolve(spec, "mtp").block) == (7, 8)
    narrow = resolve(spec, "mtp", args={"num-steps": 3, "num-draft": 4})
    assert (narrow.drafts, narrow.block) == (3, 4)


@pytest.mark.parametrize(
    ("mode", "args", "said"),
    [
        ("mtp", {"topk": 4}, "topk is 4, and it must be 1: no trees"),
        ("mtp", {"num-steps": 3}, "num-draft is 8, and it must be num-steps + 1 = 4"),
        ("dflash2", {"draft-model-path": "d", "num-draft": 4}, "must be block = 8: one block"),
    ],
)
def test_a_combination_that_the_definition_forbids_is_refused(
    tmp_path: Path, mode: str, args: dict[str, str | int | float | bool | None], said: str
) -> None:
    with pytest.raises(DefinitionError, match=said.replace("+", r"\+")):
        resolve(engine(tmp_path), mode, args=args)


def test_the_sglang_definition_refuses_a_draft_tree() -> None:
    with pytest.raises(DefinitionError, match="speculative-eagle-topk is 4"):
        resolve(load_engine("sglang"), "mtp", args={"speculative-eagle-topk": 4}, model="m")


def test_a_mode_that_needs_an_argument_says_how_to_give_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(engine(tmp_path), "dflash2")
    assert "draft-model-path" in caught.value.message
    assert "variants:" in caught.value.remedy


def test_a_misspelt_mode_or_profile_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean target-only"):
        resolve(engine(tmp_path), "target_only")
    with pytest.raises(UsageError, match="Did you mean small"):
        resolve(engine(tmp_path), "mtp", "smal")


def test_an_address_attaches_instead_of_starting(tmp_path: Path) -> None:
    resolved = resolve(engine(tmp_path), "mtp", attach_url="http://127.0.0.1:9/")
    assert (resolved.kind, resolved.url, resolved.argv) == ("attach", "http://127.0.0.1:9", ())
    assert command_line(resolved).startswith("#")


def test_a_missing_model_is_refused_with_what_to_write() -> None:
    with pytest.raises(UsageError, match="model: PATH"):
        resolve(load_engine("sglang"), "target-only")


def test_a_given_model_replaces_the_definitions_own(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.touch()
    resolved = resolve(load_engine("llama-cpp"), "target-only", model=str(model))
    assert resolved.model == str(model) == resolved.tokenizer
    assert str(model) in resolved.argv


@pytest.mark.parametrize("profile", ["default", "small", "long"])
def test_the_bundled_engine_has_four_modes_and_finds_the_drafters_beside_its_model(
    profile: str,
) -> None:
    spec = load_engine("cuda")
    assert list(spec.modes) == ["target-only", "mtp", "dflash2", "dspark"]
    for mode in spec.modes:
        resolved = resolve(spec, mode, profile)
        assert resolved.drafts == (None if mode == "target-only" else 7)
        folder = resolved.args.get("draft-model")
        assert (folder is not None) == (mode in ("dflash2", "dspark"))
        if folder is not None:
            assert (Path(str(folder)) / "config.json").is_file()
            assert str(folder) in resolved.argv
    assert resolve(spec, "dspark", profile).args["draft-kv"] == "shared"
