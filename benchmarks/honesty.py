"""How often are the report's words wrong? Simulated campaigns whose truth is known.

    python benchmarks/honesty.py [CAMPAIGNS] [--markdown]

Every campaign is played as paired log ratios (true ratio, noise of each launch, noise of each
request, a machine that slows down, prompts that gain differently) and judged by the functions
that judge a real run: outcomes.judge, outcomes.holm and crossover.crossovers. 2,000 campaigns
a row unless told otherwise. Prints each figure with its target; exits 1 where one is missed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from qualify.analysis.crossover import Crossover, crossovers
from qualify.analysis.outcomes import Finding, holm, judge
from qualify.analysis.pairs import PairResult

CAMPAIGNS = 2000
MARGIN = 0.03
STEPS = tuple(1024 * 2**i for i in range(8))  # prompt lengths of a sweep


@dataclass(frozen=True)
class World:
    """What is true. Noise is relative (a standard deviation of the log).

    ratio: how much faster the side is, over the prompts of the campaign. launch: of one start
    of one side. request: of one request. spread: how differently prompts gain, the same in
    every round. drift: by how much the machine slows from one launch to the next.
    """

    rounds: int = 5
    prompts: int = 10
    ratio: float = 1.0
    launch: float = 0.02
    request: float = 0.03
    spread: float = 0.10
    drift: float = 0.0
    tail: float = 0.0  # share of requests that take twice as long


@dataclass
class Rate:
    """One figure: its target as (least, most), None where it is shown without one."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None
    n: int = CAMPAIGNS

    @property
    def met(self) -> bool:
        return (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )

    @property
    def target(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:.0%} to {self.most:.0%}"
        if self.least is not None:
            return f"at least {self.least:.0%}"
        return f"at most {self.most:.0%}" if self.most is not None else "shown only"


@dataclass
class Sweep:
    """Paired log ratios of one campaign over several cells that share their launches."""

    world: World
    truths: Sequence[float]  # log ratio of each cell, over its own prompts
    rng: random.Random
    margin: float = MARGIN
    values: list[dict[int, dict[tuple[str, int], float]]] = field(default_factory=list)

    def play(self) -> Sweep:
        world, rng = self.world, self.rng
        gains = [self._gains(t) for t in self.truths]
        self.values = [{} for _ in self.truths]
        for number in range(1, world.rounds + 1):
            # Even rounds run in the reverse order, as plans do.
            behind = world.drift if number % 2 else -world.drift
            launch = rng.gauss(0, world.launch) - rng.gauss(0, world.launch) - behind
            for cell, found in zip(gains, self.values, strict=True):
                found[number] = {
                    (str(i), 0): gain + launch + self._request() - self._request()
                    for i, gain in enumerate(cell)
                }
        return self

    def _gains(self, truth: float) -> list[float]:
        """True log ratios of the prompts; their mean is the truth exactly."""
        raw = [self.rng.gauss(0, self.world.spread) for _ in range(self.world.prompts)]
        shift = truth - math.fsum(raw) / len(raw)
        return [r + shift for r in raw]

    def _request(self) -> float:
        slow = math.log(2) if self.rng.random() < self.world.tail else 0.0
        return self.rng.gauss(0, self.world.request) + slow

    def findings(self) -> list[Finding]:
        judged = holm([judge(v, self.margin) for v in self.values])
        return [f for f in judged if f is not None]

    def curve(self) -> Crossover:
        pairs = [
            _pair(tokens, finding) for tokens, finding in zip(STEPS, self.findings(), strict=True)
        ]
        (found,) = crossovers(pairs)
        return found


def _pair(tokens: int, finding: Finding) -> PairResult:
    """A pair of which only the decode finding is known."""
    return PairResult(
        side="drafting",
        reference="target-only",
        cell=f"sweep@{tokens}/c1",
        workload="sweep",
        tokens=tokens,
        concurrency=1,
        prompts=finding.n,
        rounds=finding.n,
        left_out={},
        decode=finding,
        wall=None,
        wall_same_prefill=None,
        prefill_share=None,
        throughput_ratio=None,
        cycle_factor=None,
        tokens_factor=None,
        break_even=None,
        proposed=1,
        refused=None,
        round_ratios={},
    )


def singles(world: World, campaigns: int, seed: str) -> Iterator[Finding]:
    """Campaigns that compare two sides in one cell."""
    rng = random.Random(seed)
    for _ in range(campaigns):
        (found,) = Sweep(world, [math.log(world.ratio)], rng).play().findings()
        yield found


def share(found: Sequence[object]) -> float:
    return sum(map(bool, found)) / len(found)


def covers(finding: Finding, ratio: float) -> bool:
    return (
        finding.low is not None
        and finding.high is not None
        and (finding.low <= ratio <= finding.high)
    )


WORLDS: dict[str, World] = {
    "a steady machine": World(),
    "noisy launches (5%)": World(launch=0.05),
    "noisy requests (15%)": World(request=0.15),
    "a machine that slows by 1% a launch": World(drift=0.01),
    "one request in fifty takes twice as long": World(tail=0.02),
}


def coverage(campaigns: int) -> Iterator[Rate]:
    for rounds in (3, 5, 10):
        for name, world in WORLDS.items():
            here = replace(world, rounds=rounds, ratio=1.25)
            found = [covers(f, here.ratio) for f in singles(here, campaigns, f"cover {here}")]
            yield Rate(
                f"95% interval holds the truth: {rounds} rounds, {name}",
                share(found),
                0.93,
                0.97,
                campaigns,
            )


def mistakes(campaigns: int) -> Iterator[Rate]:
    for rounds in (3, 5, 10):
        for name, world in WORLDS.items():
            tie = replace(world, rounds=rounds)
            words = [f.outcome for f in singles(tie, campaigns, f"tie {tie}")]
            said = share([w in ("tied", "not enough data") for w in words])
            yield Rate(
                f"a true tie is called tied or not enough data: {rounds} rounds, {name}",
                said,
                0.95,
                None,
                campaigns,
            )
            wrong = share([w == "ahead" for w in words])
            yield Rate(
                f'"ahead" of a true tie: {rounds} rounds, {name}', wrong, None, 0.05, campaigns
            )
        edge = World(rounds=rounds, ratio=1 + MARGIN)
        wrong = share([f.outcome == "ahead" for f in singles(edge, campaigns, f"edge {edge}")])
        yield Rate(
            f'"ahead" of a difference as large as the margin (5% by design): {rounds} rounds',
            wrong,
            None,
            None,
            campaigns,
        )
        behind = World(rounds=rounds, ratio=0.98)
        wrong = share([f.outcome == "ahead" for f in singles(behind, campaigns, f"b {behind}")])
        yield Rate(
            f'"ahead" of a side that is 2% behind: {rounds} rounds', wrong, None, 0.05, campaigns
        )
    many = [
        any(f.outcome in ("ahead", "behind") for f in _ties(rng))
        for rng in [random.Random("many")]
        for _ in range(campaigns)
    ]
    yield Rate(
        "any of 20 true ties in one report is called ahead or behind, 5 rounds",
        share(many),
        None,
        0.05,
        campaigns,
    )


def _ties(rng: random.Random) -> list[Finding]:
    return Sweep(World(), [0.0] * 20, rng).play().findings()


def power(campaigns: int) -> Iterator[Rate]:
    for name, world in WORLDS.items():
        lead = replace(world, ratio=1.10)
        called = [f.outcome == "ahead" for f in singles(lead, campaigns, f"power {lead}")]
        least = 0.80 if (world.launch, world.request, world.tail) == (0.02, 0.03, 0.0) else None
        yield Rate(
            f"a true 10% lead is called ahead: 5 rounds of 10 prompts, {name}",
            share(called),
            least,
            None,
            campaigns,
        )
    for rounds in (3, 10):
        lead = World(rounds=rounds, ratio=1.10)
        called = [f.outcome == "ahead" for f in singles(lead, campaigns, f"power {lead}")]
        yield Rate(
            f"a true 10% lead is called ahead: {rounds} rounds of 10 prompts",
            share(called),
            None,
            None,
            campaigns,
        )
    level = World(rounds=10, launch=0.01)
    called = [f.outcome == "tied" for f in singles(level, campaigns, f"level {level}")]
    yield Rate(
        "a true tie is called tied: 10 rounds, launch noise 1%",
        share(called),
        None,
        None,
        campaigns,
    )


def crossing_truths(at: float, slope: float) -> list[float]:
    """Log ratios that fall by `slope` with each doubling of the context and are 0 at `at`."""
    return [-slope * math.log2(tokens / at) for tokens in STEPS]


def brackets(campaigns: int) -> Iterator[Rate]:
    """Crossings anywhere between the shapes; slopes from gentle to steep."""
    for name, slope in (("3%", 0.03), ("10%", 0.0953), ("20%", 0.1823)):
        rng, found = random.Random(f"bracket {slope}"), []
        for _ in range(campaigns):
            at = 2 ** rng.uniform(math.log2(STEPS[2]), math.log2(STEPS[5]))
            found.append((at, Sweep(World(), crossing_truths(at, slope), rng).play().curve()))
        told = [(at, c) for at, c in found if c.bracket is not None]
        yield Rate(
            f"bracket holds the crossing, where one is told: {name} a doubling",
            share([c.bracket[0] <= at <= c.bracket[1] for at, c in told if c.bracket]),
            0.95,
            None,
            len(told),
        )
        yield Rate(
            f"interval of the estimate holds it: {name} a doubling",
            share([_within(at, c) for at, c in told]),
            0.93,
            None,
            len(told),
        )
        yield Rate(
            f"a crossing is told at all: {name} a doubling",
            len(told) / campaigns,
            None,
            None,
            campaigns,
        )


def _within(at: float, found: Crossover) -> bool:
    return found.estimate is not None and found.estimate.low <= at <= found.estimate.high


def narrow(campaigns: int) -> Iterator[Rate]:
    """The crossing lies between two shapes at which the true difference is 10%."""
    rng, wide, right = random.Random("narrow"), [], []
    for _ in range(campaigns):
        step = rng.randrange(1, len(STEPS) - 2)
        at = math.sqrt(STEPS[step] * STEPS[step + 1])
        found = Sweep(World(), crossing_truths(at, 2 * math.log(1.1)), rng).play().curve()
        wide.append(found.bracket == (STEPS[step], STEPS[step + 1]))
        right.append(found.bracket is not None and found.bracket[0] <= at <= found.bracket[1])
    yield Rate(
        "bracket is one shape step wide where the next shapes differ by 10%, 5 rounds",
        share(wide),
        0.80,
        None,
        campaigns,
    )
    yield Rate("and it holds the crossing", share(right), 0.95, None, campaigns)


def limits(campaigns: int) -> Iterator[Rate]:
    """What the words do not promise, with figures."""
    rng, called = random.Random("one round"), []
    for _ in range(campaigns):
        # The baseline is launched twice; what that changes widens the margin, as in a real run.
        again = abs(rng.gauss(0, 0.02) - rng.gauss(0, 0.02))
        margin = max(MARGIN, math.expm1(again))
        (found,) = Sweep(World(rounds=1, spread=0.02), [0.0], rng, margin).play().findings()
        called.append(found.outcome in ("ahead", "behind"))
    yield Rate(
        'one round, "within these launches only": a true tie is called ahead or behind',
        share(called),
        None,
        None,
        campaigns,
    )
    rng, other = random.Random("other prompts"), []
    for _ in range(campaigns):
        shift = rng.gauss(0, 0.10 / math.sqrt(10))
        (found_one,) = Sweep(World(), [math.log(1.25) + shift], rng).play().findings()
        other.append(covers(found_one, 1.25))
    yield Rate(
        "5 rounds: the interval holds the truth over all prompts of the kind, "
        "not these 10 (which gain differently by 10%)",
        share(other),
        None,
        None,
        campaigns,
    )


PARTS: tuple[Callable[[int], Iterator[Rate]], ...] = (
    coverage,
    mistakes,
    power,
    brackets,
    narrow,
    limits,
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("campaigns", type=int, nargs="?", default=CAMPAIGNS)
    parser.add_argument("--markdown", action="store_true", help="a table for docs/honesty.md")
    told = parser.parse_args(arguments)
    missed = 0
    if told.markdown:
        print("| what | measured | target | campaigns |\n| --- | --- | --- | --- |")
    for part in PARTS:
        for rate in part(told.campaigns):
            missed += not rate.met
            mark = "" if rate.met else " MISSED"
            row = f"{rate.what} | {rate.value:.1%}{mark} | {rate.target} | {rate.n:,}"
            print(f"| {row} |" if told.markdown else row, flush=True)
    print(f"{missed} missed", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
