"""PocketLLM's engine as processes: one a rank, one line a request, lines of key=value back.

Standard library only; used by serve.py beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

WORD = re.compile(r"(\w+)=([^\s]+)")
RENAMED = ("DSV4_", "POCKETLLM_")  # the same switches before and after the engine was renamed
WORKER_LINES_S = 2.0
EXIT_S = 30.0


def words(line: str) -> dict[str, str]:
    """key=value words of a line; their order is no contract."""
    return dict(WORD.findall(line))


def number(text: str) -> int | float | str:
    """As an integer, else as a float, else as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _words(options: argparse.Namespace, rank: int, id_file: Path) -> list[str]:
    """What a rank is told before the flags that were passed on."""
    if options.dialect == "specdec":  # one process: it starts its own ranks, if it has any
        return ["--stdin", "--model", options.model, "--context-length", str(options.max_context)]
    return [
        *("--ckpt", options.model),
        *("--tp-world", str(options.tp_world), "--tp-rank", str(rank)),
        *("--device", "0", "--nccl-id-path", str(id_file)),
        *("--max-context", str(options.max_context)),
        *("--smoke-layers", "0"),  # all of them: the default is one
        "--qwen-persistent-stdin",
    ]


class Ranks:
    """The engine's processes. Every line of theirs goes to standard output with its rank."""

    def __init__(self, options: argparse.Namespace, flags: list[str]) -> None:
        self.startup: dict[str, str] = {}
        self.failed: str | None = None
        self._one = threading.Lock()  # a request at a time
        self._print = threading.Lock()
        self._said = threading.Condition()
        self._results: list[dict[str, str]] = []
        self._workers: dict[int, list[list[int]]] = {}
        self._logs = Path(options.rank_logs) if options.rank_logs else None
        if self._logs is not None:
            self._logs.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="pocketllm-")
        id_file = Path(self._folder.name) / "nccl.id"  # a new folder: it cannot be an old one
        devices = options.devices.split(",") if options.devices else []
        self._processes = [
            subprocess.Popen(
                [*shlex.split(options.engine), *_words(options, rank, id_file), *flags],
                stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment(devices[rank] if rank < len(devices) else None),
            )
            for rank in range(options.tp_world)
        ]
        self._readers = [
            threading.Thread(target=self._read, args=(rank, process.stdout), daemon=True)
            for rank, process in enumerate(self._processes)
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _environment(device: str | None) -> dict[str, str]:
        """The engine's switches under both of its names, and the rank's one GPU."""
        env = dict(os.environ)
        for old, new in (RENAMED, RENAMED[::-1]):
            for name in [n for n in env if n.startswith(old)]:
                env.setdefault(new + name.removeprefix(old), env[name])
        if device is not None:
            env["CUDA_VISIBLE_DEVICES"] = device
        return env

    def _read(self, rank: int, pipe: IO[bytes]) -> None:
        log = (self._logs / f"rank{rank}.log").open("ab") if self._logs is not None else None
        for raw in pipe:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            with self._print:
                print(f"[rank {rank}] {line}", flush=True)
            if log is not None:
                log.write(raw)
                log.flush()
            self._note(rank, words(line))
        code = self._processes[rank].wait()
        with self._said:
            self.failed = self.failed or f"rank {rank} ended with exit code {code}"
            self._said.notify_all()

    def _note(self, rank: int, said: dict[str, str]) -> None:
        with self._said:
            if said.get("qwen_startup") == "1" and rank == 0:
                self.startup = said
            elif said.get("qwen_persistent_result") == "1" and rank == 0:
                self._results.append(said)
            elif said.get("qwen_persistent_worker_result") == "1":
                self._workers.setdefault(rank, []).append(ids(said.get("tokens", "")))
            self._said.notify_all()

    def generate(self, prompt: list[int], new_tokens: int) -> tuple[dict[str, str], bool | None]:
        """The result line, and whether every rank that told its tokens told the same."""
        with self._one:
            first = self._processes[0]
            assert first.stdin is not None
            with self._said:
                number_ = len(self._results)
            line = f"{new_tokens} {' '.join(map(str, prompt))}\n"
            try:
                first.stdin.write(line.encode())
                first.stdin.flush()
            except OSError as error:
                raise RuntimeError(self.failed or f"rank 0 takes no requests: {error}") from error
            with self._said:
                self._said.wait_for(lambda: len(self._results) > number_ or self.failed)
                if len(self._results) <= number_:
                    raise RuntimeError(self.failed)
                result = self._results[number_]
                # Ranks other than 0 tell their tokens in some modes only.
                told = bool(self._workers) or (number_ == 0 and len(self._processes) > 1)
                if told:
                    self._said.wait_for(
                        lambda: all(
                            len(self._workers.get(rank, [])) > number_
                            for rank in range(1, len(self._processes))
                        ),
                        timeout=WORKER_LINES_S,
                    )
                others = [w[number_] for w in self._workers.values() if len(w) > number_]
            same = all(o == ids(result.get("tokens", "")) for o in others) if others else None
            return result, same

    def stop(self) -> int:
        """End of input is a clean shutdown; the rest is ended if it does not follow."""
        first = self._processes[0]
        if first.stdin is not None:
            with contextlib.suppress(OSError):  # it had ended before
                first.stdin.close()
        deadline = time.monotonic() + EXIT_S
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for reader in self._readers:
            reader.join(2.0)
        self._folder.cleanup()
        return max(abs(process.returncode) for process in self._processes)
