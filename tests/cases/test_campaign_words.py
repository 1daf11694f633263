"""F085: words that YAML readers read differently are refused, and exact text stays exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualify.campaign.document import parse_document
from qualify.campaign.faults import CampaignFaults
from qualify.campaign.load import load_campaign
from qualify.engines.spec import load_engine
from qualify.paths import campaigns_dir
from tests.client.streams import public_faults


def test_f085_each_ambiguous_word_is_refused_with_what_was_found_and_what_to_write() -> None:
    text = public_faults()["F085"]["repro"]["text"]
    document = parse_document(text.encode(), "case.yaml")
    told = {fault.line: f"{fault.sentence} {fault.remedy}" for fault in document.faults}
    by_line: dict[int | None, list[str]] = {}
    for fault in document.faults:
        by_line.setdefault(fault.line, []).append(f"{fault.sentence} {fault.remedy}")
    assert set(told) == {1, 4}
    assert "25921e05" in told[1]
    assert "Quote it if it is text" in told[1]
    sizes = " ".join(by_line[4])
    assert "`1e6`" in sizes
    assert "1000000" in sizes
    assert "`012`" in sizes
    assert "12" in sizes
    assert document.value["image_tag"] == 20260819  # every digit of it, or a type error below


@pytest.mark.parametrize("word", ["20260819", "25921e05", "1e6", "012", "3:30", "on", "2026-08-19"])
def test_f085_a_name_that_looks_like_a_number_is_quoted_or_refused(
    tmp_path: Path, word: str
) -> None:
    text = (campaigns_dir() / "quickstart.yaml").read_text("utf-8")
    file = tmp_path / "c.yaml"
    file.write_text(f"{text}\nmodel: {word}\n", "utf-8")
    with pytest.raises(CampaignFaults) as caught:
        load_campaign(file, load_engine)
    (fault,) = caught.value.faults
    assert word in fault.sentence + fault.remedy
    assert f'"{word}"' in fault.remedy or "uote" in fault.remedy
    file.write_text(f'{text}\nmodel: "{word}"\n', "utf-8")
    assert load_campaign(file, load_engine).campaign.model == word
