"""A plan for servers that somebody else started: no cells, one evaluation a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from qualify.campaign.evals import EVALS, Asking, Subset, asked_for
from qualify.campaign.faults import did_you_mean
from qualify.campaign.schema import SamplingSpec
from qualify.engines.hashes import checkpoint_digest
from qualify.engines.nouns import Profile
from qualify.engines.resolve import ResolvedLaunch
from qualify.errors import UsageError
from qualify.evals.nouns import Kind
from qualify.evals.planned import Bench, plan_one
from qualify.plan import LaunchPlan, Plan, Side
from qualify.planning.identity import digest
from qualify.prompts.tokens import Tokenizer

FIRST_TOKEN_S = 1800.0
_PROFILE = Profile("attached", None, {}, {}, None, None, None, None, None, None, None)


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for; sides: mode -> URL, in order."""

    name: str
    sides: dict[str, str]
    protocol: str
    style: str
    model: str | None
    tokenizer: str | None
    problems: str | None
    subset: str | None
    output_tokens: int | None
    concurrency: int
    temperature: float
    options: dict[str, Any] = field(default_factory=dict)  # the evaluation's own


@dataclass(frozen=True)
class Attached:
    name: str
    plan: Plan
    bench: Bench
    resolved: dict[str, ResolvedLaunch]
    tokenizer: Callable[[], Tokenizer | None]


def sides_of(words: tuple[str, ...]) -> dict[str, str]:
    """`URL` or `MODE=URL`. Raises UsageError where two servers have one name."""
    found: dict[str, str] = {}
    for word in words:
        mode, equals, url = word.partition("=")
        if not equals or "/" in mode:
            mode, url = "attached", word
        if mode in found:
            raise UsageError(
                f"Two servers are called {mode}.",
                "Name each: --attach target-only=URL --attach mtp=URL.",
            )
        found[mode] = url
    return found


def attached(wanted: Wanted, kinds: Mapping[str, Kind]) -> Attached:
    """Reads the problems; nothing is sent. Raises UsageError."""
    if wanted.name not in EVALS:
        raise UsageError(f"There is no evaluation {wanted.name}.", did_you_mean(wanted.name, EVALS))
    kind = kinds[wanted.name]
    asking = _asking(wanted)
    sampling = SamplingSpec(
        temperature=wanted.temperature, output_tokens=asking.output_tokens, ignore_eos=False
    )
    item, problems = plan_one(wanted.name, kind, asking, sampling, FIRST_TOKEN_S)
    style = wanted.style if wanted.style == "server-chat" else item.style
    item = type(item)(**{**vars(item), "style": style})
    bench = Bench((item,), {item.id: problems}, {item.id: kind})
    launches = tuple(
        LaunchPlan(f"r1.{side}", 1, Side(side, side, None, {}, {}), (), evals=(item,))
        for side in wanted.sides
    )
    identity = {
        "evals": digest([asdict(item)]),
        "engine": digest([wanted.protocol, wanted.style, wanted.model]),
        "attach": " ".join(f"{side}={url}" for side, url in wanted.sides.items()),
    }
    if wanted.tokenizer is not None:
        identity["tokenizer"] = checkpoint_digest(wanted.tokenizer) or wanted.tokenizer
    first = next(iter(wanted.sides), "attached")
    plan = Plan(
        hash=digest(identity),
        campaign={"campaign": f"eval-{wanted.name}", "gates": {}},
        engine={"name": "attached", "protocol": wanted.protocol, "modes": {}},
        identity=identity,
        baseline=first,
        pairs=tuple((first, side) for side in wanted.sides if side != first),
        launches=launches,
        checks={},
    )
    path = wanted.tokenizer
    return Attached(
        wanted.name,
        plan,
        bench,
        {side: _resolved(wanted, side, url) for side, url in wanted.sides.items()},
        lambda: Tokenizer.load(path) if path is not None else None,
    )


def _asking(wanted: Wanted) -> Asking:
    ((_, default),) = asked_for(wanted.name)
    subset = _subset(wanted.subset)
    given: dict[str, Any] = {
        "concurrency": wanted.concurrency,
        "subset": None if subset is None else subset.model_dump(),
    }
    if wanted.style == "base":
        given["style"] = "base"
    if wanted.output_tokens is not None:
        given["output_tokens"] = wanted.output_tokens
    if wanted.problems is not None:
        if "problems" not in type(default).model_fields:
            raise UsageError(f"{wanted.name} takes no file of problems.", "Leave --problems out.")
        given["problems"] = wanted.problems
    unknown = [k for k in wanted.options if k not in type(default).model_fields]
    if unknown:
        raise UsageError(
            f"{wanted.name} takes no --{unknown[0].replace('_', '-')}.", "Leave it out."
        )
    given.update(wanted.options)
    if wanted.name == "needles" and wanted.tokenizer is None:
        raise UsageError(
            "A prompt of an exact size needs the model's tokenizer.", "Give --tokenizer PATH."
        )
    try:
        return type(default).model_validate({**default.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"][:1])
        raise UsageError(f"--{name}: {first['msg']}.", "qualify eval --help says more.") from None


def _subset(text: str | None) -> Subset | None:
    if text is None:
        return None
    seed, _, count = text.partition(":")
    if not (seed.isdigit() and count.isdigit() and int(count) > 0):
        raise UsageError(f"--subset {text} is not SEED:N.", "Write --subset 7:20.")
    return Subset(seed=int(seed), count=int(count))


def _resolved(wanted: Wanted, side: str, url: str) -> ResolvedLaunch:
    return ResolvedLaunch(
        engine="attached",
        protocol=wanted.protocol,
        kind="attach",
        mode=side,
        profile=_PROFILE,
        drafter="none" if side == "target-only" else "model",
        drafts=None,
        block=None,
        args={},
        argv=(),
        env={},
        cwd=None,
        host="127.0.0.1",
        port=None,
        url=url.rstrip("/"),
        model=wanted.model,
        alias=None,
        tokenizer=wanted.tokenizer,
        module=None,
        extra=None,
        no_prefix_cache=None,
        stop_grace_s=10.0,
        flush_patience_s=60.0,
        api="chat" if wanted.style == "server-chat" else "completions",
    )
