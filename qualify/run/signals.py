"""Ctrl-C: the first asks to stop, the second cancels everything at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Within it SIGINT and SIGTERM set `stop`; a second one cancels the current task."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    numbers = (signal.SIGINT, signal.SIGTERM)

    def ask() -> None:
        if stop.is_set():
            main.cancel()
        stop.set()

    try:
        for number in numbers:
            loop.add_signal_handler(number, ask)
    except (ValueError, RuntimeError):  # not in the main thread: whoever called us handles it
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
