"""One generation: what was asked, what was done, and the truth about its times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.scripted_engine.model import Speculation
from tests.scripted_engine.server import Seen


@dataclass
class Generation:
    """One generation as the engine did it: the truth that a client's report is held against.

    events: (time of the write, tokens in it), perf_counter of this process.
    """

    ordinal: int
    seen: Seen
    prompt: tuple[int, ...]
    cached_tokens: int
    output: tuple[int, ...]
    steps: tuple[int, ...]
    speculation: Speculation
    events: list[tuple[float, int]] = field(default_factory=list)
    ended: str = "running"  # running | finished | left | a fault's name

    @property
    def ttft_s(self) -> float:
        """From the last request byte read to just before the first token was written."""
        return self.events[0][0] - self.seen.t_request

    @property
    def tpot_ms(self) -> float:
        """Time from the first to the last token event, for each token after the first event."""
        (t_first, n_first), (t_last, _) = self.events[0], self.events[-1]
        return 1000.0 * (t_last - t_first) / (sum(n for _, n in self.events) - n_first)

    def line(self) -> dict[str, Any]:
        """The truth as one JSON object, for a log file."""
        return {
            "ordinal": self.ordinal,
            "prompt_head": list(self.prompt[:4]),
            "prompt_tokens": len(self.prompt),
            "cached_tokens": self.cached_tokens,
            "output": list(self.output),
            "t_request": self.seen.t_request,
            "events": self.events,
            "ended": self.ended,
        }


@dataclass(frozen=True)
class Ask:
    """What a dialect understood of a generation request."""

    prompt: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool
    stream: bool
    use_cache: bool = True
    salt: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)


class Shape(Protocol):
    """How a dialect words one generation: called for each event, then for the end."""

    def opening(self) -> list[Any]: ...

    def tokens(self, so_far: int, size: int, last: bool) -> list[Any]: ...

    def closing(self) -> list[Any]: ...

    def document(self) -> Any: ...
