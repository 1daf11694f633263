"""The tokens that end an output: from the engine's word, else from the model's files."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qualify.engines.end_tokens import EndTokens, end_tokens
from qualify.engines.protocol import EngineInfo
from qualify.engines.resolve import ResolvedLaunch
from qualify.paths import data_root
from tests.engines.toys import toy


def info(**raw: Any) -> EngineInfo:
    return EngineInfo(None, None, None, None, None, None, raw)


def serving(
    folder: Path, model: Path | None = None, tokenizer: Path | None = None
) -> ResolvedLaunch:
    return replace(
        toy(folder),
        model=str(model) if model is not None else None,
        tokenizer=str(tokenizer) if tokenizer is not None else None,
    )


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_the_engines_own_word_wins(tmp_path: Path) -> None:
    model = write(tmp_path / "m", config={"eos_token_id": 7})
    told = end_tokens(
        serving(tmp_path, model), info(props={}, server_info={"eos_token_id": [5, 3]})
    )
    assert told == EndTokens((3, 5), "server_info")
    nested = {"model_config": {"text_config": {"eos_token_id": 9}}}
    assert end_tokens(serving(tmp_path), info(model_info=nested)) == EndTokens((9,), "model_info")


def test_the_generation_configuration_goes_before_the_models(tmp_path: Path) -> None:
    model = write(
        tmp_path / "m",
        generation_config={"eos_token_id": [2, 1]},
        config={"text_config": {"eos_token_id": 7}},
    )
    assert end_tokens(serving(tmp_path, model), info()) == EndTokens(
        (1, 2), "generation_config.json"
    )
    (model / "generation_config.json").write_text("{}")
    assert end_tokens(serving(tmp_path, model), info()) == EndTokens((7,), "config.json")


def test_a_tokenizers_end_token_is_the_last_resort(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "t",
        tokenizer_config={"eos_token": {"content": "</s>"}},
        tokenizer={"added_tokens": [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}]},
    )
    said = end_tokens(serving(tmp_path, None, folder), info(props={"eos_token": "</s>"}))
    assert said == EndTokens((2,), "tokenizer_config.json")


def test_a_gguf_file_names_its_own(tmp_path: Path) -> None:
    def key(name: str, value: int) -> bytes:
        return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<II", 4, value)

    pairs = [("tokenizer.ggml.eos_token_id", 2), ("tokenizer.ggml.eot_token_id", 32007)]
    file = tmp_path / "m.gguf"
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    file.write_bytes(header + b"".join(key(*pair) for pair in pairs))
    assert end_tokens(serving(tmp_path, file), info()) == EndTokens((2, 32007), "m.gguf")


@pytest.mark.parametrize("content", ["", "[]", '{"eos_token_id": null}', '{"eos_token_id": "x"}'])
def test_where_nothing_names_any_they_are_not_known(tmp_path: Path, content: str) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(content)
    assert end_tokens(serving(tmp_path, tmp_path / "m"), info()) is None
    assert end_tokens(serving(tmp_path, tmp_path / "gone.gguf"), info()) is None


def test_the_bundled_checkpoint_names_both_of_its_ends(tmp_path: Path) -> None:
    model = data_root() / "fixtures/models/tiny-qwen3.5"
    said = json.loads((model / "generation_config.json").read_text())["eos_token_id"]
    found = end_tokens(serving(tmp_path, model), info())
    assert found is not None
    assert found.ids == tuple(sorted(said))
