"""What is refused before any rank starts, and faults that no real model shows on demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from specdec.contract import RunnerOptions
from specdec.errors import SpecdecError
from specdec.logs import logger
from specdec.parallel.errors import Ended, RanksBroken, cause
from specdec.parallel.launch import load_runner, rank_devices
from specdec.parallel.parity import ParityCheck, tokens_line
from specdec.parallel.plans import Report
from specdec.request import SamplingParams, Sequence
from specdec.serve import run
from specdec.settings import ServeSettings

FIXTURE = Path(__file__).parents[3] / "fixtures/models/tiny-qwen3.5"


@pytest.fixture
def log_as_before() -> Iterator[None]:
    """A server sets its log up for the whole process."""
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


def sequence() -> Sequence:
    return Sequence("r1", (1, 2), SamplingParams(), seed=0, rank_token_parity=True)


def test_a_size_that_does_not_divide_ends_the_command_with_2_and_a_remedy(
    capsys: pytest.CaptureFixture[str], log_as_before: None
) -> None:
    assert run(ServeSettings(FIXTURE, tp_size=3, port=0)) == 2
    assert (
        "--tp-size 3 does not divide this checkpoint: vocab_size is 4096, hidden_size is 256, "
        "num_attention_heads is 4, num_key_value_heads is 2, linear_num_key_heads is 2, "
        "linear_num_value_heads is 4. Use --tp-size 2."
    ) in capsys.readouterr().err


def test_one_rank_is_an_ordinary_runner_without_processes(agreeing: Path) -> None:
    runner = load_runner(agreeing, RunnerOptions(device="cpu", max_total_tokens=256))
    assert runner.info.tp_size == 1
    assert runner.rank_parity is None


def test_ranks_need_a_cuda_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert rank_devices(RunnerOptions(device="auto", tp_size=2)) == ["cuda:0", "cuda:1"]
    assert rank_devices(RunnerOptions(device="cpu", tp_size=2)) == ["cpu", "cpu"]
    with pytest.raises(SpecdecError, match="needs as many CUDA devices, and 2 are visible"):
        rank_devices(RunnerOptions(device="cuda", tp_size=4))
    with pytest.raises(SpecdecError, match="names one device for 2 ranks"):
        rank_devices(RunnerOptions(device="cuda:1", tp_size=2))


def test_other_tokens_on_a_rank_break_the_engine_and_mark_the_request() -> None:
    check, first, second = ParityCheck(2), sequence(), sequence()
    mine = Report(((5, 6), (7,)), 64, 1)
    check.compare([first, second], mine, 1, mine)
    assert check.facts.tokens == 3
    assert check.facts.equal
    with pytest.raises(RanksBroken, match="Rank 1 committed other tokens than rank 0 for request"):
        check.compare([first, second], mine, 1, Report(((5, 6), (8,)), 64, 1))
    assert not check.facts.equal
    assert (first.rank_token_parity, second.rank_token_parity) == (True, False)


def test_a_rank_with_other_pages_breaks_the_engine() -> None:
    mine = Report(((5,),), 64, 1)
    with pytest.raises(RanksBroken, match="Rank 1 has 0 free tokens"):
        ParityCheck(2).compare([sequence()], mine, 1, Report(((5,),), 0, 1))


def test_the_line_of_a_request_tells_its_tokens_apart_from_any_others() -> None:
    one, other = sequence(), sequence()
    one.output_ids, other.output_ids = [1, 23], [12, 3]
    assert tokens_line(one).startswith("Rank tokens, rid: r1, #token: 2, sha256: ")
    assert tokens_line(one) != tokens_line(other)


def test_an_end_is_told_by_signal_or_by_code() -> None:
    assert Ended(2, 77, -9, 0.0).sentence == "Rank 2 (process 77) was ended by SIGKILL."
    assert Ended(1, 78, 1, 0.0).sentence == "Rank 1 (process 78) ended with exit code 1."


def test_the_rank_that_was_killed_is_named_and_not_those_that_failed_for_want_of_it() -> None:
    killed, first, second = Ended(3, 9, -9, 5.0), Ended(1, 7, 1, 4.0), Ended(2, 8, 1, 6.0)
    said, other = RanksBroken("Rank 2 failed: it said so.", ""), RuntimeError("connection closed")
    assert str(cause([first, second, killed], said)).startswith(killed.sentence)
    assert cause([second, first], said) is said
    assert str(cause([second, first], other)).startswith(first.sentence)
    assert cause([], other) is other
