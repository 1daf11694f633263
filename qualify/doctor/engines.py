"""Can the engines be started: definitions, modules, models, fixed ports?"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator

from qualify.doctor.finding import Finding
from qualify.engines.spec import EngineSpec, engine_names, load_engine
from qualify.errors import QualifyError

IMPORT_TIMEOUT_S = 60.0


def engine_findings() -> Iterator[Finding]:
    names = engine_names()
    if not names:
        yield Finding("engines", "fail", "no engine definition was found", "Install it whole.")
    for name in names:
        try:
            spec = load_engine(name)
        except QualifyError as error:
            yield Finding(f"engine {name}", "fail", error.message, error.remedy)
            continue
        yield _engine(spec)
        if spec.model is not None:
            yield _model(spec)


def _engine(spec: EngineSpec) -> Finding:
    name = f"engine {spec.name}"
    process = spec.process
    if process is not None and process.module and not _importable(process.module):
        cure = f"Run: pip install 'qualify[{process.extra}]'" if process.extra else "Install it."
        return Finding(name, "warn", f"its module {process.module} is not installed", cure)
    if process is not None and process.port is not None and _busy(process.port):
        return Finding(
            name,
            "warn",
            f"its port {process.port} is in use",
            "Stop what listens there, or leave `port` out of its definition.",
        )
    why = _why_not_imported(process.module) if process is not None and process.module else None
    if why is not None:
        cure = "Run: apt-get install libgomp1" if "libgomp" in why else "Install it again."
        return Finding(name, "warn", f"importing its module fails: {why}", cure)
    modes = ", ".join(spec.modes)
    return Finding(name, "ok", f"modes {modes}")


def _model(spec: EngineSpec) -> Finding:
    assert spec.model is not None
    name = f"model of {spec.name}"
    if spec.model.fetch is not None:
        path = spec.model.fetch.path
        if path.is_file():
            return Finding(name, "ok", f"{path}, {path.stat().st_size / 1e6:,.0f} MB")
        return Finding(name, "ok", f"not fetched yet; the first run stores it at {path}")
    given = spec.model.path
    if given is not None and given.exists():
        return Finding(name, "ok", str(given))
    return Finding(name, "warn", f"{given} is not there", "Name one in the campaign: model: PATH")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _why_not_imported(module: str) -> str | None:
    """The error's last line; None when it imports. Found is not enough: a library may lack."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {IMPORT_TIMEOUT_S:.0f} s"
    said = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else said[-1] if said else "no reason was given"


def _busy(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
