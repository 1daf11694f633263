"""Rank 0's hold on another rank's process: plans out, answers in, and news of its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import specdec
from specdec.parallel.errors import Ended, RanksBroken
from specdec.parallel.plans import Answer, Begin, Failure, Plan

POLL_S = 0.2
NEWS_S = 2.0  # the most that a process's end is awaited after its channel broke
LEAVE_S = 2.0  # the most that a rank gets to leave


class Link:
    """One rank's process. ``on_end`` is called from a thread of its own when it ends unasked."""

    def __init__(self, begin: Begin, on_end: Callable[[str], None]) -> None:
        self.rank = begin.rank
        self._on_end = on_end
        self._leaving = False
        self._ended: Ended | None = None
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        package = str(Path(specdec.__file__).parents[1])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "specdec.parallel.worker",
                 str(theirs.fileno()), str(lifeline)],
                pass_fds=(theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        os.close(lifeline)
        self._channel: Connection = Connection(ours.detach())
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self._channel.send(begin)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> Ended | None:
        """How it ended; None while it lives, or was asked to leave."""
        return self._ended

    def send(self, plan: Plan) -> None:
        """Raises RanksBroken when it is gone."""
        try:
            self._channel.send(plan)
        except OSError:
            raise self._gone() from None

    def receive(self, timeout_s: float) -> Answer:
        """Its next answer. Raises RanksBroken when it fails, ends, or takes too long."""
        deadline = time.monotonic() + timeout_s
        try:
            while not self._channel.poll(POLL_S):
                if time.monotonic() > deadline:
                    raise RanksBroken(
                        f"Rank {self.rank} (process {self.pid}) has not answered for "
                        f"{timeout_s:g} s.",
                        "Start again; a longer --tp-timeout waits longer.",
                    )
            answer: Answer = self._channel.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        if isinstance(answer, Failure):
            raise RanksBroken(f"Rank {self.rank} failed: {answer.sentence}", "See its log lines.")
        return answer

    def leave(self) -> None:
        """Let the process end, and see that it does."""
        self._leaving = True
        self._channel.close()
        os.close(self._lifeline)
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _gone(self) -> RanksBroken:
        self._watcher.join(NEWS_S)  # a channel breaks before the process is gone
        closed = f"Rank {self.rank} (process {self.pid}) closed its channel."
        return RanksBroken(self._ended.sentence if self._ended else closed, "Start again.")

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._leaving:
            self._ended = Ended.now(self.rank, self._process.pid, code)
            self._on_end(self._ended.sentence)
