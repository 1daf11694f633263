"""How launches ended and what they left: each way to end badly is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qualify.checks import lifecycle_end
from qualify.records.run import Run
from qualify.records.schema import LaunchRecord
from tests.factory import Maker

CLEAN = {"code": 0, "signal": None, "forced": False, "oom": False, "note": None}
GONE: dict[str, Any] = {
    "exit": CLEAN,
    "devices_before": {"gpu": 1 << 30},
    "devices_after": {"gpu": 1 << 30},
    "waited_s": 0.1,
    "processes": [],
}


def ended(**left: Any) -> dict[str, tuple[str, str]]:
    run = Maker().build()
    stopped = LaunchRecord(
        "made", "r1.target-only#1", "r1.target-only", 1, "target-only", "target-only", "stopped",
        "now", {"exit": "x", "left": {**GONE, **left}},
    )  # fmt: skip
    return judged(dataclasses.replace(run, launches=(*run.launches, stopped)))


def judged(run: Run) -> dict[str, tuple[str, str]]:
    return {
        part: (outcome, said) for part, outcome, said in lifecycle_end.judge(run, "target-only")
    }


def test_a_launch_that_hears_sigterm_and_leaves_nothing_passes() -> None:
    assert {outcome for outcome, _ in ended().values()} == {"pass"}
    by_signal = {**CLEAN, "code": None, "signal": "SIGTERM"}
    assert ended(exit=by_signal)["clean SIGTERM"][0] == "pass"


@pytest.mark.parametrize(
    ("left", "part", "named"),
    [
        ({"exit": {**CLEAN, "forced": True}}, "clean SIGTERM", "within its grace time"),
        ({"exit": {**CLEAN, "oom": True}}, "clean SIGTERM", "for want of memory"),
        ({"exit": {**CLEAN, "code": 1}}, "clean SIGTERM", "with code 1"),
        ({"exit": {**CLEAN, "code": None, "signal": "SIGSEGV"}}, "clean SIGTERM", "SIGSEGV"),
        ({"processes": [4711]}, "memory given back", "still live: 4711"),
        ({"devices_after": {"gpu": 3 << 30}}, "memory given back", "gpu holds 2,048 MiB more"),
    ],
)
def test_what_ends_badly_or_is_left_is_named_and_the_rest_passes(
    left: dict[str, Any], part: str, named: str
) -> None:
    found = ended(**left)
    assert found[part][0] == "fail"
    assert named in found[part][1]
    assert {outcome for name, (outcome, _) in found.items() if name != part} == {"pass"}


def test_without_a_device_and_without_a_server_of_ours_it_says_so() -> None:
    found = ended(exit=None, devices_before=None, devices_after=None)
    assert found["clean SIGTERM"] == ("not-run", "the server was not ours to stop")
    assert "no device whose memory could be read" in found["memory given back"][1]


def test_a_run_of_before_this_was_written_down_is_not_judged() -> None:
    assert judged(Maker().build()) == {}
