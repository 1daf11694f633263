"""Public faults whose small input is a program: each ends in time, with nothing left of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from qualify.evals.sandbox.bubblewrap import Bubblewrap
from qualify.evals.sandbox.choose import _tested
from qualify.evals.sandbox.nouns import Job, Limits, Ran
from qualify.evals.sandbox.session import run
from qualify.evals.sandbox.tree import ProcessCage
from tests.client.streams import public_faults
from tests.evals.test_hostile import still_there

SPARE_S = 2.0  # after the limit, by which it must have ended
STARTING_S = 20.0  # a sandbox starts slowly on a machine that others use


def tried(sandbox: Bubblewrap, code: str, inputs: list[Any], limit_s: float, **more: Any) -> Ran:
    limits = Limits(
        start_s=60.0, define_s=limit_s, call_s=limit_s, total_s=limit_s, processes=16, **more
    )
    began = time.monotonic()
    ran = run(sandbox, Job(code, "f", [inputs], limits))
    assert ran.seconds < (ran.start_s or 0.0) + limit_s + SPARE_S + STARTING_S
    assert time.monotonic() - began < 60 + 2 * limit_s
    return ran


def test_f098_a_giant_list_inside_c_code_ends_by_time_or_memory(bubblewrap: Bubblewrap) -> None:
    repro = public_faults()["F098"]["repro"]
    code = f"{repro['code']}\ndef f():\n    return len({repro['call']})\n"
    memory = repro["memory_mb"] << 20
    ran = tried(bubblewrap, code, ["l"], repro["time_limit_s"] / 2, memory_bytes=memory // 2)
    said = [call.error or "" for call in ran.calls]
    assert ran.ended in ("timeout", "memory") or any("MemoryError" in text for text in said), ran
    assert still_there() == []


def test_f109_a_child_that_left_the_process_group_is_gone_after_the_verdict(
    bubblewrap: Bubblewrap,
) -> None:
    repro = public_faults()["F109"]["repro"]
    ran = tried(bubblewrap, repro["code"], ["l"], repro["time_limit_s"])
    assert (ran.ended, ran.calls[0].value) == ("done", "1")
    assert still_there() == []


ENDLESS = {
    "as reported": public_faults()["F110"]["repro"]["code"],
    "at import": "while True: pass\ndef f(): return 1\n",
    "output": "def f():\n    print('x' * 10**9)\n",
    "exit at import": "raise SystemExit(0)\ndef f(): return 1\n",
    "exit without a word": "import os\ndef f():\n    os._exit(0)\n",
    "recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef g(n):\n    return g(n + 1) + 1\n"
        "def f():\n    return g(0)\n"
    ),
}


@pytest.mark.parametrize("variant", ENDLESS)
def test_f110_what_never_ends_or_ends_by_itself_is_no_pass(
    bubblewrap: Bubblewrap, variant: str
) -> None:
    ran = tried(bubblewrap, ENDLESS[variant], ["l"], 2.0, memory_bytes=256 << 20)
    passed = ran.ended == "done" and all(
        call.error is None and call.value == "1" for call in ran.calls
    )
    assert not passed, ran
    assert still_there() == []


def test_f100_a_limit_that_the_host_refuses_is_noted_and_right_code_still_passes(
    bubblewrap: Bubblewrap,
) -> None:
    refuse = (
        "def refuse(*_):\n    raise ValueError('current limit exceeds maximum limit')\n"
        "resource.setrlimit = refuse\n"
    )

    class Refusing(Bubblewrap):
        """A host whose setrlimit refuses, as one with a lower hard limit does."""

        def open(self, limits: Limits, driver: str) -> ProcessCage:
            start = 'if __name__ == "__main__":'
            assert driver.count(start) == 1
            return super().open(limits, driver.replace(start, f"{refuse}\n{start}"))

    assert bubblewrap.present
    chosen = _tested(Refusing(), holds=True)
    assert chosen.note is not None
    assert "not enforced here: RLIMIT_CORE: current limit exceeds maximum limit" in chosen.note
    ran = tried(Refusing(), "def f():\n    return 1\n", ["l"], 3.0)
    assert (ran.ended, ran.calls[0].value) == ("done", "1")
    assert ran.missing
