"""The address of a server that already runs."""

from __future__ import annotations

from urllib.parse import urlsplit

from qualify.errors import UsageError


def base_url(url: str) -> str:
    """`url` without its last slashes, once it is known to be an address that can be asked.

    Raises UsageError where it is none, and where it holds what a run's records must not
    (a password) or what no route can be added to (a query or fragment).
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises outside 0 to 65535
    except ValueError as error:
        raise _refused(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise _refused(url, "")
    if parts.port == 0:
        raise _refused(url, "no server listens on port 0")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "The address of the server holds a user name or password.",
            "Leave it out: addresses are kept in the run's records.",
        )
    if parts.query or parts.fragment:
        raise _refused(url, "a query or fragment cannot stand in a base address")
    return url.rstrip("/")


def _refused(url: str, why: str) -> UsageError:
    told = f": {why}" if why else ""
    return UsageError(
        f"{url!r} is not the address of a server{told}.", "Write it as http://127.0.0.1:30000."
    )
