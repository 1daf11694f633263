"""`python -m tests.scripted_engine --port N --dialect sglang ...`: the engine as a process."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path

from tests.scripted_engine.engine import ScriptedEngine


def _accept(text: str) -> list[int | None]:
    """ "3,0,-,2": accepted drafts of each step; "-" is a step without proposals."""
    return [None if part == "-" else int(part) for part in text.split(",") if part]


def _fault(text: str) -> tuple[int, str]:
    ordinal, _, name = text.partition("=")
    return int(ordinal), name


def _pair(text: str) -> tuple[int, int]:
    ordinal, _, times = text.partition("=")
    return int(ordinal), int(times)


def _canned(file: Path | None) -> list[tuple[str, str]]:
    if file is None:
        return []
    told = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
    return [(line["key"], line["answer"]) for line in told]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.scripted_engine")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dialect", choices=["sglang", "openai", "llamacpp"], default="sglang")
    parser.add_argument("--model", default="scripted")
    for name, default in (("ttft-ms", 5.0), ("ttft-ms-per-token", 0.0), ("step-ms", 5.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--accept", type=_accept, default=[], help="for example 3,0,-,2")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--eos-after", type=int)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--context", type=int, default=1_048_576)
    parser.add_argument("--page", type=int, default=1)
    parser.add_argument("--ready-after-s", type=float, default=0.0)
    parser.add_argument("--first-request-extra-ms", type=float, default=0.0)
    parser.add_argument("--flush-response", type=int, action="append", default=[])
    parser.add_argument("--fault", type=_fault, action="append", default=[], help="0=http-500")
    parser.add_argument("--fault-after", type=int, default=2)
    parser.add_argument("--diverge-at", type=int)
    parser.add_argument("--score-margin", type=float, help="give log probabilities, so far apart")
    parser.add_argument("--no-cached", action="store_true", help="report no cached tokens")
    parser.add_argument("--incremental", action="store_true")
    parser.add_argument("--canned", type=Path, help="JSONL of {key, answer}: see ScriptedEngine")
    parser.add_argument("--pool", type=int, help="tokens that it says it holds")
    parser.add_argument("--truncate", action="store_true", help="cut short what does not fit")
    parser.add_argument("--retract", type=_pair, action="append", default=[], help="4=1")
    parser.add_argument("--say", type=Path, help="a file of lines for its log, at the start")
    parser.add_argument("--log-steps", choices=["graph", "eager"], help="a log line a step")
    parser.add_argument("--rank-parity", action="store_true", help="say that the ranks agreed")
    parser.add_argument("--ranks-apart", type=int, action="append", default=[], help="but in 4")
    parser.add_argument("--hog-mib", type=int, default=0, help="memory that it holds besides")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--log", type=Path, help="the truth, one JSON line a generation, at exit")
    parser.add_argument("--die-after-s", type=float, help="exit with code 1 by itself")
    return parser.parse_args()


async def _serve(options: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(code: int) -> None:
        if not stopped.done():
            stopped.set_result(code)

    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        loop.add_signal_handler(signal.SIGTERM, stop, 0)
    loop.add_signal_handler(signal.SIGINT, stop, 0)
    if options.die_after_s is not None:
        loop.call_later(options.die_after_s, stop, 1)
    engine = ScriptedEngine(
        options.dialect,
        port=options.port,
        model=options.model,
        ttft_ms=options.ttft_ms,
        ttft_ms_per_token=options.ttft_ms_per_token,
        step_ms=options.step_ms,
        accept=options.accept,
        width=options.width,
        eos_after=options.eos_after,
        slots=options.slots,
        context=options.context,
        page=options.page,
        ready_after_s=options.ready_after_s,
        first_request_extra_ms=options.first_request_extra_ms,
        flush_responses=options.flush_response,
        faults=dict(options.fault),
        fault_after=options.fault_after,
        diverge_at=options.diverge_at,
        report_cached=not options.no_cached,
        incremental=options.incremental,
        canned=_canned(options.canned),
        pool=options.pool,
        truncate=options.truncate,
        retracted=dict(options.retract),
        log_steps=options.log_steps,
        rank_parity=options.rank_parity,
        ranks_apart=options.ranks_apart,
        score_margin=options.score_margin,
    )
    if options.say is not None:
        print(options.say.read_text("utf-8"), flush=True)
    held = bytearray(b"\1") * (options.hog_mib << 20)
    async with engine:
        print(f"scripted {options.dialect} engine at {engine.url}", flush=True)
        code = await stopped
        assert len(held) == options.hog_mib << 20
    if options.log is not None:
        lines = [json.dumps(made.line()) + "\n" for made in engine.generations]
        options.log.write_text("".join(lines), encoding="utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_serve(_options())))
