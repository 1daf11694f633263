"""Every campaign that ships is read strictly, planned whole, and can say what it would send."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qualify.cli.prepare import Prepared, prepare
from qualify.engines.resolve import command_line
from qualify.evals.kinds import all_kinds
from qualify.paths import campaigns_dir

# Their problems come from elsewhere; a plan without a network takes this project's own instead.
FETCHED = ("humaneval", "mbpp", "gsm8k")
FILES = sorted(campaigns_dir().glob("*.yaml"))
README = (campaigns_dir() / "README.md").read_text()


def planned(file: Path) -> Prepared:
    kinds = all_kinds()
    kinds |= {name: kinds["minicode"] for name in FETCHED if name in kinds}
    return prepare(file, kinds=kinds)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_it_is_planned_and_every_side_has_a_command(file: Path) -> None:
    prepared = planned(file)
    assert prepared.plan.launches
    assert prepared.campaign.campaign == prepared.file.stem
    assert prepared.campaign.ledger
    for resolved in prepared.resolved.values():
        assert command_line(resolved)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_it_stands_in_the_table(file: Path) -> None:
    assert f"`{file.name}`" in README


def test_every_campaign_of_other_hardware_has_a_counterpart_on_the_bundled_engine() -> None:
    rows = re.findall(r"^\| `((?:xpu|pocketllm)-[^`]+)` \|.*\| `(bundled-[^`]+)`", README, re.M)
    names = {f.name for f in FILES}
    assert {left for left, _ in rows} == {n for n in names if n.startswith(("xpu", "pocketllm"))}
    assert {right for _, right in rows} <= names
    for _, right in rows:
        assert planned(campaigns_dir() / right).engine.name == "cuda"


def test_every_rejected_experiment_keeps_its_observation_and_disposition() -> None:
    campaign = prepare(campaigns_dir() / "xpu-rejected.yaml").campaign
    assert isinstance(campaign.ledger, list)
    assert len(campaign.ledger) == 16
    assert all(line.observation and line.disposition for line in campaign.ledger)
    told = " ".join(line.experiment for line in campaign.ledger)
    assert [v for v in campaign.variants if v not in told] == []


def test_eight_sessions_of_half_a_million_tokens_are_refused_before_anything_starts(
    tmp_path: object,
) -> None:
    from qualify.errors import QualifyError

    text = (campaigns_dir() / "xpu-long-context.yaml").read_text()
    file = tmp_path / "eight.yaml"  # type: ignore[operator]
    eight = text.replace("tokens: 524288, count: 1,", "tokens: 524288, count: 8,")
    file.write_text(eight.replace("    first_token_timeout_s: 14400", "    concurrency: 8"))
    with pytest.raises(QualifyError, match="above the pool of 1,048,576"):
        prepare(file)
