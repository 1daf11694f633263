"""The JSON Schema that editors get, and the checks it knows."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from qualify.campaign.checks import NOT_BUILT, ChecksSpec, as_written, parity_is_judged
from qualify.campaign.load import campaign_schema
from qualify.campaign.workload_rules import CORPORA
from qualify.checks.all import CHECKS
from qualify.paths import campaigns_dir, data_root
from qualify.prompts.sources import BUNDLED


def test_the_schema_is_a_valid_json_schema_and_accepts_every_bundled_campaign() -> None:
    schema = campaign_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    files = sorted(campaigns_dir().glob("*.yaml"))
    assert files
    for file in files:
        validator.validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize("name", ["unknown-key", "missing-key", "unknown-choice", "zero-prompts"])
def test_the_schema_refuses_what_the_reader_refuses(name: str) -> None:
    value = yaml.safe_load((data_root() / "fixtures/bad-campaigns" / f"{name}.yaml").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(campaign_schema()).validate(value)


def test_every_key_of_a_campaign_is_explained_in_the_schema() -> None:
    schema = campaign_schema()
    unexplained = [
        f"{name}.{key}"
        for name, model in {"Campaign": schema, **schema["$defs"]}.items()
        for key, value in model.get("properties", {}).items()
        if not _explained(value)
    ]
    assert unexplained == []


def _explained(value: dict[str, Any]) -> bool:
    return bool(value.get("description"))


def test_every_key_of_a_campaign_is_explained_in_the_documentation() -> None:
    text = (data_root() / "docs" / "campaign.md").read_text()
    schema = campaign_schema()
    keys = {
        key for model in (schema, *schema["$defs"].values()) for key in model.get("properties", {})
    }
    assert [k for k in sorted(keys) if f"`{k}`" not in text] == []


def test_the_checks_a_campaign_may_name_are_those_that_exist_and_those_said_not_to() -> None:
    assert set(ChecksSpec.model_fields) == {name for name, _ in CHECKS} | set(NOT_BUILT)
    assert not {name for name, _ in CHECKS} & set(NOT_BUILT)


def test_the_corpora_a_campaign_may_name_are_those_that_are_bundled() -> None:
    assert CORPORA == BUNDLED


def test_checks_keep_what_was_written_and_nothing_else() -> None:
    checks = ChecksSpec.model_validate(
        {"parity": "all-pairs", "acceptance": {"floor": 1.2}, "cold": True, "prefill": False}
    )
    assert as_written(checks) == {
        "cold": True,
        "prefill": False,
        "parity": {"pairs": "all"},
        "acceptance": {"floor": 1.2},
    }
    assert json.dumps(as_written(ChecksSpec())) == "{}"


def test_parity_is_judged_only_where_it_can_be() -> None:
    assert parity_is_judged(ChecksSpec(), sides=2, temperature=0)
    assert not parity_is_judged(ChecksSpec(), sides=1, temperature=0)
    assert parity_is_judged(ChecksSpec(parity=True), sides=1, temperature=0)
    assert not parity_is_judged(ChecksSpec(parity=False), sides=2, temperature=0)
    assert not parity_is_judged(ChecksSpec(parity=True), sides=2, temperature=0.6)
