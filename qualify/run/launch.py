"""One attempt at one launch: what its cells share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from qualify.engines.protocol import Capabilities, EngineInfo
from qualify.engines.server import RunningServer
from qualify.plan import LaunchPlan
from qualify.records.store import Store
from qualify.run.events import Watcher
from qualify.run.shelf import Shelf


@dataclass
class Attempt:
    """A started, ready engine and everything that measuring a cell on it needs.

    stop is set when the user wants to end: the cell in flight is then given up.
    eos_ids are the tokens that end an output by nature, None where nothing names them;
    planted is the evidence of the warm prompt that was planted first (rule 5).
    """

    run: str
    id: str  # launch id with the attempt's number: r1.mtp#2
    launch: LaunchPlan
    server: RunningServer
    able: Capabilities
    info: EngineInfo
    store: Store
    shelf: Shelf
    watch: Watcher
    stop: asyncio.Event
    flush_patience_s: float
    eos_ids: tuple[int, ...] | None = None
    planted: dict[str, Any] = field(default_factory=dict)
