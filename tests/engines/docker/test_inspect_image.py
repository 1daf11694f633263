"""Images with planted defects, on a real Docker Engine: each is named, the sound one passes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qualify.checks import image
from qualify.checks.settings import Settings
from qualify.cli.app import run as qualify
from qualify.engines.docker_nouns import Holds
from qualify.errors import EngineError
from qualify.inspect.image import inspect_image
from qualify.records.schema import ProbeRecord
from qualify.run.probes.before import inspections_of, look
from tests.engines.docker.boxes import boxed
from tests.engines.docker.conftest import BASE
from tests.factory import Maker

ROOT = "/sgl/python/sglang"
WANTED = Holds(
    roots=("/sgl",),
    classes=("DFlash2DraftModel",),
    env={"SGLANG_DFLASH_DISABLE_DRAFT_GRAPH": "1"},
    manifest="/sgl/MANIFEST.sha256",
)
# As SGLang's modules register themselves; class bodies are beside the point.
SOURCES = {
    "python/sglang/srt/models/dflash.py": (
        "class DFlashDraftModel:\n    pass\n\n\nclass DFlash2DraftModel(DFlashDraftModel):\n"
        "    pass\n\n\nEntryClass = [DFlashDraftModel, DFlash2DraftModel]\n"
    ),
    "python/sglang/srt/speculative/dflash_worker.py": "class DFlashWorker:\n    pass\n",
}
ENV = ["ENV SGLANG_DFLASH_DISABLE_DRAFT_GRAPH=1", "WORKDIR /sgl"]

Make = Callable[..., str]


def manifest(sources: dict[str, str]) -> str:
    lines = [f"{hashlib.sha256(t.encode()).hexdigest()}  {p}\n" for p, t in sources.items()]
    return "# revision 0123456789abcdef\n" + "".join(lines)


@pytest.fixture
def make(docker: Any) -> Iterator[Make]:
    """Files (below /sgl) and settings over the base image -> the new image's name."""
    made: list[str] = []

    def made_of(
        sources: dict[str, str], listed: str | None = None, changes: list[str] | None = None
    ) -> str:
        files = dict(sources)
        if listed != "":
            files["MANIFEST.sha256"] = listed or manifest(sources)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for path, text in files.items():
                member = tarfile.TarInfo(f"sgl/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        container = docker.containers.create(BASE, ["true"])
        try:
            container.put_archive("/", data.getvalue())
            name = f"qualify-inspect:{uuid.uuid4().hex[:12]}"
            container.commit(*name.split(":"), changes=changes if changes is not None else ENV)
        finally:
            container.remove(force=True)
        made.append(name)
        return name

    yield made_of
    for name in made:
        docker.images.remove(name, force=True)


def classic(sources: dict[str, str]) -> dict[str, str]:
    """A mixed tree: the new worker beside the older file that exports classic DFlash only."""
    path = "python/sglang/srt/models/dflash.py"
    return {
        **sources,
        path: "class DFlashDraftModel:\n    pass\n\n\nEntryClass = DFlashDraftModel\n",
    }


def plus(path: str, text: str = "x = 1\n") -> dict[str, str]:
    return {**SOURCES, path: text}


UNREGISTERED = {
    **SOURCES,
    "python/sglang/srt/models/dflash.py": (
        "class DFlash2DraftModel:\n    pass\n\n\nclass DFlashDraftModel:\n    pass\n\n\n"
        "EntryClass = [DFlashDraftModel]\n"
    ),
}


@pytest.mark.parametrize(
    ("sources", "more", "says"),
    [
        (classic(SOURCES), {}, "No source registers the class DFlash2DraftModel"),
        (UNREGISTERED, {}, "No source registers the class DFlash2DraftModel"),
        (classic(SOURCES), {"listed": manifest(SOURCES)}, "dflash.py is not the file of the"),
        (SOURCES, {"listed": ""}, "holds no source manifest /sgl/MANIFEST.sha256"),
        (SOURCES, {"listed": "# nothing\n"}, "lists no file"),
        (plus("python/sglang/extra.py"), {"listed": manifest(SOURCES)}, "is not in the manifest"),
        (SOURCES, {"listed": manifest(plus("gone.py"))}, "/sgl/gone.py is in the manifest and"),
        (SOURCES, {"changes": ["WORKDIR /sgl"]}, "DISABLE_DRAFT_GRAPH is not set; '1' is expected"),
        (SOURCES, {"changes": [ENV[0].replace("=1", "=0")]}, "DISABLE_DRAFT_GRAPH is '0'"),
        (plus("python/dflash_phase_profiler.py"), {}, "a profiler file that should not be there"),
        (plus("python/sglang/models/dflash.py.bak"), {}, "a backup file that should not be there"),
        (
            plus("python/__pycache__/dflash.cpython-312.pyc"),
            {},
            "a bytecode file that should not be",
        ),
        (plus("tests/run.log"), {}, "a log file that should not be there: /sgl/tests/run.log."),
    ],
)
def test_a_planted_defect_is_named_and_the_sound_image_passes(
    docker: Any, make: Make, sources: dict[str, str], more: dict[str, Any], says: str
) -> None:
    bad = inspect_image(make(sources, **more), WANTED, client=docker)
    good = inspect_image(make(SOURCES), WANTED, client=docker)
    assert (good.faults, good.unjudged) == ((), ())
    assert good.facts["registered"] == {
        "DFlash2DraftModel": f"EntryClass in {ROOT}/srt/models/dflash.py"
    }
    assert any(says in fault.sentence for fault in bad.faults), bad.faults
    assert not docker.containers.list(all=True, filters={"ancestor": good.facts["id"]})


def test_without_a_definition_the_folders_come_from_the_images_own_settings(
    docker: Any, make: Make
) -> None:
    found = inspect_image(make(plus("a.bak")), Holds(), client=docker)
    assert found.facts["roots"] == ["/sgl"]
    assert [f.what for f in found.faults] == ["backup"]
    assert found.unjudged == ("no draft class was named, so none was looked for",)


def test_the_command_line_says_it_all_and_gives_the_exit_code(
    docker: Any, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sound, bad = make(SOURCES), make(classic(SOURCES))
    words = ["--class", "DFlash2DraftModel", "--manifest", "/sgl/MANIFEST.sha256"]
    assert qualify(["inspect", "image", sound, *words]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert qualify(["inspect", "image", bad, *words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["faults"][0]["what"] == "class"
    assert qualify(["inspect", "image", sound]) == 4


def test_a_run_looks_at_its_image_before_the_launch_and_the_verdict_names_what_is_wrong(
    docker: Any, make: Make, tmp_path: Path
) -> None:
    holds = {"roots": ["/sgl"], "classes": ["DFlash2DraftModel"]}
    outcomes = {}
    for name, sources in (("good", SOURCES), ("bad", classic(SOURCES))):
        resolved = boxed(tmp_path / name, docker={"image": make(sources), "holds": holds})
        assert inspections_of(resolved, {"image": True}) == ["image"]
        assert inspections_of(resolved, {}) == []
        run = Maker(checks={"image": True}, self_parity=False).build()
        lines = [
            ProbeRecord(
                "made", "r1.target-only#1", 1, "target-only", "target-only", "image", step, "step",
                "now", seen=seen,
            )
            for step, seen in look("image", resolved)
        ]  # fmt: skip
        (verdict,) = image.check(
            dataclasses.replace(run, probes=tuple(lines)), Settings(run.plan.checks)
        )
        outcomes[name] = verdict.outcome
    assert outcomes == {"good": "pass", "bad": "fail"}
    assert verdict.sentence.startswith("Image: No source registers the class DFlash2DraftModel")


def test_an_image_that_is_not_here_is_told(docker: Any) -> None:
    with pytest.raises(EngineError, match="is not here"):
        inspect_image("qualify-inspect:no-such", Holds(), client=docker)
