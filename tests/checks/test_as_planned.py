"""What a server says of itself, held against the plan; a planted difference is named."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from qualify.checks.identity import check
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.schema import LaunchRecord
from tests.factory import Maker, drafting, target

SOUND: dict[str, Any] = {
    "args": {
        "context-length": 4096,
        "mode": "dflash2",
        "enable-metrics": True,
        "cuda-graph-config": '{"decode":{"bs":[1,2]}}',
        "speculative-draft-model-path": "/here/draft",
        "max-running-requests": 64,
    },
    "model": {
        "declared": {"architectures": ["Qwen3_5ForConditionalGeneration"], "layers": 64},
    },
    "draft_model": {"declared": {"architectures": ["DFlash2DraftModel"], "layers": 5}},
    "info": {
        "architecture": "Qwen3_5ForCausalLM",
        "raw": {
            "server_info": {
                "context_length": "4096",
                "mode": "dflash2",
                "enable_metrics": True,
                "cuda_graph_config": {"decode": {"bs": [1, 2], "backend": "full"}},
                "speculative_draft_model_path": "/draft",
                "speculative_draft_model_class": "DFlash2DraftModel",
                "max_running_requests": 8,
                "engine": {"layers": 64},
            },
        },
    },
}
LINE = (
    "[2026-01-01 00:00:00 TP0] Initialized DFLASH draft runner. attention_backend=x, "
    "model={}, block_size=8, draft_window_size=2048, compact_cache=True\n"
)


def judged(tmp_path: Path, origin: dict[str, Any], logged: str = "DFlash2DraftModel") -> Verdict:
    sides = {"target-only": target(), "dflash2": drafting("dflash2")}
    run = Maker(sides=sides, self_parity=False).build()
    launches = []
    for name in dict.fromkeys(end.launch for end in run.cells):
        side = name.split(".")[1].split("#")[0]
        told = origin if side == "dflash2" else {}
        (tmp_path / f"engine-{name}.log").write_text(LINE.format(logged) if told else "")
        launches.append(
            LaunchRecord("x", name, name.split("#")[0], 1, side, side, "started", "now", told)
        )
    run = dataclasses.replace(run, launches=tuple(launches), folder=tmp_path)
    found = {v.subject: v for v in check(run, Settings())}
    return found["dflash2"]


def test_a_server_that_is_what_was_planned_passes_and_says_what_was_compared(
    tmp_path: Path,
) -> None:
    verdict = judged(tmp_path, SOUND)
    assert verdict.outcome == "pass", verdict.sentence
    assert set(verdict.evidence["compared"]) == {
        "architecture",
        "layers",
        "drafter class in the log",
        "drafter class",
        "drafter's checkpoint",
        "--context-length",
        "--mode",
        "--enable-metrics",
        "--cuda-graph-config",
    }


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("info", "raw", "server_info", "engine", "layers"), 1, "layers is 1, and 64 was planned"),
        (("info", "architecture"), "LlamaForCausalLM", "architecture is LlamaForCausalLM"),
        (("info", "raw", "server_info", "context_length"), 2048, "--context-length is 2048"),
        (("info", "raw", "server_info", "enable_metrics"), False, "--enable-metrics is False"),
        (
            ("info", "raw", "server_info", "cuda_graph_config"),
            {"decode": {"bs": [1]}},
            "--cuda-graph-config is",
        ),
        (
            ("info", "raw", "server_info", "speculative_draft_model_class"),
            "DFlashDraftModel",
            "drafter class is DFlashDraftModel, and DFlash2DraftModel was planned",
        ),
        (
            ("draft_model", "declared", "architectures"),
            ["DFlashDraftModel"],
            "DFlashDraftModel was planned",
        ),
    ],
)
def test_a_planted_difference_is_named(
    tmp_path: Path, path: tuple[str, ...], value: Any, named: str
) -> None:
    origin = copy.deepcopy(SOUND)
    place = origin
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    verdict = judged(tmp_path, origin)
    assert verdict.outcome == "fail"
    assert named in verdict.sentence


def test_classic_dflash_under_dflash2s_name_is_found_in_the_log(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SOUND, logged="DFlashDraftModel")
    assert verdict.outcome == "fail"
    assert "drafter class in the log is DFlashDraftModel" in verdict.sentence


def test_what_a_server_does_not_report_is_no_agreement(tmp_path: Path) -> None:
    silent = {**copy.deepcopy(SOUND), "info": {"architecture": None, "raw": {}}}
    verdict = judged(tmp_path, silent)
    assert verdict.outcome == "pass"
    assert set(verdict.evidence["compared"]) == {"drafter class in the log", "drafter's checkpoint"}
