"""The bundled engine, built as an image without a network, measured in its container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qualify.engines.docker_build import build_image
from qualify.engines.spec import load_engine
from qualify.inspect.image import inspect_image
from qualify.paths import campaigns_dir, models_dir
from tests.engines.docker.boxes import left
from tests.engines.docker.conftest import BASE

ROOT = Path(__file__).parents[3]
WHEELS = os.environ.get("QUALIFY_WHEELS")
NEEDED_S = 900
pytestmark = pytest.mark.timeout(NEEDED_S)  # the image's first build takes minutes


@pytest.fixture(scope="module")
def image(engine_host: str | None) -> str:
    """The image's id, built of the sources as they are now."""
    if engine_host is not None or WHEELS is None or not any(Path(WHEELS).glob("torch-*.whl")):
        why = engine_host or "set QUALIFY_WHEELS to the folder that scripts/engine-wheels.sh fills"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return build_image(load_engine("cuda"), args={"BASE": BASE}, wheels=Path(WHEELS))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_image_holds_what_its_definition_says_and_nothing_left_over(
    docker: Any, image: str
) -> None:
    container = load_engine("cuda").docker
    assert container is not None
    assert container.holds is not None
    found = inspect_image(image, container.holds, client=docker)
    assert found.faults == ()
    assert found.facts["looked_at"] > 50


def test_a_campaign_qualifies_the_bundled_engine_in_its_container(
    docker: Any, alone: None, image: str, tmp_path: Path
) -> None:
    out, model = tmp_path / "run", tmp_path / "model"
    shutil.copytree(models_dir() / "tiny-qwen3.5", model)  # so that nobody changes it meanwhile
    campaign = tmp_path / "campaign.yaml"
    shipped = (campaigns_dir() / "cuda-container.yaml").read_text()
    campaign.write_text(f"{shipped}\nmodel: {model}\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "qualify", "run", str(campaign), "--yes"),
            *("--out", str(out), "--only", "workload=code", "tokens=256"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=NEEDED_S - 60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = json.loads((out / "verdicts.json").read_text())
    passed = {v["check"] for v in verdicts if v["outcome"] == "pass"}
    assert {"identity", "cold", "shape", "length", "stream", "parity", "counters"} <= passed
    started = [x for x in lines(out / "launches.jsonl") if x["status"] == "started"]
    assert {x["side"] for x in started} == {"target-only", "mtp"}
    for launch in started:
        origin = launch["origin"]
        assert origin["kind"] == "docker"
        assert origin["container"]["image"]["id"] == image
        log = (out / f"engine-{launch['launch']}.log").read_text()
        assert "The server is fired up and ready to roll!" in log
    stopped = [x for x in lines(out / "launches.jsonl") if x["status"] == "stopped"]
    assert {x["origin"]["exit"] for x in stopped} == {"exit code 0"}
    assert left(docker, out) == []


def test_the_image_holds_no_bytecode_no_wheels_and_no_tests(docker: Any, image: str) -> None:
    script = "import pathlib; print(*pathlib.Path('/opt/specdec').rglob('*'))"
    listed = docker.containers.run(
        image, ["python3", "-c", script], remove=True, network_mode="none"
    )
    names = listed.decode().split()
    assert "/opt/specdec/specdec/server.py" in names
    assert not [n for n in names if "__pycache__" in n or n.endswith((".whl", ".pyc"))]
