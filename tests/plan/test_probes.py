"""Which extra requests a plan holds, and that its sums say so."""

from __future__ import annotations

from qualify.campaign.schema import Campaign
from qualify.plan import LaunchPlan
from qualify.planning.build import make_plan
from qualify.planning.estimate import estimate
from tests.plan.test_build import Engine
from tests.plan.test_estimate import rates

CONFIG = '{"decode":{"backend":"full","bs":[1,2,4,8]},"prefill":{"backend":"disabled"}}'


class Graphed(Engine):
    def identity(self) -> dict[str, object]:
        return {
            "name": "graphed",
            "args": {"cuda-graph-config": CONFIG},
            "default_profile": "small",
            "profiles": {"small": {"context_tokens": 4096}},
        }


def campaign(**checks: object) -> Campaign:
    return Campaign.model_validate(
        {
            "campaign": "t",
            "engine": "e",
            "modes": ["target-only", "mtp"],
            "rounds": 2,
            "sampling": {"output_tokens": 10},
            "workloads": [
                {"name": "w", "prompts": {"source": "s", "tokens": [100, 1000], "count": 1}}
            ],
            "checks": checks,
        }
    )


def probed(launches: tuple[LaunchPlan, ...]) -> list[tuple[str, list[str]]]:
    """Those that a campaign asks for by name: margins are asked for by what differs."""
    named = [(item.id, [p.name for p in item.probes if p.name != "margins"]) for item in launches]
    return [(launch, probes) for launch, probes in named if probes]


def test_a_check_that_is_not_named_sends_nothing() -> None:
    assert probed(make_plan(campaign(), Graphed()).launches) == []
    assert probed(make_plan(campaign(graphs=False), Graphed()).launches) == []


def test_a_named_one_is_probed_once_a_side_in_its_first_launch() -> None:
    launches = make_plan(campaign(graphs=True), Graphed()).launches
    assert sorted(probed(launches)) == [("r1.mtp", ["graphs"]), ("r1.target-only", ["graphs"])]


def test_what_probes_send_is_in_the_sums_and_in_the_time() -> None:
    plain = estimate(make_plan(campaign(), Graphed()), rates)
    more = estimate(make_plan(campaign(graphs=True), Graphed()), rates)
    # Batches of 1, 2, 4, 8 and 3 prompts of 100 tokens, and one of 4,096 - 64; 64 tokens each.
    assert more.load.requests - plain.load.requests == 2 * 19
    prompt_tokens = 2 * (18 * 100 + 4032)
    assert more.load.prompt_tokens - plain.load.prompt_tokens == prompt_tokens
    assert more.load.output_tokens - plain.load.output_tokens == 2 * 19 * 64
    assert more.seconds is not None
    assert plain.seconds is not None
    assert abs(more.seconds - plain.seconds - prompt_tokens / 100 - 2 * 19 * 64 / 10) < 1e-6


def test_nothing_is_probed_where_no_captured_size_is_known() -> None:
    assert probed(make_plan(campaign(graphs=True), Engine()).launches) == []
