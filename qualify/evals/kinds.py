"""Every kind of evaluation by its name; nothing registers itself."""

from __future__ import annotations

from qualify.evals.nouns import Kind

KINDS: dict[str, Kind] = {}
