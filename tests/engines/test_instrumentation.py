"""What watches an engine from inside is on record, and nothing else is called an instrument."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from qualify.engines.instrumentation import instrumentation_of
from qualify.engines.origin import origin_of
from qualify.engines.protocol import EngineInfo
from qualify.engines.server import launch
from tests.engines.toys import toy


def test_arguments_variables_and_wrappers_that_are_on_are_named() -> None:
    found = instrumentation_of(
        {"enable_metrics": True, "enable-request-time-stats-logging": False, "context-length": 1},
        ["/usr/bin/nsys", "profile", "python", "-m", "server", "--enable-metrics"],
        {
            "SGLANG_TORCH_PROFILER_DIR": "/tmp/p",
            "CUDA_LAUNCH_BLOCKING": "0",
            "OMP_NUM_THREADS": "1",
        },
        [],
    )
    assert found == ["--enable-metrics", "SGLANG_TORCH_PROFILER_DIR", "nsys"]


def test_a_flag_written_into_the_command_counts_like_an_argument() -> None:
    assert instrumentation_of({}, ["serve", "--perf", "--port", "1"], {}, []) == ["--perf"]
    assert instrumentation_of({}, ["serve", "--verbose", "0"], {}, []) == []
    assert instrumentation_of({}, ["serve", "--device-phase-timers=1"], {}, []) == [
        "--device-phase-timers"
    ]


def test_an_attached_server_is_known_by_what_it_says_of_its_arguments() -> None:
    said = {"enable_metrics": True, "log_requests": False, "enable_trace": False, "tp_size": 4}
    assert instrumentation_of({}, (), {}, [said, [], "text"]) == ["--enable-metrics"]


def test_a_nested_configuration_counts_only_where_it_is_used() -> None:
    idle = {"profiler_config": {"profiler": None, "record_shapes": True}}
    busy = {"profiler_config": {"profiler": "torch", "record_shapes": True}}
    assert instrumentation_of({}, (), {}, [idle]) == []
    assert instrumentation_of({}, (), {}, [busy]) == ["--profiler-config"]


@pytest.mark.parametrize(
    "name",
    [
        "enable-prompt-tokens-details",
        "enable-cache-report",
        "per-request-spec-decode-metrics",
        "profiles-dir-of-the-user",
        "decode-log-interval",
        "log-requests-level",
    ],
)
def test_what_an_answer_says_of_itself_is_no_instrument(name: str) -> None:
    assert instrumentation_of({name: "summary"}, (), {}, []) == []


@pytest.mark.parametrize("name", ["MODEL_PROFILE_NAME", "SGLANG_PROFILER", "NCCL_DEBUG"])
def test_a_variable_that_switches_a_profiler_or_its_log_on_is_one(name: str) -> None:
    expected = [] if name == "MODEL_PROFILE_NAME" else [name]
    assert instrumentation_of({}, (), {name: "INFO"}, []) == expected
    assert instrumentation_of({}, (), {name: "0"}, []) == []


def test_a_launch_states_its_instruments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    resolved = replace(toy(tmp_path), env={"SGLANG_TORCH_PROFILER_DIR": "/tmp/p"})
    info = EngineInfo(None, None, None, None, None, None, {"props": {"perf": True}})

    async def run() -> dict[str, object]:
        async with launch(resolved, tmp_path, "a") as server:
            return origin_of(server, info)

    told = asyncio.run(run())["instrumentation"]
    assert told == ["--perf", "SGLANG_TORCH_PROFILER_DIR", "TORCH_LOGS"]


def test_a_launch_without_any_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_LOGS", raising=False)

    async def run() -> dict[str, object]:
        async with launch(toy(tmp_path), tmp_path, "a") as server:
            return origin_of(server, None)

    assert asyncio.run(run())["instrumentation"] == []
