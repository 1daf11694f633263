"""The base of everything that is read from an engine.yaml."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """No unknown keys, no coercion, no change after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
