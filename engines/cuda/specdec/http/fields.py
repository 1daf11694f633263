"""Field types that several routes share, and the fields that are known but not offered."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Longest texts and lists that a sampling field may hold: generous for use, small for abuse.
MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 1024
MAX_BATCH = 512

# Values that ask for nothing, for `Strict.NEUTRAL`.
NONE = (None,)
OFF = (None, False)
ZERO = (None, 0)
ONE = (None, 1)

Temperature = Annotated[float, Field(ge=0.0, le=1000.0)]
TopP = Annotated[float, Field(gt=0.0, le=1.0)]
MinP = Annotated[float, Field(ge=0.0, le=1.0)]
TopK = Annotated[int, Field(ge=-1, le=2**31 - 1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
TokenCount = Annotated[int, Field(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
# fail_fast: a long list of rubbish is refused at its first entry, not after a complaint for each.
TokenIds = Annotated[list[TokenId], Field(fail_fast=True, min_length=1)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Stop = (
    StopString
    | Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)]
    | None
)
StopTokenIds = Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] | None
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
RequestId = Annotated[str, Field(min_length=1, max_length=256)]
CacheKey = Annotated[str, Field(max_length=1024)]
Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    """A schema that refuses unknown fields and silent conversions.

    `NEUTRAL` lists fields that other engines know and this one does not offer, each with the
    values that ask for nothing; any other value is refused by name rather than ignored.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @model_validator(mode="after")
    def _refuse_what_is_not_offered(self) -> Strict:
        for name, neutral in self.NEUTRAL.items():
            if getattr(self, name) not in neutral:
                raise ValueError(
                    f"'{name}' is not offered by this engine. Leave it out or send "
                    f"{' or '.join(_shown(value) for value in neutral)}."
                )
        return self


def _shown(value: Any) -> str:
    return (
        {None: "null", True: "true", False: "false"}.get(value, repr(value))
        if not isinstance(value, (list, dict, int, float)) or isinstance(value, bool)
        else repr(value)
    )


class StreamOptions(Strict):
    """`stream_options` of the OpenAI-style routes."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


def isolation(cache_salt: str | None, extra_key: str | None) -> tuple[str, str] | None:
    """What requests must have in common to share a prefix; empty strings ask for nothing."""
    key = (cache_salt or "", extra_key or "")
    return key if any(key) else None


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings as a tuple, whichever way they were sent."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)
