"""Where the target-only launch is asked how close a difference was, and where nobody is."""

from __future__ import annotations

from typing import Any

import pytest

from qualify.plan import LaunchPlan, Plan
from tests.plan.test_build import plan_of


def asked(plan: Plan) -> list[LaunchPlan]:
    return [x for x in plan.launches if any(p.name == "margins" for p in x.probes)]


def test_in_one_round_the_baselines_second_launch_is_last_and_asks() -> None:
    plan = plan_of()
    assert asked(plan) == [plan.launches[-1]]
    assert plan.launches[-1].id == "r1.target-only.again"
    assert plan.launches[-1].purpose == "self-parity"


@pytest.mark.parametrize("seed", range(8))
def test_in_more_rounds_the_last_launch_is_the_baselines_or_one_more_is_planned(seed: int) -> None:
    plan = plan_of(rounds=3, seed=seed)
    last = plan.launches[-1]
    assert asked(plan) == [last]
    assert last.side.name == "target-only"
    if last.id == "r3.target-only":
        assert last.cells
    else:
        assert (last.id, last.purpose, last.cells) == ("r3.target-only.margins", "margins", ())
        assert plan.launches[-2].side.name != "target-only"


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("parity is switched off", {"checks": {"parity": False}}),
        ("sampling is not greedy", {"sampling": {"output_tokens": 8, "temperature": 0.7}}),
        ("the baseline drafts, and would make its scores up", {"baseline": "mtp"}),
        ("an attached server is not started again", {"relaunch": False}),
        ("there is nothing to compare", {"modes": ["target-only"]}),
    ],
)
def test_nobody_is_asked_where(why: str, changes: dict[str, Any]) -> None:
    assert asked(plan_of(**changes)) == [], why
