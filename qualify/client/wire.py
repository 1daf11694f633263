"""Request bytes and response framing of HTTP/1.1, without any clock or socket."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from qualify.client.reply import HttpRequest

_OWN = ("host", "content-length", "transfer-encoding", "accept-encoding", "connection", "expect")


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    tls: bool


def address_of(url: str) -> Address:
    """Where to connect. Raises ValueError for anything but an http(s) address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    tls = parts.scheme == "https"
    return Address(parts.hostname, parts.port or (443 if tls else 80), tls)


def encode(request: HttpRequest) -> bytes:
    """Head and body in one piece, ready before the clock starts.

    Each request has a connection of its own, so the server may close it afterwards; an
    encoded body is never asked for. Raises ValueError for a header that breaks the line.
    """
    parts = urlsplit(request.url)
    target = parts.path or "/"
    if parts.query:
        target += "?" + parts.query
    host = parts.netloc.rpartition("@")[2]
    lines = [f"{request.method} {target} HTTP/1.1", f"host: {host}"]
    for name, value in request.headers:
        if any(c in name + value for c in "\r\n\0"):
            raise ValueError(f"the header {name!r} holds a line break")
        if name.lower() not in _OWN:
            lines.append(f"{name}: {value}")
    lines += [
        "accept-encoding: identity",
        "connection: close",
        f"content-length: {len(request.body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + request.body


class Framing:
    """Finds headers, body bytes and the end of one response in what was read.

    1xx answers are skipped. `complete` turns true when the framing (chunked, content-length,
    or no body at all) says that the response is over; `until_close` says that only the
    connection's end can say so; `error` says what is illegal, and nothing is read after it.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._pending: list[tuple[str, str]] = []
        self.status: int | None = None
        self.headers: tuple[tuple[str, str], ...] = ()
        self.complete = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`, also those before an illegal byte."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.error = "the server switched protocols, which was not asked for"
        except httptools.HttpParserError as error:
            # Bytes after a complete answer are none of ours.
            if not self.complete:
                self.error = f"not legal HTTP: {error}"
        body = self._body
        if not body:
            return b""
        whole = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        return whole

    @property
    def until_close(self) -> bool:
        names = {name: value.lower() for name, value in self.headers}
        if "chunked" in names.get("transfer-encoding", ""):
            return False
        return self.status is not None and "content-length" not in names

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pending.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self.status is None:
            self.status = status
            self.headers = tuple(self._pending)
            coding = dict(self._pending).get("transfer-encoding", "chunked").lower().strip()
            if coding not in ("chunked", "identity"):
                self.error = f"the body came with transfer-encoding {coding}"
        self._pending = []

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self.status is not None:
            self.complete = True
