"""What only the engine's machine can tell: device nodes, group ids, whether a path is there."""

from __future__ import annotations

import grp
import subprocess
from dataclasses import dataclass
from pathlib import Path

from qualify.engines.docker_client import ssh_target
from qualify.engines.docker_line import HOST_GROUP
from qualify.engines.docker_nouns import ContainerPlan
from qualify.errors import EngineError

SSH_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class DockerHost:
    """The machine that the Docker Engine runs on; ssh = how to reach it, None = this one."""

    ssh: tuple[str, ...] | None = None

    @classmethod
    def current(cls) -> DockerHost:
        return cls(ssh_target())

    def group_id(self, name: str) -> int | None:
        """None when that machine has no such group."""
        if self.ssh is None:
            try:
                return grp.getgrnam(name).gr_gid
            except KeyError:
                return None
        fields = (self._ask("getent", "group", name) or "").split(":")
        return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None

    def has(self, path: str) -> bool:
        if self.ssh is None:
            return Path(path).exists()
        return self._ask("test", "-e", path) is not None

    def _ask(self, *words: str) -> str | None:
        """Its output; None when it fails. Raises EngineError when ssh itself does."""
        assert self.ssh is not None
        # After the host, words are read by a shell there; paths with blanks need quotes.
        command = ["ssh", "-o", "BatchMode=yes", *self.ssh, *(f"'{w}'" for w in words)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SSH_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(
                f"ssh {self.ssh[-1]} cannot be used: {error}.", "Try `ssh HOST true` by hand."
            ) from error
        if done.returncode == 255:
            raise EngineError(
                f"ssh {self.ssh[-1]} failed: {done.stderr.strip()[:300]}.",
                "Try `ssh HOST true` by hand; a key without a question is needed.",
            )
        return done.stdout if done.returncode == 0 else None


def groups_of(plan: ContainerPlan, host: DockerHost) -> list[str]:
    """Group names and ids for the container, `host:NAME` looked up. Raises EngineError."""
    found = []
    for group in plan.settings.groups:
        if not group.startswith(HOST_GROUP):
            found.append(group)
            continue
        name = group.removeprefix(HOST_GROUP)
        number = host.group_id(name)
        if number is None:
            raise EngineError(
                f"This machine has no group {name}, and the container needs its number to open "
                f"{', '.join(plan.settings.devices) or 'its devices'}.",
                "Install the GPU's driver (its packages make that group), or take the group out "
                "of groups: in the engine definition.",
            )
        found.append(str(number))
    return found


def check_host(plan: ContainerPlan, host: DockerHost) -> None:
    """Raises EngineError for a device or a mounted path that the machine does not have."""
    for device in plan.settings.devices:
        path = device.partition(":")[0]
        if not host.has(path):
            raise EngineError(
                f"This machine has no {path}, and the container is to use it.",
                "No driver of such a device is loaded here: choose an engine or a profile that "
                "this machine can run (qualify engines list).",
            )
    for volume in plan.volumes:
        path = volume.partition(":")[0]
        if not host.has(path):
            raise EngineError(
                f"{path} is not there, and the container is to see it.",
                "Put the checkpoint there (the engine's README has the command), or write its "
                "path in the campaign.",
            )
