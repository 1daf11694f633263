"""`--only mode=ngram workload=prose,code`: a part of a campaign, stated in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from qualify.campaign.faults import did_you_mean
from qualify.errors import UsageError

KEYS = ("mode", "workload", "tokens", "concurrency", "round", "eval")


@dataclass(frozen=True)
class Only:
    """Key -> wanted values; an absent key lets everything through."""

    wanted: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def allows(self, key: str, value: object) -> bool:
        return key not in self.wanted or str(value) in self.wanted[key]

    def check_known(self, key: str, known: Sequence[object]) -> None:
        """Raises UsageError where a wanted value does not exist in the campaign."""
        names = list(dict.fromkeys(str(k) for k in known))
        for value in self.wanted.get(key, ()):
            if value not in names:
                raise UsageError(
                    f"--only {key}={value}: the campaign has no such {key}.",
                    did_you_mean(value, names),
                )

    def __bool__(self) -> bool:
        return bool(self.wanted)

    def __str__(self) -> str:
        return " ".join(f"{k}={','.join(v)}" for k, v in sorted(self.wanted.items()))


def parse_only(words: Iterable[str]) -> Only:
    """Each word is KEY=VALUE[,VALUE]; a key given twice takes both values."""
    wanted: dict[str, list[str]] = {}
    for word in " ".join(words).split():
        key, equals, values = word.partition("=")
        if not equals or not values.strip(","):
            raise UsageError(
                f"--only {word} is not KEY=VALUE.", "Write --only mode=ngram workload=prose."
            )
        if key not in KEYS:
            raise UsageError(f"--only knows no `{key}`.", did_you_mean(key, KEYS))
        wanted.setdefault(key, []).extend(v for v in values.split(",") if v)
    return Only({k: tuple(dict.fromkeys(v)) for k, v in wanted.items()})
