"""What reading a campaign promises beyond single faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualify.campaign.document import parse_document
from qualify.campaign.faults import CampaignFaults, did_you_mean
from qualify.campaign.load import Loaded, load_campaign
from qualify.engines.spec import load_engine
from qualify.paths import campaigns_dir

GOOD = """\
campaign: good
engine: llama-cpp
modes: [target-only, ngram]
sampling: {temperature: 0, output_tokens: 64}
workloads:
  - name: prose
    prompts: {source: corpora/prose, tokens: 256, count: 4}
"""


def load(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load_campaign(file, load_engine)


def refused(tmp_path: Path, text: str) -> CampaignFaults:
    with pytest.raises(CampaignFaults) as caught:
        load(tmp_path, text)
    return caught.value


def test_all_faults_are_told_in_one_go_in_file_order(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        """\
campaign: 20260819
engine: llama-cpp
modes: [target-only, ngramm]
model_revision: 25921e05
sampling: {temperature: 0, output_tokens: 012}
workloads:
  - name: a
    prompts: {source: corpora/prose, tokens: 1e6, count: 2}
    concurrency: 4
  - name: a
    prompts: {source: corpora/prose, tokens: 64, count: 0}
""",
    )
    lines = [f.line for f in error.faults]
    assert lines == sorted(lines)
    assert set(lines) == {1, 3, 4, 5, 8, 9, 10, 11}


def test_a_value_of_which_no_kind_fits_is_told_once(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD + "pairs: al\nchecks: {parity: 3}\n")
    assert [f.line for f in error.faults] == [8, 9]


def test_a_wrong_type_in_one_place_does_not_hide_an_impossible_shape_in_another(
    tmp_path: Path,
) -> None:
    text = GOOD + "    concurrency: 8\nrounds: two\n"
    said = str(refused(tmp_path, text.replace("tokens: 256", "tokens: 1024")))
    assert '"two" where a whole number belongs' in said
    assert "8 requests of 1,024 + 64 = 1,088 tokens are 8,704" in said


def test_input_plus_output_above_the_context_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    """F032: 1,048,000 + 1,024 > 1,048,576, by one token here."""
    at_the_limit = GOOD.replace("tokens: 256", "tokens: 4032")
    assert load(tmp_path, at_the_limit).campaign.workloads[0].prompts.tokens == 4032
    one_more = GOOD.replace("tokens: 256", "tokens: 4033")
    assert "4,033 + 64 = 4,097 tokens, above the context of 4,096" in str(
        refused(tmp_path, one_more)
    )


def test_the_last_turn_of_a_session_is_what_must_fit(tmp_path: Path) -> None:
    session = GOOD.replace("count: 4", "count: 4, turns: 5, growth: 944") + "    cache: session\n"
    assert load(tmp_path, session).campaign.workloads[0].prompts.growth == 944
    one_more = session.replace("tokens: 256", "tokens: 257")
    assert "4,033 + 64 = 4,097 tokens, above the context" in str(refused(tmp_path, one_more))


def test_more_requests_at_once_than_the_engine_runs_together_is_a_warning(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD + "    concurrency: 4\n")
    assert any("concurrency 4 is above the 2 requests" in w for w in loaded.warnings)
    assert not load(tmp_path, GOOD + "    concurrency: 2\n").warnings


def test_a_check_that_this_version_cannot_judge_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qualify.campaign.load.NOT_BUILT", ("capacity",))
    loaded = load(tmp_path, GOOD + "checks: {capacity: true, cold: true}\n")
    assert loaded.warnings == (
        "check `capacity` is not part of this version: its verdict will be not-run",
    )


def test_quoted_text_stays_exactly_as_written(tmp_path: Path) -> None:
    text = GOOD.replace("campaign: good", 'campaign: "1e6"') + "model: '25921e05'\n"
    campaign = load(tmp_path, text).campaign
    assert (campaign.campaign, campaign.model) == ("1e6", "25921e05")


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_campaign(file, load_engine).campaign == load(tmp_path, GOOD).campaign


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"campaign: a\nengine: \xff\n", 2, "not UTF-8"),
        (b"campaign: a\nengine: b\x00c\n", 2, "unprintable character"),
        (b"", None, "holds nothing"),
        (b"# nothing but a comment\n", None, "holds nothing"),
        (b"- a\n- b\n", 1, "holds a list"),
        (b"a: &x [*x]\n", 1, "names a part of the file"),
    ],
)
def test_a_file_that_is_no_campaign_is_refused_with_its_line(
    data: bytes, line: int | None, says: str
) -> None:
    try:
        faults = tuple(parse_document(data, "c.yaml").faults)
    except CampaignFaults as error:
        faults = error.faults
    assert any(f.line == line and says in f.sentence for f in faults)


def test_aliases_that_multiply_do_not_take_the_machine_down() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 6)]
    document = parse_document("\n".join(lines).encode(), "c.yaml")
    assert len(document.faults) >= 6
    assert len(document.places) < 200, "nothing is expanded: that would be 9^6 values"


def test_a_missing_file_is_a_fault_and_not_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(CampaignFaults, match="there is no such file"):
        load_campaign(tmp_path / "none.yaml")
    with pytest.raises(CampaignFaults, match="cannot be read"):
        load_campaign(tmp_path)


def test_the_nearest_name_is_proposed_and_a_hopeless_word_gets_the_list() -> None:
    assert did_you_mean("ngrams", ["target-only", "ngram"]) == "Did you mean `ngram`?"
    assert did_you_mean("xyzzy", ["target-only", "ngram"]) == "Known: target-only, ngram."


@pytest.mark.parametrize("file", sorted(campaigns_dir().glob("*.yaml")), ids=lambda p: p.stem)
def test_every_bundled_campaign_is_read_without_a_fault(file: Path) -> None:
    assert load_campaign(file, load_engine).campaign.campaign
