"""Campaign -> Plan: order, ids, prompts, pairs, the baseline's second launch, filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qualify.campaign.schema import Campaign
from qualify.errors import UsageError
from qualify.plan import Plan
from qualify.planning.build import make_plan
from qualify.planning.only import parse_only
from qualify.records.codec import from_dict, to_dict

BASE: dict[str, Any] = {
    "campaign": "t",
    "engine": "e",
    "modes": ["target-only", "mtp", "ngram"],
    "sampling": {"output_tokens": 64},
    "workloads": [
        {
            "name": "code",
            "prompts": {"source": "corpora/code", "tokens": [256, 1024], "count": 8},
            "warmup": {"count": 2},
            "concurrency": [1, 4],
        },
        {
            "name": "prose",
            "prompts": {"source": "corpora/prose", "tokens": 256, "count": 8},
            "self_parity": False,
        },
    ],
}


class Engine:
    name = "e"
    default_profile = "small"

    def __init__(self, **more: Any) -> None:
        self.more = more

    def identity(self) -> dict[str, Any]:
        return {"name": "e", **self.more}


def campaign(**changes: Any) -> Campaign:
    return Campaign.model_validate({**BASE, **changes})


def plan_of(only: str = "", relaunch: bool = True, **changes: Any) -> Plan:
    return make_plan(
        campaign(**changes), Engine(), only=parse_only(only.split()), relaunch=relaunch
    )


def ids(plan: Plan) -> list[str]:
    return [launch.id for launch in plan.launches]


def test_the_same_campaign_gives_the_same_plan_in_every_process(tmp_path: Path) -> None:
    import subprocess
    import sys

    file = tmp_path / "c.json"
    file.write_text(json.dumps(BASE))
    script = (
        "import json, sys\n"
        "from tests.plan.test_build import Engine\n"
        "from qualify.campaign.schema import Campaign\n"
        "from qualify.planning.build import make_plan\n"
        f"print(make_plan(Campaign.model_validate(json.load(open({str(file)!r}))), Engine()).hash)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {plan_of().hash + "\n"}


def test_a_round_launches_each_side_once_and_every_launch_has_its_cells_in_the_same_order() -> None:
    plan = plan_of(rounds=3)
    measured = [launch for launch in plan.launches if launch.purpose == "measure"]
    for number in (1, 2, 3):
        sides = [launch.side.name for launch in measured if launch.round == number]
        assert sorted(sides) == ["mtp", "ngram", "target-only"]
    cells = {tuple(cell.id for cell in launch.cells) for launch in measured}
    assert cells == {("code@256/c1", "code@256/c4", "code@1024/c1", "code@1024/c4", "prose@256/c1")}
    assert len(measured) == 9
    assert len(set(ids(plan))) == len(plan.launches)


def test_the_order_is_seeded_and_no_side_keeps_its_place_in_every_round() -> None:
    plan = plan_of(rounds=2)
    measured = [x for x in plan.launches if x.purpose == "measure"]
    first, second = ([x.side.name for x in measured if x.round == r] for r in (1, 2))
    assert second == first[::-1]
    orders = {
        tuple(x.side.name for x in plan_of(seed=seed).launches if x.purpose == "measure")
        for seed in range(40)
    }
    assert len(orders) == 6, "every order of three sides comes up under some seed"


def test_prompts_are_the_same_across_modes_launches_and_concurrencies() -> None:
    plan = plan_of(rounds=2)
    by_shape: dict[tuple[str, int], set[Any]] = {}
    for launch in plan.launches:
        for cell in launch.cells:
            by_shape.setdefault((cell.workload, cell.prompts.tokens), set()).add(
                (cell.prompts, cell.warmup)
            )
    assert all(len(specs) == 1 for specs in by_shape.values())
    assert len({specs for found in by_shape.values() for specs in found}) == 3
    again = {c.id: c.repeats_of for launch in plan.launches for c in launch.cells}
    assert again["code@256/c4"] == "code@256/c1"
    assert again["code@256/c1"] is None


def test_prompts_differ_between_workloads_seeds_campaigns_and_warm_up() -> None:
    plan = plan_of()
    cells = {c.id: c for c in plan.launches[0].cells}
    code, prose = cells["code@256/c1"], cells["prose@256/c1"]
    assert code.prompts.workload != prose.prompts.workload
    assert code.warmup is not None
    assert (code.warmup.stream, code.warmup.count) == ("warmup", 2)
    assert code.prompts.stream == "measured"
    other = plan_of(seed=7).launches[0].cells[0]
    assert other.prompts.seed != code.prompts.seed


def test_no_warm_up_leaves_no_warm_up_prompts() -> None:
    workload = {**BASE["workloads"][0], "warmup": {"count": 0}}
    assert plan_of(workloads=[workload]).launches[0].cells[0].warmup is None


def test_one_round_launches_the_baseline_again_for_self_parity() -> None:
    plan = plan_of()
    assert ids(plan)[-1] == "r1.target-only.again"
    again = plan.launches[-1]
    assert again.purpose == "self-parity"
    assert {c.workload for c in again.cells} == {"code"}, "prose asked to be left out"
    assert sum(launch.purpose == "self-parity" for launch in plan.launches) == 1


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("two rounds launch it twice anyway", {"rounds": 2}),
        ("parity is switched off", {"checks": {"parity": False}}),
        ("sampling is not greedy", {"sampling": {"output_tokens": 8, "temperature": 0.7}}),
        ("there is one side and parity is not asked for", {"modes": ["target-only"]}),
    ],
)
def test_there_is_no_second_launch_where(why: str, changes: dict[str, Any]) -> None:
    assert all(x.purpose != "self-parity" for x in plan_of(**changes).launches), why


def test_an_attached_server_has_no_second_launch_and_the_plan_says_so() -> None:
    plan = plan_of(relaunch=False)
    assert all(launch.purpose == "measure" for launch in plan.launches)
    assert any("not restarted" in warning for warning in plan.warnings)


def test_pairs_are_with_the_baseline_all_or_as_listed_and_expectations_join_them() -> None:
    assert plan_of().pairs == (("target-only", "mtp"), ("target-only", "ngram"))
    assert len(plan_of(pairs="all").pairs) == 3
    listed = plan_of(
        pairs=[["mtp", "ngram"]], expect=[{"pair": ["ngram", "target-only"], "same": ["output"]}]
    )
    assert listed.pairs == (("mtp", "ngram"), ("ngram", "target-only"))
    assert plan_of(baseline="mtp").pairs == (("mtp", "target-only"), ("mtp", "ngram"))


def test_a_variant_is_a_side_with_its_own_profile_arguments_and_environment() -> None:
    plan = plan_of(
        variants={"k3": {"mode": "mtp", "args": {"steps": 3}, "env": {"A": "1"}}},
        profile={"mtp": "large"},
    )
    sides = {launch.side.name: launch.side for launch in plan.launches}
    assert (sides["k3"].mode, sides["k3"].args, sides["k3"].env) == (
        "mtp",
        {"steps": 3},
        {"A": "1"},
    )
    assert {n: s.profile for n, s in sides.items()} == {
        "target-only": "small",
        "mtp": "large",
        "k3": "large",
        "ngram": "small",
    }
    assert ("target-only", "k3") in plan.pairs


def test_a_workload_can_be_for_some_modes_only() -> None:
    workloads = [BASE["workloads"][0], {**BASE["workloads"][1], "modes": ["mtp"]}]
    plan = plan_of(workloads=workloads)
    found = {x.side.name for x in plan.launches for c in x.cells if c.workload == "prose"}
    assert found == {"mtp"}


def test_until_eos_lets_the_server_stop_and_until_length_does_not() -> None:
    workloads = [
        {**BASE["workloads"][1], "name": "a", "until": "eos", "output_tokens": 512},
        {**BASE["workloads"][1], "name": "b"},
    ]
    a, b = plan_of(workloads=workloads).launches[0].cells
    assert (a.sampling.ignore_eos, a.sampling.output_tokens) == (False, 512)
    assert (b.sampling.ignore_eos, b.sampling.output_tokens) == (True, 64)


def test_a_first_token_may_take_as_long_as_a_start_unless_said_otherwise() -> None:
    workloads = [BASE["workloads"][0], {**BASE["workloads"][1], "first_token_timeout_s": 60.0}]
    cells = {c.id: c for c in plan_of(workloads=workloads).launches[0].cells}
    assert cells["code@256/c1"].first_token_timeout_s == 1800.0
    assert cells["prose@256/c1"].first_token_timeout_s == 60.0


def test_a_filter_keeps_a_part_and_changes_the_hash_with_its_words_in_the_plan() -> None:
    part = plan_of("mode=target-only,mtp workload=code tokens=256 concurrency=4")
    assert ids(part)[-1] == "r1.target-only.again"
    assert {c.id for x in part.launches for c in x.cells} == {"code@256/c4"}
    assert {x.side.name for x in part.launches} == {"target-only", "mtp"}
    assert all(c.repeats_of is None for x in part.launches for c in x.cells)
    assert part.pairs == (("target-only", "mtp"),)
    assert part.hash != plan_of().hash
    assert part.identity["only"] == ("concurrency=4 mode=target-only,mtp tokens=256 workload=code")


def test_a_filter_without_the_baseline_says_that_nothing_is_compared() -> None:
    assert any("leaves out the baseline" in w for w in plan_of("mode=mtp").warnings)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("mode=mtq", "no such mode"),
        ("workload=cod", "no such workload"),
        ("tokens=512", "no such tokens"),
        ("round=2", "no such round"),
        ("shape=256", "knows no `shape`"),
        ("mode", "not KEY=VALUE"),
        ("mode=,", "not KEY=VALUE"),
        ("workload=prose concurrency=4", "leaves no cell"),
    ],
)
def test_a_filter_that_cannot_be_met_is_refused(words: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_of(words)


def test_a_plan_survives_the_way_to_disk_and_back() -> None:
    plan = plan_of(rounds=2, variants={"k3": {"mode": "mtp", "args": {"a": None, "b": 1.5}}})
    again = from_dict(Plan, json.loads(json.dumps(to_dict(plan), allow_nan=False)))
    assert again == plan
