"""Hashes that only a look at this machine can tell: corpora, checkpoint, tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qualify.campaign.schema import Campaign
from qualify.engines.docker_identity import image_identity
from qualify.engines.hashes import checkpoint_digest
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.spec import EngineSpec
from qualify.planning.only import Only
from qualify.prompts.digest import BUILDER
from qualify.prompts.draw import GENERATOR
from qualify.prompts.sources import open_source


def origins_of(
    campaign: Campaign, engine: EngineSpec, resolved: Mapping[str, ResolvedLaunch], only: Only
) -> dict[str, str]:
    """Parts of the plan's identity; see `planning.identity.identity_of`.

    A model that is fetched is known by the hash in its recipe, before it is there. A
    tokenizer inside the model needs no part of its own. Raises UsageError for a source that
    does not exist.
    """
    parts = {"generator": f"{GENERATOR}/{BUILDER}"}
    for workload in campaign.workloads:
        if only.allows("workload", workload.name):
            source = workload.prompts.source
            parts[f"corpus:{source}"] = open_source(source).sha256
    launches = list(resolved.values())
    for launch in launches:
        if launch.url is not None:
            parts["attach"] = launch.url
        if launch.container is not None:
            parts["image"] = image_identity(launch.container.image)
    model = launches[0].model if launches else None
    if model is not None:
        parts["checkpoint"] = _model(engine, model)
    tokenizer = launches[0].tokenizer if launches else None
    if tokenizer is not None and tokenizer != model:
        parts["tokenizer"] = checkpoint_digest(tokenizer) or tokenizer
    return parts


def _model(engine: EngineSpec, model: str) -> str:
    """The recipe's hash, the hash of what lies there, else the name that was given."""
    recipe = engine.model.fetch if engine.model is not None else None
    if recipe is not None and Path(model) == recipe.path:
        return recipe.sha256
    return checkpoint_digest(model) or model
