"""Launches of the toy server, and looking for what they leave behind."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import yaml

from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.spec import load_engine

TOY = Path(__file__).with_name("toy_server.py")


def toy(folder: Path, *flags: str, port: int | None = None, stop_s: float = 5.0) -> ResolvedLaunch:
    """The toy as an engine; `flags` go to it."""
    base = ["{python}", str(TOY), "--port", "{port}", "--alias", "{alias}"]
    process = {"argv": [*base, *flags], **({"port": port} if port is not None else {})}
    definition = {
        "name": "toy",
        "protocol": "llamacpp",
        "launch": {"process": process},
        "alias": "toy-model",
        "modes": {"target-only": {"drafter": "none"}},
        "grace": {"stop_s": stop_s},
    }
    file = folder / "engine.yaml"
    file.write_text(yaml.safe_dump(definition))
    return resolve(load_engine(file), "target-only")


def processes_with(text: str) -> list[psutil.Process]:
    """Living processes whose environment or command line carries `text`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == "zombie":
                continue
            if text in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [p for p in found if p.pid != psutil.Process().pid]


def gone_within(text: str, seconds: float) -> bool:
    """Whether no such process is left before the time is over."""
    deadline = time.monotonic() + seconds
    while processes_with(text):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
