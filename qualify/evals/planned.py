"""A campaign's `evals:` -> what is asked in each mode, with every problem known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qualify.campaign.evals import Asking, asked_for
from qualify.campaign.schema import Campaign, SamplingSpec
from qualify.engines.protocol import Sampling
from qualify.evals.kinds import all_kinds
from qualify.evals.nouns import Kind, Problem, ProblemSet
from qualify.evals.problems import draw
from qualify.plan import EvalPlan

AROUND = 60  # tokens of instruction and template
COMMON = frozenset(Asking.model_fields)


@dataclass(frozen=True)
class Bench:
    """The evaluations of a run: plans in order, and the problems and kind of each by its id."""

    plans: tuple[EvalPlan, ...] = ()
    sets: Mapping[str, ProblemSet] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    def preflight(self) -> None:
        """Raises UsageError where what is asked could not be scored on this machine."""
        for plan in self.plans:
            self.kinds[plan.id].preflight()


def bench_of(campaign: Campaign, kinds: Mapping[str, Kind] | None = None) -> Bench:
    """Read every problem that the campaign's evaluations ask for. Raises UsageError.

    An evaluation that is asked for twice gets ids NAME, NAME-2, ...
    """
    kinds = all_kinds() if kinds is None else kinds
    plans: list[EvalPlan] = []
    sets: dict[str, ProblemSet] = {}
    chosen: dict[str, Kind] = {}
    times: dict[str, int] = {}
    for entry in campaign.evals:
        for name, asking in asked_for(entry):
            times[name] = times.get(name, 0) + 1
            id = name if times[name] == 1 else f"{name}-{times[name]}"
            kind = kinds[name]
            plan, problems = plan_one(id, kind, asking, campaign.sampling, campaign.start_timeout_s)
            plans.append(plan)
            sets[id], chosen[id] = problems, kind
    return Bench(tuple(plans), sets, chosen)


def plan_one(
    id: str, kind: Kind, asking: Asking, asked: SamplingSpec, first_token_timeout_s: float
) -> tuple[EvalPlan, ProblemSet]:
    """Sampling is as `asked`, but answers end by themselves and have their own length."""
    options = asking.model_dump(mode="json", exclude=set(COMMON))
    problems = kind.problems(options)
    if asking.subset is not None:
        problems = draw(problems, asking.subset.seed, asking.subset.count)
    plan = EvalPlan(
        id=id,
        name=kind.name,
        measures=kind.measures(),
        style=asking.style,
        sampling=Sampling(
            output_tokens=asking.output_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            seed=asked.seed,
            ignore_eos=False,
        ),
        concurrency=asking.concurrency if kind.cache(options) == "any" else 1,
        cache=kind.cache(options),
        first_token_timeout_s=first_token_timeout_s,
        problems=problems.ids,
        problems_sha256=problems.sha256,
        subset=problems.subset,
        thinking=asking.thinking,
        options=options,
        prompt_tokens=sum(map(_tokens, problems.problems)),
    )
    return plan, problems


def _tokens(problem: Problem) -> int:
    """Exact where a size was asked for; else the text at three characters a token, and what
    stands around it."""
    exact: int | None = problem.data.get("tokens")
    return exact if exact is not None else len(problem.text) // 3 + AROUND
