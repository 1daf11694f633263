"""The cage made by bubblewrap: namespaces, a read-only view, no network, no privileges.

As root no user namespace is needed: the driver starts with the two capabilities that it takes
to become an unprivileged user of its own, and has none afterwards. As anybody else
bubblewrap makes a user namespace, which the kernel must allow.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess

from qualify.evals.sandbox import mounts
from qualify.evals.sandbox.cgroup import make_group
from qualify.evals.sandbox.nouns import Limits, SandboxError
from qualify.evals.sandbox.tree import ProcessCage, descendants

# A range that neither people nor services have: the program shares its user with nobody.
FIRST_USER, USERS = 1_900_000_000, 65_536
NOBODY = 65534
PATIENCE_S = 2.0


class Bubblewrap:
    name = "bubblewrap"

    def __init__(self) -> None:
        self._path = shutil.which("bwrap")
        self._user = FIRST_USER + secrets.randbelow(USERS) if os.getuid() == 0 else None

    @property
    def present(self) -> bool:
        return self._path is not None

    @property
    def identity(self) -> str:
        return f"{self.name}, {mounts.version()}"

    def user(self) -> int | None:
        return self._user

    def open(self, limits: Limits, driver: str) -> ProcessCage:
        if self._path is None:
            raise SandboxError("bubblewrap is not installed.", "apt-get install bubblewrap")
        group = make_group(limits.memory_bytes, limits.processes + 2)  # two are bwrap's own
        argv = [self._path, *self._options(limits), "--", mounts.interpreter()]
        argv += ["-I", "-S", "-B", "-X", "utf8", "-c", driver]
        if group is not None:
            # The shell enters the group and becomes bwrap: no process is ever outside of it.
            enter = "".join(f'echo $$ > "{file}" || exit 125; ' for file in group.entry_files)
            argv = ["/bin/sh", "-c", f'{enter}exec "$@"', "sh", *argv]
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            if group is not None:
                group.end()
            raise SandboxError(
                f"bubblewrap cannot be started: {error}.", "Install it again."
            ) from None
        return _Namespace(process, limits.memory_bytes, group)

    def _options(self, limits: Limits) -> list[str]:
        options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        options += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
        options += ["--hostname", "sandbox", "--cap-drop", "ALL"]
        if self._user is not None:
            options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            options += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
        shown = mounts.visible()
        for folder in mounts.parents(shown):
            options += ["--perms", "0755", "--dir", folder]
        for path in shown:
            options += ["--ro-bind", path, path]
        options += ["--perms", "0755", "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"]
        options += ["--perms", "1777", "--size", str(limits.files_bytes), "--tmpfs", "/tmp"]
        options += ["--setenv", "HOME", "/tmp", "--setenv", "TMPDIR", "/tmp"]
        return [*options, "--chdir", "/tmp", "--remount-ro", "/"]


class _Namespace(ProcessCage):
    """bwrap waits for the first process of the namespace, whose end is the end of all in it."""

    def kill(self, patience_s: float = 0.0) -> int | None:
        """Inside first: bwrap then collects its child and leaves, and no zombie stays behind."""
        self._settle(patience_s)
        ended = self._process.poll()
        for pid in descendants(self._process.pid)[1:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S)
        status = super().kill()
        return ended if ended is not None else status
