"""The cage made by a Docker Engine: one container a program, with the host's own Python.

The image is empty: this machine's interpreter is mounted read-only, as bubblewrap does, so
that both cages run the same Python. A named image is used with its own `python3` instead.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import shutil
import subprocess
import tarfile

from qualify.evals.sandbox import mounts
from qualify.evals.sandbox.bubblewrap import NOBODY
from qualify.evals.sandbox.nouns import Limits, SandboxError
from qualify.evals.sandbox.tree import ProcessCage

EMPTY = "qualify-sandbox:empty"
LABEL = "qualify.sandbox"
ANSWER_S = 20.0


class Docker:
    """Needs the docker command and an engine that answers it on this machine."""

    name = "docker"

    def __init__(self, image: str | None = None) -> None:
        self._path = shutil.which("docker")
        self._image = image
        self._ready: str | None = None

    @property
    def present(self) -> bool:
        """Whether an engine answers."""
        if self._path is None:
            return False
        with contextlib.suppress(SandboxError):
            return bool(self._ask("version", "--format", "{{.Server.Version}}").strip())
        return False

    @property
    def identity(self) -> str:
        if self._image is None:
            return f"{self.name}, {mounts.version()}"
        return f"{self.name}, {self._image} {self._ask('inspect', '-f', '{{.Id}}', self._image)}"

    def user(self) -> int | None:
        return None

    def open(self, limits: Limits, driver: str) -> ProcessCage:
        if self._path is None:
            raise SandboxError("There is no docker command.", "Install docker.io or bubblewrap.")
        name = f"qualify-sandbox-{secrets.token_hex(8)}"
        argv = [self._path, "run", "--interactive", "--name", name, *self._options(limits)]
        argv += ["-I", "-S", "-B", "-X", "utf8", "-c", driver]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return _Container(self._path, name, process, limits.memory_bytes)

    def left(self) -> list[str]:
        """Names of containers of any sandbox that are still there."""
        told = self._ask("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}")
        return told.split()

    def _options(self, limits: Limits) -> list[str]:
        """Everything up to the interpreter's own arguments, image and interpreter included."""
        image, python = self._image, "python3"
        shown: tuple[str, ...] = ()
        if image is None:
            image, python, shown = self._empty(), mounts.interpreter(), mounts.visible()
        memory = str(limits.memory_bytes)
        options = ["--label", LABEL, "--pull", "never", "--log-driver", "none", "--network", "none"]
        options += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        options += ["--user", f"{NOBODY}:{NOBODY}", "--ipc", "none", "--hostname", "sandbox"]
        options += ["--pids-limit", str(limits.processes), "--memory", memory]
        options += ["--memory-swap", memory, "--workdir", "/tmp"]
        options += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.files_bytes},mode=1777"]
        options += ["--env", "HOME=/tmp", "--env", "TMPDIR=/tmp"]
        for path in shown:
            options += ["--mount", f"type=bind,source={path},target={path},readonly"]
        return [*options, "--entrypoint", python, image]

    def _empty(self) -> str:
        """The empty image, imported where it is not there yet."""
        if self._ready is None:
            with contextlib.suppress(SandboxError):
                self._ready = self._ask("image", "inspect", "-f", "{{.Id}}", EMPTY).strip()
        if self._ready is None:
            data = io.BytesIO()
            with tarfile.open(fileobj=data, mode="w") as archive:
                folder = tarfile.TarInfo("tmp")
                folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
                archive.addfile(folder)
            self._ready = self._ask("import", "-", EMPTY, given=data.getvalue()).strip()
        return EMPTY

    def _ask(self, *words: str, given: bytes = b"") -> str:
        assert self._path is not None
        try:
            done = subprocess.run(
                [self._path, *words], input=given, capture_output=True, timeout=ANSWER_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or b""
            raise SandboxError(
                f"docker {words[0]} failed: {said.decode(errors='replace').strip()[:300] or error}",
                "Start the Docker Engine, or install bubblewrap.",
            ) from None
        return done.stdout.decode(errors="replace")


class _Container(ProcessCage):
    """The docker command is ours; what it started is the engine's, and is ended by name."""

    def __init__(
        self, docker: str, name: str, process: subprocess.Popen[bytes], memory_bytes: int
    ) -> None:
        super().__init__(process, memory_bytes, None)
        self._docker, self._name = docker, name
        self._oom = False

    def over_memory(self) -> bool:
        return self._oom

    def peak_bytes(self) -> int | None:
        return None  # the engine tells it only while the container runs

    def kill(self, patience_s: float = 0.0) -> int | None:
        """Exit 137 with the engine's own word that it was for memory is told apart."""
        # The client first: nobody reads its pipe now, and the engine would wait for it.
        super().kill(patience_s)
        self._quietly("kill", self._name)
        state = self._state()
        self._oom = bool(state.get("OOMKilled"))
        self._quietly("rm", "--force", "--volumes", self._name)
        code = state.get("ExitCode")
        return code if isinstance(code, int) else None

    def _state(self) -> dict[str, object]:
        text = self._quietly("inspect", "-f", "{{json .State}}", self._name)
        with contextlib.suppress(ValueError):
            found = json.loads(text)
            return found if isinstance(found, dict) else {}
        return {}

    def _quietly(self, *words: str) -> str:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([self._docker, *words], capture_output=True, timeout=ANSWER_S)
            return done.stdout.decode(errors="replace")
        return ""
