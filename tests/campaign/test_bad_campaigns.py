"""Every file in fixtures/bad-campaigns is refused at the line and in the words it must be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.campaign.faults import CampaignFaults
from qualify.campaign.load import load_campaign
from qualify.engines.spec import load_engine
from qualify.errors import ExitCode
from qualify.paths import data_root

BAD = data_root() / "fixtures" / "bad-campaigns"
EXPECTED = json.loads((BAD / "expected.json").read_text())


def test_every_bad_campaign_has_an_expectation_and_the_other_way_round() -> None:
    assert {p.stem for p in BAD.glob("*.yaml")} == set(EXPECTED)
    assert len(EXPECTED) >= 25


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_campaign_is_refused_at_its_line_with_a_remedy(name: str) -> None:
    wanted = EXPECTED[name]
    with pytest.raises(CampaignFaults) as caught:
        load_campaign(BAD / f"{name}.yaml", load_engine)
    assert caught.value.exit_code == ExitCode.USAGE
    told = [(f.line, f.sentence, f.remedy) for f in caught.value.faults]
    assert any(
        line == wanted["line"] and wanted["says"] in sentence and wanted["cure"] in remedy
        for line, sentence, remedy in told
    ), told
    assert all(remedy for _, _, remedy in told), "a fault without a remedy helps nobody"
    assert f"{name}.yaml:{wanted['line']}: " in str(caught.value)


def test_the_same_campaign_without_its_fault_is_accepted(tmp_path: Path) -> None:
    """The control: each fixture differs from this by one thing, and this one loads."""
    text = (BAD / "zero-prompts.yaml").read_text().replace("count: 0", "count: 4")
    file = tmp_path / "good.yaml"
    file.write_text(text)
    assert load_campaign(file, load_engine).campaign.campaign == "bad"
