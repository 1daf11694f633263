"""What the routes share: the engine, its tokenizer and the settings it was started with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.requests import Request

from specdec.engine import Engine
from specdec.metrics import Metrics
from specdec.settings import ServeSettings
from specdec.tokenizer import Tokenizer


@dataclass
class ServerState:
    """One server. `draining` is set when it is told to stop; it then takes no more requests."""

    settings: ServeSettings
    engine: Engine
    tokenizer: Tokenizer
    metrics: Metrics | None = None
    draining: bool = False
    started_s: float = field(default_factory=time.time)

    @property
    def up(self) -> bool:
        """Takes requests."""
        return self.engine.alive and not self.draining

    @property
    def request_limit_tokens(self) -> int:
        """Most tokens, prompt and output together, that one request may need."""
        info = self.engine.info
        return min(info.context_length, info.max_total_tokens)


def state_of(request: Request) -> ServerState:
    """The server a request came to."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state
