"""What a host cannot give is said in a sentence, and what is asked for is really asked for."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from qualify.engines.docker_client import docker_py
from qualify.engines.docker_create import create_arguments
from qualify.engines.owned import new_owned
from qualify.engines.ready import wait_ready
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.server import launch
from qualify.engines.spec import load_engine
from qualify.errors import EngineError
from tests.engines.docker.boxes import boxed, left

MORE_THAN_ANY_KERNEL_ALLOWS = 2_000_000_000  # open files: above fs.nr_open, even for root


def notes_of(resolved: ResolvedLaunch, folder: Path) -> list[str]:
    async def run() -> list[str]:
        async with launch(resolved, folder, "a") as server:
            await wait_ready(server, timeout_s=60)
            assert server.process is not None
            return list(server.process.facts()["notes"])

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"devices": ["/dev/no-such-gpu"]}, "This machine has no /dev/no-such-gpu"),
        ({"groups": ["host:no-such-group"]}, "This machine has no group no-such-group"),
        ({"gpus": "all"}, "cannot give NVIDIA GPUs"),
        ({"volumes": ["/no/such/checkpoint:/model:ro"]}, "/no/such/checkpoint is not there"),
        ({"command": ["/no/such/program"]}, "no such command"),
        (
            {"ulimits": {"nofile": MORE_THAN_ANY_KERNEL_ALLOWS}},
            "a ulimit of its definition is refused",
        ),
    ],
)
def test_what_the_machine_cannot_give_is_said_and_leaves_nothing(
    docker: Any, tmp_path: Path, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        notes_of(boxed(tmp_path, docker=asked), tmp_path)
    assert caught.value.remedy
    assert left(docker, tmp_path) == []


def test_an_optional_ulimit_that_is_refused_is_left_out_and_noted(
    docker: Any, tmp_path: Path
) -> None:
    asked = {
        "ulimits": {"nofile": MORE_THAN_ANY_KERNEL_ALLOWS, "stack": 67108864},
        "optional_ulimits": ["nofile"],
    }
    notes = notes_of(boxed(tmp_path, docker=asked), tmp_path)
    assert notes == ["started without --ulimit nofile: this host refuses it"]


def test_the_xpu_container_is_made_as_its_definition_says(docker: Any, tmp_path: Path) -> None:
    """Created and inspected, not started: this machine has no such GPU."""
    resolved = resolve(load_engine("sglang-xpu"), "dflash2")
    plan = resolved.container
    assert plan is not None
    (tmp_path / "dri").mkdir()
    plan = dataclasses.replace(plan, volumes=(f"{tmp_path / 'dri'}:/model:ro",))
    owned = new_owned("r1.dflash2#1")
    container = docker.containers.create(
        **create_arguments(
            docker_py(),
            plan,
            image_id=docker.images.get("qualify-base:local").id,
            command=resolved.argv_for(30000),
            env=resolved.env,
            groups=["video", "105"],
            port=31234,
            owned=owned,
            folder=tmp_path,
        )
    )
    try:
        attrs = docker.api.inspect_container(container.id)
    finally:
        container.remove(force=True)
    host, config = attrs["HostConfig"], attrs["Config"]
    assert host["PortBindings"] == {"30000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "31234"}]}
    assert host["Devices"][0]["PathOnHost"] == "/dev/dri"
    assert host["GroupAdd"] == ["video", "105"]
    assert host["IpcMode"] == "host"
    assert host["ShmSize"] == 64 * 2**30
    assert host["CapAdd"] == ["SYS_PTRACE"]
    assert "seccomp=unconfined" in host["SecurityOpt"]
    assert {u["Name"]: u["Hard"] for u in host["Ulimits"]} == {"memlock": -1, "stack": 67108864}
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert host["Mounts"][0]["ReadOnly"] is True
    assert "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0" in config["Env"]
    assert f"QUALIFY_LAUNCH={owned.marker}" in config["Env"]
    assert config["Labels"]["qualify.launch"] == "r1.dflash2#1"
    assert config["Cmd"][-4:] == ["--host", "0.0.0.0", "--port", "30000"]


@pytest.mark.parametrize(
    ("gpus", "count", "ids"), [("all", -1, None), (2, 2, None), (["0", "3"], 0, ["0", "3"])]
)
def test_nvidia_gpus_are_asked_for_as_docker_run_does(
    docker: Any, tmp_path: Path, gpus: Any, count: int, ids: list[str] | None
) -> None:
    resolved = boxed(tmp_path, docker={"gpus": gpus})
    assert resolved.container is not None
    container = docker.containers.create(
        **create_arguments(
            docker_py(),
            resolved.container,
            image_id=docker.images.get("qualify-base:local").id,
            command=("true",),
            env={},
            groups=[],
            port=1,
            owned=new_owned("a"),
            folder=tmp_path,
        )
    )
    try:
        (asked,) = docker.api.inspect_container(container.id)["HostConfig"]["DeviceRequests"]
    finally:
        container.remove(force=True)
    assert asked["Count"] == count
    assert (asked["DeviceIDs"] or None) == ids
    assert asked["Capabilities"] == [["gpu"]]
