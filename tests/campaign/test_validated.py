"""What nobody has tried is said, with where it was tried, and never refused."""

from __future__ import annotations

from pathlib import Path

from qualify.campaign.load import load_campaign
from qualify.engines.spec import load_engine

TEXT = """campaign: c
engine: {engine}
profile: {profile}
modes: [target-only]
baseline: target-only
sampling: {{temperature: 0, output_tokens: 32}}
workloads:
  - name: prose
    prompts: {{source: corpora/prose, tokens: {tokens}, count: 8}}
    concurrency: {concurrency}
"""


def warnings(tmp_path: Path, **said: object) -> list[str]:
    file = tmp_path / "c.yaml"
    given = {"engine": "sglang-xpu", "profile": "1m-public", "tokens": 8192, "concurrency": 1}
    file.write_text(TEXT.format(**{**given, **said}))
    return list(load_campaign(file, load_engine).warnings)


def test_what_was_tried_gives_no_warning(tmp_path: Path) -> None:
    assert warnings(tmp_path) == []


def test_more_requests_at_once_than_were_tried_are_warned_of_with_the_line(tmp_path: Path) -> None:
    (said,) = warnings(tmp_path, concurrency=4)
    assert "c.yaml:10: profile 1m-public was validated for concurrency 1, and this is 4" in said
    assert "by its author" in said


def test_longer_requests_than_were_tried_are_warned_of(tmp_path: Path) -> None:
    (said,) = warnings(tmp_path, tokens=1_000_000)
    assert "requests of up to 525,312 tokens, and these take 1,000,032" in said


def test_a_profile_that_nobody_has_tried_says_so(tmp_path: Path) -> None:
    (said,) = warnings(tmp_path, engine="sglang", profile="default")
    assert "profile default was never validated" in said
