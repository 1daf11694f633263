"""How far the client's report is from the server's own log, and what the client costs.

One server on one core, the client on another: TTFT 50 ms, 10 ms between tokens, 128 tokens,
one token an event, at 1, 16, 64 and 256 streams; then without delays for the most tokens a
second. A raw epoll client runs beside it as a floor. `python -m benchmarks.client_accuracy`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.epoll_floor import run_floor
from qualify.client.load import Window, run_closed_loop
from qualify.client.reply import HttpRequest, RawReply
from qualify.client.stream import fold_openai
from qualify.client.timing import timing_of

ROWS = {1: 20, 16: 96, 64: 384, 256: 1024}
TTFT_MS, GAP_MS, TOKENS = 50.0, 10.0, 128


@dataclass(frozen=True)
class Shot:
    """One request as a client reports it."""

    ttft_ms: float
    tpot_ms: float


def bodies(count: int, tokens: int, ttft_ms: float, gap_ms: float) -> list[bytes]:
    ask = {"tokens": tokens, "ttft_ms": ttft_ms, "gap_ms": gap_ms}
    return [json.dumps({**ask, "k": k}).encode() for k in range(count)]


class Server:
    """The lean server as a process on one core; its log when it is stopped."""

    def __init__(self, port: int, core: int | None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "log.jsonl"
        argv = [sys.executable, "-m", "benchmarks.stream_server", "--port", str(port)]
        argv += ["--log", str(self._log), *(["--core", str(core)] if core is not None else [])]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def stop(self) -> dict[int, Shot]:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        truth = {}
        for line in filter(None, self._log.read_text(encoding="utf-8").split("\n")):
            said = json.loads(line)
            span_ms = 1000 * (said["t_last"] - said["t_first"])
            ttft_ms = 1000 * (said["t_first"] - said["t_request"])
            truth[said["k"]] = Shot(ttft_ms, span_ms / (TOKENS - 1))
        self._folder.cleanup()
        return truth


def drive(
    port: int, asked: list[bytes], concurrency: int
) -> tuple[Window, dict[int, RawReply], float]:
    url = f"http://127.0.0.1:{port}/v1/completions"
    requests = [HttpRequest("POST", url, (), body) for body in asked]
    raws: dict[int, RawReply] = {}
    cpu = time.process_time()
    window = asyncio.run(run_closed_loop(requests, concurrency, raws.__setitem__))
    return window, raws, time.process_time() - cpu


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def differences(truth: dict[int, Shot], got: dict[int, Shot]) -> str:
    ttft = [got[k].ttft_ms - truth[k].ttft_ms for k in got]
    tpot = [got[k].tpot_ms - truth[k].tpot_ms for k in got]
    cells = [f"{quantile(ttft, q):+.2f}" for q in (0.5, 0.99)]
    return " / ".join([*cells, *(f"{quantile(tpot, q):+.4f}" for q in (0.5, 0.99))])


def accuracy(port: int, core: int | None, streams: int, count: int) -> None:
    asked = bodies(count, TOKENS, TTFT_MS, GAP_MS)
    server = Server(port, core)
    window, raws, cpu_s = drive(port, asked, streams)
    truth = server.stop()
    read_s = time.process_time()
    got = {}
    for k, raw in raws.items():
        reply = fold_openai(raw)
        timing, _ = timing_of(reply)
        if reply.failure or timing.ttft_s is None or timing.tpot_ms is None:
            raise SystemExit(f"request {k} failed: {reply.failure}")
        got[k] = Shot(1000 * timing.ttft_s, timing.tpot_ms)
    read_s = time.process_time() - read_s
    per = 1000 / (count * TOKENS)
    print(
        f"| qualify | {streams} | {differences(truth, got)} | {cpu_s * per:.4f} "
        f"| {(cpu_s + read_s) * per:.4f} | {window.client_delay_ms:.1f} |"
    )
    server = Server(port, core)
    cpu_s = time.process_time()
    floor = run_floor(port, asked, streams)
    cpu_s = time.process_time() - cpu_s
    truth = server.stop()
    shots = {
        k: Shot(1000 * (r.t_first - r.t_sent), 1000 * (r.t_last - r.t_first) / (TOKENS - 1))
        for k, r in enumerate(floor)
    }
    print(f"| epoll floor | {streams} | {differences(truth, shots)} | {cpu_s * per:.4f} | | |")


def saturated(port: int, core: int | None) -> None:
    count, tokens, streams = 512, 256, 64
    asked = bodies(count, tokens, 0.0, 0.0)
    server = Server(port, core)
    window, raws, cpu_s = drive(port, asked, streams)
    assert window.window_s is not None
    assert all(fold_openai(raw).usage.completion_tokens == tokens for raw in raws.values())
    total = count * tokens
    print(f"qualify saturated: {total / window.window_s:,.0f} tokens/s, ", end="")
    print(f"{1000 * cpu_s / total:.4f} client CPU s per 1,000 tokens")
    server.stop()
    server = Server(port, core)
    start, cpu_s = time.perf_counter(), time.process_time()
    run_floor(port, asked, streams)
    wall, cpu_s = time.perf_counter() - start, time.process_time() - cpu_s
    print(f"epoll floor saturated: {total / wall:,.0f} tokens/s, ", end="")
    print(f"{1000 * cpu_s / total:.4f} client CPU s per 1,000 tokens")
    server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=18931)
    parser.add_argument("--streams", type=int, nargs="*", default=list(ROWS))
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    server_core = cores[0] if len(cores) > 1 else None
    if server_core is not None:
        os.sched_setaffinity(0, {cores[1]})
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    print("| client | streams | reported minus true, ms: TTFT p50 / p99 / TPOT p50 / p99 ", end="")
    print("| CPU s per 1,000 tokens | with reading | worst client delay, ms |")
    print("|---|---|---|---|---|---|")
    for streams in options.streams:
        accuracy(options.port, server_core, streams, ROWS.get(streams, 4 * streams))
    saturated(options.port, server_core)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
