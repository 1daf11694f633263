"""How an engine ended."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EngineExit:
    """`code` for a normal exit, `signal` for a signal; `forced` when the grace time was not
    enough; `oom` when a container ran out of the memory that it may use. Code and signal both
    None: it could not be learnt, and `note` may say why."""

    code: int | None
    signal: str | None
    forced: bool = False
    oom: bool = False
    note: str | None = None

    def __str__(self) -> str:
        tail = " (out of memory)" if self.oom else f" ({self.note})" if self.note else ""
        if self.signal is not None:
            hint = " (killed: perhaps for want of memory)" if self.signal == "SIGKILL" else ""
            return f"signal {self.signal}{tail or ('' if self.forced else hint)}"
        if self.code is not None:
            return f"exit code {self.code}{tail}"
        return f"an unknown exit{tail}"

    def as_forced(self) -> EngineExit:
        return replace(self, forced=True)
