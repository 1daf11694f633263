"""The real server process around a scripted runner: `scripted_server.py CHECKPOINT FAULT DRAIN_S`.

FAULT is `none`, `slow` (40 ms a step), `hang` (a step never ends), `lost`
(a step raises) or `load-hang` (loading never ends).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from scripted_runner import ScriptedRunner
from specdec.serve import run
from specdec.settings import ServeSettings


def load(fault: str) -> ScriptedRunner:
    def before_step() -> None:
        if fault == "hang":
            time.sleep(3600)
        if fault == "lost":
            raise RuntimeError("the device is lost")

    if fault == "load-hang":
        time.sleep(3600)
    return ScriptedRunner(pause_s=0.04 if fault == "slow" else 0.0, before_step=before_step)


if __name__ == "__main__":
    folder, fault_name, drain_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    chosen = ServeSettings(folder, port=0, drain_timeout_s=drain_s)
    sys.exit(run(chosen, lambda: load(fault_name)))
