"""What a campaign may not ask of the engine that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from qualify.campaign.document import Document
from qualify.campaign.evals import NeedlesEval
from qualify.campaign.faults import Path, did_you_mean
from qualify.campaign.parts import listed, mapped, numbers, side_names, whole


class ProfileLimits(Protocol):
    """Sizes in tokens and requests; None where the definition does not state one."""

    @property
    def context_tokens(self) -> int | None: ...
    @property
    def pool_tokens(self) -> int | None: ...
    @property
    def effective_concurrency(self) -> int | None: ...

    def outside_validated(self, concurrency: int, tokens: int) -> str | None: ...


class EngineLimits(Protocol):
    """The part of an engine definition that a campaign is held against."""

    @property
    def name(self) -> str: ...
    @property
    def modes(self) -> Mapping[str, Any]: ...
    @property
    def profiles(self) -> Mapping[str, ProfileLimits]: ...
    @property
    def default_profile(self) -> str: ...


@dataclass(frozen=True)
class _Cell:
    path: Path
    tokens: int  # of the longest prompt: the last turn's, in a session
    output: int
    concurrency: int
    sides: tuple[str, ...]


def check_limits(document: Document, engine: EngineLimits) -> list[str]:
    """Note every fault that the engine's definition shows; returns warnings."""
    for path, mode in _mode_names(document):
        if mode not in engine.modes:
            document.fault(
                path,
                f"engine `{engine.name}` has no mode `{mode}`",
                did_you_mean(mode, list(engine.modes)),
            )
    for path, name in _profile_names(document):
        if name not in engine.profiles:
            document.fault(
                path,
                f"engine `{engine.name}` has no profile `{name}`",
                did_you_mean(name, list(engine.profiles)),
            )
    warnings: list[str] = []
    for cell in (*_cells(document), *_needles(document)):
        for profile_name in dict.fromkeys(_profile_of(document, engine, s) for s in cell.sides):
            profile = engine.profiles.get(profile_name)
            if profile is not None:
                _fit(document, cell, profile_name, profile, warnings)
    return list(dict.fromkeys(warnings))


def _fit(
    document: Document, cell: _Cell, name: str, profile: ProfileLimits, warnings: list[str]
) -> None:
    each = cell.tokens + cell.output
    sum_shown = f"{cell.tokens:,} + {cell.output:,} = {each:,}"
    context, pool = profile.context_tokens, profile.pool_tokens
    if context is not None and each > context:
        document.fault(
            cell.path,
            f"input + output is {sum_shown} tokens, above the context of {context:,} "
            f"(profile {name})",
            f"{_shorter(context - cell.output)}, or take a profile with more context.",
        )
    elif pool is not None and cell.concurrency * each > pool:
        fits = pool // each
        cure = f"Write a concurrency of at most {fits}" if fits else "Write shorter prompts"
        document.fault(
            cell.path,
            f"{cell.concurrency} requests of {sum_shown} tokens are "
            f"{cell.concurrency * each:,}, above the pool of {pool:,} (profile {name})",
            f"{cure}, or take a profile with a larger pool.",
        )
    slots = profile.effective_concurrency
    if slots is not None and cell.concurrency > slots:
        warnings.append(
            f"{document.file}:{document.line(cell.path)}: concurrency {cell.concurrency} is above "
            f"the {slots} requests that profile {name} runs together; the rest will queue, "
            "and their TTFT will hold the waiting."
        )
    said = profile.outside_validated(cell.concurrency, each)
    if said is not None:
        warnings.append(f"{document.file}:{document.line(cell.path)}: profile {name} {said}")


def _shorter(room: int) -> str:
    if room < 1:
        return "Write a smaller `output_tokens`"
    return f"Write shapes of at most {room} prompt tokens (the last turn's, in a session)"


def _mode_names(document: Document) -> Iterator[tuple[Path, str]]:
    for index, mode in enumerate(listed(document.value.get("modes"))):
        if isinstance(mode, str):
            yield ("modes", index), mode
    for name, variant in mapped(document.value.get("variants")).items():
        mode = mapped(variant).get("mode")
        if isinstance(mode, str):
            yield ("variants", name, "mode"), mode


def _profile_names(document: Document) -> Iterator[tuple[Path, str]]:
    profile = document.value.get("profile")
    if isinstance(profile, str):
        yield ("profile",), profile
    for side, name in mapped(profile).items():
        if isinstance(name, str):
            yield ("profile", side), name
    for variant_name, variant in mapped(document.value.get("variants")).items():
        name = mapped(variant).get("profile")
        if isinstance(name, str):
            yield ("variants", variant_name, "profile"), name


def _profile_of(document: Document, engine: EngineLimits, side: str) -> str:
    """As `planning.sides` resolves it: the variant's, the campaign's, the engine's default."""
    variant = mapped(mapped(document.value.get("variants")).get(side))
    profile = document.value.get("profile")
    if isinstance(profile, str):
        general: Any = profile
    else:
        general = mapped(profile).get(side) or mapped(profile).get(str(variant.get("mode")))
    found = variant.get("profile") or general
    return found if isinstance(found, str) else engine.default_profile


def _cells(document: Document) -> Iterator[_Cell]:
    budget = whole(mapped(document.value.get("sampling")).get("output_tokens"))
    everyone = side_names(document)
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        workload = mapped(workload)
        prompts = mapped(workload.get("prompts"))
        output = whole(workload.get("output_tokens")) or budget
        if output is None:
            continue
        named = [m for m in listed(workload.get("modes")) if isinstance(m, str)]
        concurrency = workload.get("concurrency", 1)
        for token_step, tokens in numbers(prompts.get("tokens")):
            for step, at_once in numbers(concurrency):
                path: Path = (
                    ("workloads", index, "concurrency", *step)
                    if at_once > 1
                    else ("workloads", index, "prompts", "tokens", *token_step)
                )
                if tokens > 0 and at_once > 0:
                    sides = tuple(named or everyone)
                    longest = longest_prompt(prompts, tokens)
                    yield _Cell(path, longest, output, at_once, sides)


def _needles(document: Document) -> Iterator[_Cell]:
    """Each prompt of the evaluation `needles`: every side is asked all of them."""
    sides = tuple(side_names(document))
    for index, entry in enumerate(listed(document.value.get("evals"))):
        if entry != "needles" and "needles" not in mapped(entry):
            continue
        told = {**NeedlesEval().model_dump(), **mapped(mapped(entry).get("needles"))}
        output, at_once = whole(told["output_tokens"]), whole(told["concurrency"])
        if not output or not at_once:
            continue
        given = "tokens" in mapped(mapped(entry).get("needles"))
        for step, tokens in numbers(told["tokens"]):
            path: Path = ("evals", index, "needles", "tokens", *step) if given else ("evals", index)
            yield _Cell(path, tokens, output, at_once, sides)


def longest_prompt(prompts: Mapping[str, Any], tokens: int) -> int:
    """The last turn of a session has grown by `growth` (or by `tokens`) a turn."""
    turns = whole(prompts.get("turns")) or 1
    growth = whole(prompts.get("growth")) or tokens
    return tokens + max(turns - 1, 0) * growth
