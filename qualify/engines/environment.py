"""Which variables may be written down."""

from __future__ import annotations

SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")


def is_secret(name: str) -> bool:
    """Whether a variable of this name may hold what nobody else should read."""
    return any(word in name.upper() for word in SECRET)
