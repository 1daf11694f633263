"""Server-sent events from bytes, however they are cut, with the time of each event.

Source: WHATWG HTML, "Server-sent events", parsing an event stream. Two deliberate
differences: the last event counts even without its final blank line (servers forget it), and
a field named `error` (older llama.cpp servers) makes an event of type "error".

The time of an event is the time of the read that brought the last byte of its last data
line. The line end and the blank line after it may come later; they carry nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SseError(ValueError):
    """The stream cannot be read further: an event is larger than the limit."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event. data: its data lines joined with LF, as bytes (UTF-8)."""

    t_s: float
    data: bytes
    event: str | None = None
    id: str | None = None


class SseParser:
    """Feed reads in order, get the events that each one completed; linear in the bytes.

    Lines end with LF, CR or CRLF and with nothing else: U+2028, U+2029, U+0085 and the other
    characters that general line splitting honours are ordinary text here.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._partial: list[bytes] = []  # the unfinished line, joined once when it ends
        self._partial_bytes = 0
        self._partial_t = 0.0
        self._after_cr = False
        self._at_start = True
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._data_t = 0.0
        self._event: str | None = None
        self._id: str | None = None

    def feed(self, data: bytes, t_s: float) -> list[SseEvent]:
        """Events completed by `data`, read at `t_s`. Raises SseError above the size limit."""
        if self._at_start:
            data = self._without_bom(data)
        if not data:
            return []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
            if not data:
                return []
        self._after_cr = data[-1:] == b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        out: list[SseEvent] = []
        if len(lines) > 1:
            first, line_t = lines[0], t_s
            if self._partial:
                # A line whose last byte came earlier keeps that earlier time.
                line_t = t_s if first else self._partial_t
                self._partial.append(first)
                first = b"".join(self._partial)
                self._partial = []
                self._partial_bytes = 0
            self._line(first, line_t, out)
            for line in lines[1:-1]:
                self._line(line, t_s, out)
        self._keep(lines[-1], t_s)
        return out

    def close(self) -> list[SseEvent]:
        """What the end of the stream completes: an event without its final blank line."""
        out: list[SseEvent] = []
        if self._at_start and self._partial:
            self._at_start = False
        if self._partial:
            line = b"".join(self._partial)
            self._partial = []
            self._line(line, self._partial_t, out)
        self._line(b"", self._data_t, out)
        return out

    def _without_bom(self, data: bytes) -> bytes:
        """Drop one byte order mark at the very start, even when it is cut between reads."""
        if self._partial:
            data = b"".join(self._partial) + data
            self._partial = []
            self._partial_bytes = 0
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._keep(data, 0.0)
            return b""
        self._at_start = False
        return data[len(_BOM) :] if data.startswith(_BOM) else data

    def _keep(self, piece: bytes, t_s: float) -> None:
        if not piece:
            return
        self._partial.append(piece)
        self._partial_bytes += len(piece)
        self._partial_t = t_s
        self._check_size()

    def _check_size(self) -> None:
        if self._partial_bytes + self._data_bytes > self._max:
            raise SseError(f"an event is larger than {self._max} bytes")

    def _line(self, line: bytes, t_s: float, out: list[SseEvent]) -> None:
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                out.append(SseEvent(self._data_t, data, self._event, self._id))
                self._data = []
                self._data_bytes = 0
            self._event = None
            return
        if line.startswith(b"data: "):
            self._add_data(line[6:], t_s)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add_data(value, t_s)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            self._id = value.decode("utf-8", "replace")
        elif name == b"error":
            self._event = "error"
            self._add_data(value, t_s)

    def _add_data(self, value: bytes, t_s: float) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1
        self._data_t = t_s
        self._check_size()
