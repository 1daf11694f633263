"""Control calls to a server: small, bounded, never through a proxy, never raising for a status."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from qualify.client.values import finite

DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Answer:
    """status None: nobody answered, and `text` says why. `json` None: the body is not JSON.

    location: where a redirect points; redirects are not followed.
    """

    status: int | None
    text: str
    json: Any = None
    location: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == 200

    def mapping(self) -> dict[str, Any]:
        """The JSON object of a 200 answer, else an empty one."""
        return self.json if self.ok and isinstance(self.json, dict) else {}


class Control:
    """Calls relative to one base URL. `transport` lets tests answer without a network."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        # trust_env off: a proxy from the environment must not come between us and the engine.
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers=dict(headers or {}),
            timeout=DEFAULT_TIMEOUT_S,
            transport=transport,
            trust_env=False,
        )

    async def get(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Answer:
        return await self._call("GET", path, None, timeout_s)

    async def post(
        self, path: str, body: Any = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Answer:
        return await self._call("POST", path, body, timeout_s)

    async def _call(self, method: str, path: str, body: Any, timeout_s: float) -> Answer:
        try:
            reply = await self._client.request(
                method,
                path,
                json=body if body is not None else None,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            )
        except httpx.TimeoutException:
            return Answer(None, f"no answer to {method} {path} within {timeout_s:g} s")
        except httpx.HTTPError as error:
            return Answer(None, f"{type(error).__name__}: {error}" if str(error) else repr(error))
        text, location = reply.text, reply.headers.get("location")
        try:
            return Answer(reply.status_code, text, finite(json.loads(text)), location)
        except (ValueError, RecursionError):
            return Answer(reply.status_code, text, None, location)

    async def close(self) -> None:
        await self._client.aclose()


def integer(value: Any) -> int | None:
    """`value` as a count, or None when it is no whole number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    whole = math.isfinite(value) and value >= 0 and value == int(value)
    return int(value) if whole else None


def first_integer(source: Mapping[str, Any], *names: str) -> int | None:
    """The first of `names` that holds a count: newest name first, aliases after it."""
    for name in names:
        found = integer(source.get(name))
        if found is not None:
            return found
    return None


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
