"""An installed wheel has everything that a checkout has beside the package."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (found,) = folder.glob("*.whl")
    return found


def test_a_wheel_carries_engines_campaigns_and_corpora(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for pattern in ("engines/*/engine.yaml", "campaigns/*.yaml", "fixtures/corpora/**/*.*"):
        files = [p for p in ROOT.glob(pattern) if p.is_file() and "__pycache__" not in p.parts]
        assert files, pattern
        missing = [
            p for p in files if f"qualify/_data/{p.relative_to(ROOT).as_posix()}" not in names
        ]
        assert missing == []
    assert "specdec/__init__.py" in names
    assert not any(n.startswith("qualify/_data/engines/cuda/specdec") for n in names)
    assert not any("__pycache__" in n or n.startswith("tests/") for n in names)


def test_an_installed_wheel_finds_its_engines_and_plans_a_campaign(
    wheel: Path, tmp_path: Path
) -> None:
    """Unpacked as pip would, and imported from there instead of from the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        "import qualify, sys; from qualify.cli.app import run; "
        "from qualify.paths import campaigns_dir; print(qualify.__file__); "
        "sys.exit(run(['plan', str(campaigns_dir() / 'quickstart.yaml')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout
    assert "prompt tokens to prefill" in done.stdout
