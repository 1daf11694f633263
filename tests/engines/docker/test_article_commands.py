"""The XPU article's two commands, flag by flag, against what `engines command` prints.

The tables are the article's: every option of `docker run`, then every flag of the server.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from qualify.cli.app import cli
from qualify.engines.definition import DefinitionError
from qualify.engines.resolve import resolve
from qualify.engines.spec import engine_names, load_engine
from qualify.errors import UsageError

RENDER = "$(getent group render | cut -d: -f3)"
IMAGE = "rahulunair/sglang-xpu:qwen3.8-27b-20260819"
DIGEST = "sha256:12a3ad504d0524dc090bdc7370dd8d369d6b0a3c3c520ea9b8107d21923653ec"
GRAPHS = '{"decode":{"backend":"full","bs":[1,2,4,8]},"prefill":{"backend":"disabled"}}'

# docker run: (option, value), None = a bare flag. Sorted, because order means nothing there.
CONTAINER = [
    ("--cap-add", "SYS_PTRACE"),
    ("--device", "/dev/dri"),
    ("--group-add", RENDER),
    ("--group-add", "video"),
    ("--ipc", "host"),
    ("--restart", "unless-stopped"),
    ("--security-opt", "seccomp=unconfined"),
    ("--shm-size", "64g"),
    ("--ulimit", "memlock=-1"),
    ("--ulimit", "stack=67108864"),
    ("-d", None),
    ("-e", "ONEAPI_DEVICE_SELECTOR=level_zero:gpu"),
    ("-p", "30000:30000"),
    ("-v", "$PWD/models/Qwen3.8-27B-AWQ-INT4-1m:/model:ro"),
    ("-v", "/dev/dri:/dev/dri"),
]
SERVER = [
    ("--attention-backend", "intel_xpu"),
    ("--chunked-prefill-size", "4096"),
    ("--context-length", "1048576"),
    ("--cuda-graph-config", GRAPHS),
    ("--device", "xpu"),
    ("--disable-custom-all-reduce", None),
    ("--enable-cache-report", None),
    ("--enable-strict-thinking", None),
    ("--host", "0.0.0.0"),
    ("--language-only", None),
    ("--max-mamba-cache-size", "40"),
    ("--max-running-requests", "64"),
    ("--max-total-tokens", "1048576"),
    ("--mem-fraction-static", "0.85"),
    ("--model-path", "/model"),
    ("--page-size", "64"),
    ("--port", "30000"),
    ("--reasoning-parser", "qwen3-thinking"),
    ("--served-model-name", "Qwen3.8-27B"),
    ("--skip-server-warmup", None),
    ("--strip-thinking-cache", None),
    ("--tool-call-parser", "qwen3_coder"),
    ("--tp-size", "4"),
    ("--trust-remote-code", None),
    ("--watchdog-timeout", "1800"),
]
DFLASH2 = [
    ("--speculative-algorithm", "DFLASH"),
    ("--speculative-dflash-block-size", "8"),
    ("--speculative-draft-model-path", "/draft"),
    ("--speculative-draft-window-size", "2048"),
    ("--speculative-num-draft-tokens", "8"),
]
MTP = [
    ("--speculative-algorithm", "EAGLE"),
    ("--speculative-eagle-topk", "1"),
    ("--speculative-num-draft-tokens", "8"),
    ("--speculative-num-steps", "7"),
]
DRAFT = ("-v", "$PWD/models/Qwen3.8-27B-DFlash2:/draft:ro")


def printed(*words: str) -> tuple[str, list[str]]:
    """The command as one line, and the comments below it."""
    result = CliRunner().invoke(cli, ["engines", "command", "sglang-xpu", *words])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    comments = [line for line in lines if line.startswith("#")]
    command = "\n".join(line for line in lines if not line.startswith("#"))
    return command, comments


def options(words: list[str]) -> list[tuple[str, str | None]]:
    """Flags with their values, `--x=y` and `--x y` alike, sorted."""
    found: list[tuple[str, str | None]] = []
    for word in words:
        if word.startswith("-") and not (found and found[-1][0] == "--ulimit" and word == "-1"):
            name, equals, value = word.partition("=")
            found.append((name, value if equals else None))
        else:
            found[-1] = (found[-1][0], word)
    return sorted(found, key=lambda f: (f[0], f[1] or ""))


def split(command: str) -> tuple[list[str], str, list[str], list[str]]:
    """docker's own options, the image, the program, the program's options."""
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["docker", "run"]
    at = next(i for i, word in enumerate(words) if word.startswith("rahulunair/"))
    assert words[at + 1 : at + 4] == ["python", "-m", "sglang.launch_server"]
    return words[2:at], words[at], words[at + 1 : at + 4], words[at + 4 :]


def here(options_: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    return [(k, v.replace("$PWD", str(Path.cwd())) if v else v) for k, v in options_]


@pytest.mark.parametrize(
    ("mode", "own", "mounts"), [("dflash2", DFLASH2, [DRAFT]), ("mtp", MTP, [])]
)
def test_the_printed_line_is_the_articles_flag_by_flag(
    mode: str, own: list[tuple[str, str | None]], mounts: list[tuple[str, str | None]]
) -> None:
    command, _ = printed("--mode", mode, "--profile", "1m-public")
    outer, image, _, inner = split(command)
    wanted = [*CONTAINER, *mounts, ("--name", f"qwen38-{mode}")]
    assert options(outer) == sorted(here(wanted), key=lambda f: (f[0], f[1] or ""))
    assert image == f"{IMAGE}@{DIGEST}"
    assert options(inner) == sorted([*SERVER, *own], key=lambda f: (f[0], f[1] or ""))


def test_what_measuring_adds_and_leaves_out_is_listed_apart() -> None:
    command, comments = printed("--mode", "dflash2", "--profile", "1m-public")
    assert "--enable-metrics" not in command
    assert "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION" not in command
    told = "\n".join(comments)
    for said in (
        "adds to the server: --enable-metrics",
        "adds to the container: -e SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0",
        "leaves out: --name qwen38-dflash2 --restart unless-stopped",
        "-p 127.0.0.1:30000:30000",
    ):
        assert said in told


def test_what_is_started_holds_the_additions() -> None:
    resolved = resolve(load_engine("sglang-xpu"), "mtp")
    assert "--enable-metrics" in resolved.argv
    assert resolved.env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0"
    assert resolved.added.args == {"enable-metrics": True}


def test_an_addition_that_a_variant_takes_out_is_no_addition() -> None:
    resolved = resolve(load_engine("sglang-xpu"), "mtp", args={"enable-metrics": None})
    assert "--enable-metrics" not in resolved.argv
    assert resolved.added.args == {}


@pytest.mark.parametrize(
    ("mode", "args", "why"),
    [
        ("mtp", {"speculative-eagle-topk": 4}, "a tree of drafts"),
        ("mtp", {"speculative-num-steps": 3}, "the anchor first"),
        ("dflash2", {"speculative-num-draft-tokens": 4}, "one proposal fills one block"),
        (
            "dflash2",
            {"speculative-num-draft-tokens": 16, "speculative-dflash-block-size": 16},
            "blocks of eight",
        ),
    ],
)
def test_a_draft_that_cannot_be_rolled_back_or_does_not_fill_its_block_is_refused(
    mode: str, args: dict[str, int], why: str
) -> None:
    with pytest.raises(DefinitionError, match=why):
        resolve(load_engine("sglang-xpu"), mode, args=dict(args))


@pytest.mark.parametrize("engine", ["sglang", "sglang-xpu"])
@pytest.mark.parametrize("left_out", ["speculative-eagle-topk", "speculative-num-draft-tokens"])
def test_what_the_server_would_choose_itself_is_asked_for(engine: str, left_out: str) -> None:
    with pytest.raises(UsageError, match=f"needs the argument {left_out}"):
        resolve(load_engine(engine), "mtp", model="/m", args={left_out: None})


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"speculative-num-draft-tokens": 7}, "the anchor is verified beside them"),
        ({"speculative-dspark-block-size": 8}, "blocks of seven"),
        ({"speculative-eagle-topk": 2}, "a tree of drafts"),
    ],
)
def test_dsparks_block_is_seven_drafts_and_the_anchor(args: dict[str, int], why: str) -> None:
    drafter = {"speculative-draft-model-path": "/d"}
    with pytest.raises(DefinitionError, match=why):
        resolve(load_engine("sglang"), "dspark", model="/m", args={**drafter, **args})


def test_a_narrower_mtp_chain_is_fine_when_steps_and_rows_agree() -> None:
    narrow = {"speculative-num-steps": 3, "speculative-num-draft-tokens": 4}
    resolved = resolve(load_engine("sglang-xpu"), "mtp", args=dict(narrow))
    assert (resolved.drafts, resolved.block) == (3, 4)


def test_every_profile_of_every_engine_says_what_it_was_validated_for() -> None:
    for name in engine_names():
        for profile in load_engine(name).profiles.values():
            assert profile.validated is not None, (name, profile.name)
            assert profile.validated.note


def test_every_profile_says_whether_it_is_public_and_what_was_validated() -> None:
    spec = load_engine("sglang-xpu")
    assert {"1m-public", "native-256k", "1m-mtp", "1m-dflash2"} <= set(spec.profiles)
    assert {n for n, p in spec.profiles.items() if p.published} == {"1m-public"}
    for name, profile in spec.profiles.items():
        assert profile.published is not None
        assert profile.validated is not None
        assert profile.validated.concurrency == 1
        if name != "1m-public":
            resolved = resolve(spec, (profile.modes or ("mtp",))[-1], name)
            assert resolved.container is not None
            assert resolved.container.image.pull == "never"
    assert spec.profiles["1m-public"].effective_concurrency == 8


def test_a_local_profile_never_takes_the_public_image_for_its_own() -> None:
    resolved = resolve(load_engine("sglang-xpu"), "dflash2", "native-256k")
    assert resolved.container is not None
    assert resolved.container.image.name == "sglang-xpu:local"
    assert resolved.container.image.digest is None
    assert resolved.container.image.pull == "never"
    assert resolved.model is not None
    assert resolved.model.endswith("Qwen3.8-27B-AWQ-INT4")


def test_a_profile_refuses_a_mode_that_it_was_not_made_for() -> None:
    with pytest.raises(UsageError, match="is not for mode mtp"):
        resolve(load_engine("sglang-xpu"), "mtp", "1m-dflash2")
