"""Pull by digest, a moved tag, a wrong pin: against Debian's own registry on 127.0.0.1."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from qualify.engines.docker_image import ensure_image
from qualify.engines.docker_nouns import ImagePin
from qualify.engines.ports import free_port
from qualify.errors import EngineError

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: 127.0.0.1:{port}}}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real registry."""
    program = shutil.which("docker-registry")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("docker-registry is missing; run scripts/docker-engine.sh start")
        pytest.skip("docker-registry is not installed")
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    file = folder / "config.yml"
    file.write_text(CONFIG.format(folder=folder / "data", port=port))
    server = subprocess.Popen(
        [program, "serve", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def image(docker: Any, name: str, content: str) -> str:
    """An image with one file, tagged `name`; its id."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        info = tarfile.TarInfo("content")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content.encode()))
    repository, _, tag = name.rpartition(":")
    docker.api.import_image_from_data(layer.getvalue(), repository=repository, tag=tag)
    return str(docker.images.get(name).id)


def push(docker: Any, name: str) -> str:
    """The digest that the registry gives it."""
    for event in docker.api.push(name, stream=True, decode=True):
        assert "error" not in event, event
        if "Digest" in (event.get("aux") or {}):
            return str(event["aux"]["Digest"])
    raise AssertionError("no digest")


@pytest.fixture
def names(docker: Any) -> Iterator[list[str]]:
    """Images to remove afterwards."""
    made: list[str] = []
    yield made
    for name in made:
        try:
            docker.images.remove(name, force=True)
        except Exception:  # a test removed it itself
            continue


def test_a_pinned_image_is_pulled_by_its_digest_though_the_tag_has_moved(
    docker: Any, registry: str, names: list[str]
) -> None:
    name = f"{registry}/moving:1"
    first_id = image(docker, name, "first")
    first = push(docker, name)
    image(docker, name, "second")
    second = push(docker, name)
    assert first != second
    names += [name, first_id, f"{registry}/moving@{first}"]
    for reference in (name, first_id):
        docker.images.remove(reference, force=True)
    told: list[str] = []
    got = ensure_image(docker, ImagePin(name, digest=first), progress=told.append)
    assert f"{registry}/moving@{first}" in got.digests
    assert got.id == first_id
    assert told[0] == f"pulling {registry}/moving@{first}"
    assert told[-1] == f"pulled {registry}/moving@{first}"
    told.clear()
    again = ensure_image(docker, ImagePin(name, digest=first), progress=told.append)
    assert (again.id, told) == (got.id, [])  # what is here is used as it is


def test_a_moved_tag_is_refused_when_the_pinned_image_cannot_be_had(
    docker: Any, registry: str, names: list[str]
) -> None:
    name = f"{registry}/moved:1"
    image(docker, name, "now")
    now = push(docker, name)
    names.append(name)
    pinned = "sha256:" + "0" * 64
    with pytest.raises(EngineError) as caught:
        ensure_image(docker, ImagePin(name, digest=pinned))
    assert now in caught.value.message
    assert pinned in caught.value.message
    assert "is another image now" in caught.value.message


def test_a_digest_that_no_registry_has_is_said(docker: Any, registry: str) -> None:
    pin = ImagePin(f"{registry}/nothing:1", digest="sha256:" + "1" * 64)
    with pytest.raises(EngineError, match="cannot be pulled"):
        ensure_image(docker, pin)


def test_a_tag_without_a_pin_is_pulled_and_its_digest_written_down(
    docker: Any, registry: str, names: list[str]
) -> None:
    name = f"{registry}/tagged:2"
    image(docker, name, "tagged")
    digest = push(docker, name)
    docker.images.remove(name, force=True)
    names.append(name)
    got = ensure_image(docker, ImagePin(name))
    assert got.digests == (f"{registry}/tagged@{digest}",)


def test_a_local_build_is_known_by_its_id(docker: Any, names: list[str]) -> None:
    name = "qualify-test-build:1"
    built = image(docker, name, "built")
    names.append(name)
    assert ensure_image(docker, ImagePin(name, id=built)).id == built
    with pytest.raises(EngineError, match="is another image now: no digest of a registry"):
        ensure_image(docker, ImagePin(name, id="sha256:" + "2" * 64))


def test_a_local_build_never_passes_for_a_published_image(docker: Any, names: list[str]) -> None:
    name = "qualify-test-claims:1"
    image(docker, name, "claims")
    names.append(name)
    with pytest.raises(EngineError, match="is another image now"):
        ensure_image(docker, ImagePin(name, digest="sha256:" + "3" * 64, pull="never"))


def test_an_image_that_only_the_user_can_have_is_asked_for(docker: Any) -> None:
    with pytest.raises(EngineError, match="is not here") as caught:
        ensure_image(docker, ImagePin("qualify-test-absent:1", pull="never"))
    assert "docker tag IMAGE qualify-test-absent:1" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("a/b:1", "a/b"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b"),
        ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b"),
        ("a@sha256:00", "a"),
    ],
)
def test_a_port_in_a_name_is_no_tag(name: str, repository: str) -> None:
    assert ImagePin(name).repository == repository
