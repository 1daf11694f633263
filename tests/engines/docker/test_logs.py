"""The log follower against streams that break, hang and repeat themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qualify.engines.docker_logs import LogFollower, LogStream


class Stream:
    """Plays frames; `then` runs after the last one and may raise or hang."""

    def __init__(self, frames: list[bytes], then: Callable[[], None] = lambda: None) -> None:
        self._frames, self._then = frames, then
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield from self._frames
        self._then()

    def close(self) -> None:
        self.closed.set()


def frame(second: int, nanos: int, text: str) -> bytes:
    return f"2026-01-01T00:00:{second:02d}.{nanos:09d}Z {text}\n".encode()


def broken() -> None:
    raise TimeoutError("read timed out")


def test_f074_a_stream_that_breaks_is_read_on_without_a_line_lost_or_twice(
    tmp_path: Path,
) -> None:
    one, two = frame(1, 5, "one"), frame(2, 7, "two")
    twin = frame(2, 7, "two")  # the same words at the same instant are two lines all the same
    three = frame(2, 9, "three")
    asked: list[tuple[int | None, bool]] = []
    plays = [
        Stream([one, two], broken),
        Stream([two, twin, three]),
        Stream([two, twin, three]),
    ]

    def open_stream(since: int | None, follow: bool) -> LogStream:
        asked.append((since, follow))
        return plays[len(asked) - 1]

    running = iter([True, False])
    follower = LogFollower(tmp_path / "log", open_stream, lambda: next(running))
    follower.start()
    assert follower.finish(5.0)
    assert (tmp_path / "log").read_text() == "one\ntwo\ntwo\nthree\n"
    second_1 = 1767225601
    assert asked == [(None, True), (second_1 + 1, True), (second_1 + 1, False)]
    assert follower.problem == "TimeoutError: read timed out"


def test_f073_a_stream_that_never_ends_is_given_up_in_bounded_time(tmp_path: Path) -> None:
    hanging = Stream([frame(1, 1, "first")])
    hanging._then = lambda: (hanging.closed.wait(60), None)[1]
    rest = Stream([frame(1, 1, "first"), frame(1, 2, "last")])

    def open_stream(since: int | None, follow: bool) -> LogStream:
        return hanging if follow else rest

    follower = LogFollower(tmp_path / "log", open_stream, lambda: True)
    follower.start()
    began = time.monotonic()
    assert follower.finish(0.5)
    assert time.monotonic() - began < 5
    assert hanging.closed.is_set()
    assert (tmp_path / "log").read_text() == "first\nlast\n"


def test_a_log_that_cannot_be_opened_at_the_end_is_said(tmp_path: Path) -> None:
    forever = threading.Event()

    def open_stream(since: int | None, follow: bool) -> LogStream:
        forever.wait(20)
        raise OSError("no such container")

    follower = LogFollower(tmp_path / "log", open_stream, lambda: True)
    follower.start()
    assert follower.finish(0.2) is False
    forever.set()


@pytest.mark.parametrize("text", ["no time at all", "2026-01-01T00:00:00 no zone"])
def test_a_driver_that_gives_no_times_loses_nothing(tmp_path: Path, text: str) -> None:
    def open_stream(since: int | None, follow: bool) -> LogStream:
        return Stream([f"{text}\n".encode()] if follow else [])

    follower = LogFollower(tmp_path / "log", open_stream, lambda: False)
    follower.start()
    assert follower.finish(5.0)
    assert (tmp_path / "log").read_text() == f"{text}\n"
