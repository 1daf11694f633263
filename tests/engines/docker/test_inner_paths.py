"""A path that stands inside an argument's JSON is mounted as any other, and rules reach it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.engines.definition import DefinitionError
from qualify.engines.inner import value_at, with_value
from qualify.engines.resolve import resolve
from qualify.engines.spec import load_engine
from qualify.errors import UsageError


@pytest.mark.parametrize("mode", ["dflash2", "dspark"])
def test_vllms_drafter_is_mounted_and_named_by_its_place_inside(mode: str) -> None:
    resolved = resolve(load_engine("vllm"), mode, model="/m", launch="docker")
    assert resolved.container is not None
    drafter = json.loads(str(resolved.args["speculative-config"]))["model"]
    assert Path(drafter).is_absolute()
    assert f"{drafter}:/draft:ro" in resolved.container.volumes
    at = resolved.argv.index("--speculative-config")
    inside = json.loads(resolved.argv[at + 1])
    assert inside["model"] == "/draft"
    assert inside["num_speculative_tokens"] == 7


def test_a_mode_without_a_drafter_of_its_own_mounts_the_model_alone() -> None:
    resolved = resolve(load_engine("vllm"), "mtp", model="/m", launch="docker")
    assert resolved.container is not None
    assert resolved.container.volumes == ("/m:/model:ro",)


def test_as_a_process_the_same_argument_keeps_the_hosts_path() -> None:
    resolved = resolve(load_engine("vllm"), "dflash2", model="/m")
    assert "models/Qwen3.8-27B-DFlash2" in " ".join(resolved.argv)


def test_a_draft_that_does_not_fill_its_block_is_refused_inside_json_too() -> None:
    short = '{"method":"dflash","model":"d","num_speculative_tokens":5}'
    with pytest.raises(DefinitionError, match=r"num_speculative_tokens is 5, and it must be 7"):
        resolve(load_engine("vllm"), "dflash2", args={"speculative-config": short}, model="/m")


def test_a_drafter_that_is_not_named_is_asked_for() -> None:
    nameless = '{"method":"dflash","num_speculative_tokens":7}'
    with pytest.raises(UsageError, match=r"needs the argument speculative-config\.model"):
        resolve(load_engine("vllm"), "dflash2", args={"speculative-config": nameless}, model="/m")


def test_a_key_is_looked_up_in_json_only_and_replaced_in_a_copy() -> None:
    args = {"a": '{"k": "v", "n": 1}', "b": "text", "c.k": "own"}
    assert value_at(args, "a.k") == "v"
    assert value_at(args, "b.k") is None
    assert value_at(args, "c.k") == "own"
    changed = with_value(args, "a.k", "w")
    assert json.loads(str(changed["a"])) == {"k": "w", "n": 1}
    assert args["a"] == '{"k": "v", "n": 1}'
