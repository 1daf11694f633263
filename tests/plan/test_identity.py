"""One hash over everything that decides a run, and words for what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qualify.errors import UsageError
from qualify.planning.build import make_plan
from qualify.planning.identity import differences, refuse_changed
from tests.plan.test_build import BASE, Engine, campaign

ORIGINS = {"corpus:corpora/code": "aa" * 32, "checkpoint": "bb" * 32, "tokenizer": "cc" * 32}


def plan_with(
    changes: dict[str, Any] | None = None,
    engine: Engine | None = None,
    origins: dict[str, str] | None = None,
) -> Any:
    return make_plan(campaign(**(changes or {})), engine or Engine(), origins=origins or ORIGINS)


@pytest.mark.parametrize(
    ("named", "changed"),
    [
        ("the campaign file", plan_with({"rounds": 2})),
        ("the thresholds", plan_with({"gates": {"tpot_regression_pct": 5.0}})),
        ("the thresholds", plan_with({"checks": {"acceptance": {"floor": 1.2}}})),
        ("the prompts' specification", plan_with({"seed": 1})),
        ("the engine definition", plan_with(engine=Engine(args={"x": 1}))),
        ("the checkpoint", plan_with(origins={**ORIGINS, "checkpoint": "dd" * 32})),
        ("the tokenizer", plan_with(origins={**ORIGINS, "tokenizer": "dd" * 32})),
        ("the image digest", plan_with(origins={**ORIGINS, "image": "sha256:" + "dd" * 32})),
        (
            "the corpus corpora/code",
            plan_with(origins={**ORIGINS, "corpus:corpora/code": "dd" * 32}),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_change_gives_another_hash_and_is_named(named: str, changed: Any) -> None:
    plan = plan_with()
    assert changed.hash != plan.hash
    assert any(named in sentence for sentence in differences(plan, changed))
    with pytest.raises(UsageError, match=named):
        refuse_changed(plan, changed)


def test_the_same_plan_is_not_refused() -> None:
    assert differences(plan_with(), plan_with()) == []
    refuse_changed(plan_with(), plan_with())


def test_a_plan_edited_by_hand_is_noticed_even_where_no_part_differs() -> None:
    plan = plan_with()
    assert differences(replace(plan, hash="0" * 64), plan)


def test_what_a_ledger_says_after_the_run_does_not_change_the_plan() -> None:
    before = [{"experiment": "does it pay?"}]
    after = [{"experiment": "does it pay?", "observation": "yes", "disposition": "kept"}]
    assert plan_with({"ledger": before}).hash == plan_with({"ledger": after}).hash
    other = [{"experiment": "another question?"}]
    assert plan_with({"ledger": before}).hash != plan_with({"ledger": other}).hash


def test_defaults_written_out_are_the_same_plan() -> None:
    spelled = {**BASE["workloads"][1], "cache": "cold", "concurrency": 1, "until": "length"}
    plan = plan_with({"workloads": [BASE["workloads"][1]]})
    assert plan_with({"workloads": [spelled], "rounds": 1, "seed": 0}).hash == plan.hash
