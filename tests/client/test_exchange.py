"""The HTTP client against real sockets: framings, failures, limits, cancelling."""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qualify.client.clock import Clock
from qualify.client.http import send
from qualify.client.reply import RawReply
from qualify.client.stream import fold_openai
from qualify.client.timing import timing_of
from tests.client.streams import delta, post, public_faults, run, text, usage
from tests.scripted_engine import Play, ScriptedServer, Seen, play, sse_play
from tests.scripted_engine.wire import chunk, event, head

HELLO = [(0.0, text("a")), (5.0, text("b", "stop")), (6.0, usage(3, 2)), (6.0, "[DONE]")]


def ask(answer: Any, body: Any = None, **limits: Any) -> tuple[RawReply, Seen]:
    async def main() -> tuple[RawReply, Seen]:
        async with ScriptedServer(lambda _: answer) as server:
            raw = await send(post(f"{server.url}/v1/x?y=z", body, **limits))
            return raw, server.log[0]

    return run(main())


def body_of(raw: RawReply) -> bytes:
    return b"".join(a.data for a in raw.arrivals)


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_every_framing_is_read_to_its_end(framing: str) -> None:
    raw, _ = ask(sse_play(HELLO, framing=framing))
    assert (raw.status, raw.end, raw.detail) == (200, "complete", None)
    assert body_of(raw) == b"".join(event(p) for _, p in HELLO)


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_connection_closed_before_its_framing_ends_is_cut(framing: str) -> None:
    raw, _ = ask(sse_play(HELLO[:1], framing=framing, finish=False))
    assert raw.end == "cut"
    assert body_of(raw) == event(HELLO[0][1])
    failure = fold_openai(raw).failure
    assert failure is not None
    assert failure.cause == "truncated-stream"


def test_a_half_closed_connection_is_cut_at_once() -> None:
    raw, _ = ask(sse_play(HELLO[:1], finish=False, close="half"))
    assert raw.end == "cut"


def test_a_connection_closed_before_any_answer_says_so() -> None:
    raw, _ = ask(play())
    assert (raw.status, raw.end) == (None, "cut")
    failure = fold_openai(raw).failure
    assert failure is not None
    assert (failure.cause, "before any answer" in failure.message) == ("reset", True)


def test_a_reset_in_the_middle_keeps_what_had_arrived() -> None:
    steps = list(sse_play(HELLO[:1], finish=False).steps)
    raw, _ = ask(Play((*steps, (30.0, b"")), close="reset"))
    assert raw.end == "reset"
    assert body_of(raw) == event(HELLO[0][1])


def test_interim_answers_are_skipped() -> None:
    first = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    rest = head(200, {"content-length": "2"}) + b"ok"
    for steps in ([(0.0, first + rest)], [(0.0, first), (2.0, rest)]):
        raw, _ = ask(play(*steps))
        assert (raw.status, raw.end, body_of(raw)) == (200, "complete", b"ok")
        assert raw.headers == (("content-length", "2"),)


def test_an_answer_cut_into_single_bytes_is_the_same_answer() -> None:
    whole = head(200, {"transfer-encoding": "chunked"}) + chunk(event(text("a", "stop")))
    whole += chunk(event(usage(3, 1))) + b"0\r\n\r\n"
    raw, _ = ask(play(*[(0.02 * k, whole[k : k + 1]) for k in range(len(whole))]))
    assert raw.end == "complete"
    assert fold_openai(raw).text == "a"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ],
)
def test_illegal_http_is_an_error_with_a_reason(answer: bytes) -> None:
    raw, _ = ask(play((0.0, answer), close="open"))
    assert raw.end == "error"
    failure = fold_openai(raw).failure
    assert failure is not None
    assert failure.cause == "bad-http"
    assert failure.message


def test_bytes_after_a_complete_answer_change_nothing() -> None:
    raw, _ = ask(play((0.0, head(200, {"content-length": "2"}) + b"okXXXX")))
    assert (raw.end, body_of(raw)) == ("complete", b"ok")


def test_the_request_is_sent_as_it_was_encoded() -> None:
    raw, seen = ask(sse_play(HELLO), {"prompt": [1, 2]})
    assert (seen.method, seen.path, seen.query) == ("POST", "/v1/x", {"y": "z"})
    assert seen.body == b'{"prompt": [1, 2]}'
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"
    assert raw.headers[0] == ("content-type", "text/event-stream")


def test_a_refused_connection_is_a_reply_with_its_cause() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for host in ("127.0.0.1", "localhost"):
        raw = run(send(post(f"http://{host}:{port}/")))
        assert (raw.status, raw.end) == (None, "refused")
        failure = fold_openai(raw).failure
        assert failure is not None
        assert failure.cause == "refused"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "127.0.0.1:80", "http:///x"])
def test_an_address_that_is_none_is_a_reply_too(url: str) -> None:
    raw = run(send(post(url)))
    failure = fold_openai(raw).failure
    assert failure is not None
    assert (raw.end, failure.cause) == ("client-error", "client-error")


def test_a_header_with_a_line_break_is_never_sent() -> None:
    request = post("http://127.0.0.1:9/")
    broken = type(request)("GET", request.url, (("x", "a\r\nb: c"),), b"")
    assert run(send(broken)).end == "client-error"


def test_a_connection_that_does_not_come_ends_at_the_connect_limit() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        raw = run(send(post(f"http://127.0.0.1:{port}/", connect_timeout_s=0.2)))
        for filler in fillers:
            filler.close()
    assert raw.end == "timeout"
    assert raw.detail is not None
    assert "connect" in raw.detail


def test_the_limit_that_fired_is_named() -> None:
    silent, _ = ask(play(close="open"), first_byte_timeout_s=0.1, idle_timeout_s=5.0)
    assert silent.end == "timeout"
    assert silent.detail == "no token within first_byte_timeout_s = 0.1"
    begun = sse_play(HELLO[:1], finish=False, close="open")
    idle, _ = ask(begun, first_byte_timeout_s=5.0, idle_timeout_s=0.1)
    assert idle.end == "timeout"
    assert idle.detail == "silent for more than idle_timeout_s = 0.1"
    assert body_of(idle) == event(HELLO[0][1])
    assert 0.1 <= idle.t_end_s < 1.0


_WAITING = [
    event(delta(role="assistant", content="")),
    b": ping\n\n",
    event({"content": "", "tokens": [0], "stop": False, "prompt_progress": {"processed": 5}}),
    event(usage(9, 0)),
]


@pytest.mark.parametrize("waiting", _WAITING)
def test_what_comes_before_the_first_token_does_not_start_the_idle_limit(waiting: bytes) -> None:
    late = [(0.0, waiting), (250.0, text("a", "stop")), (251.0, usage(3, 1))]
    raw, _ = ask(sse_play(late), first_byte_timeout_s=5.0, idle_timeout_s=0.08)
    assert raw.end == "complete"
    never = sse_play(late[:1], finish=False, close="open")
    raw, _ = ask(never, first_byte_timeout_s=0.2, idle_timeout_s=0.05)
    assert raw.detail == "no token within first_byte_timeout_s = 0.2"


def test_the_idle_limit_holds_after_a_late_first_token_too() -> None:
    late = sse_play([(0.0, b": ping\n\n"), (200.0, text("a"))], finish=False, close="open")
    raw, _ = ask(late, first_byte_timeout_s=5.0, idle_timeout_s=0.15)
    assert raw.detail == "silent for more than idle_timeout_s = 0.15"
    assert 0.34 <= raw.t_end_s < 1.0


class _Warp(selectors.DefaultSelector):
    """Waits no longer than 5 ms of real time; the rest of each wait passes at once."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        short = None if timeout is None else min(timeout, 0.005)
        found = super().select(short)
        if not found and timeout is not None:
            self.skipped += max(0.0, timeout - 0.005)
        return found


class _WarpLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._warp = _Warp()
        super().__init__(self._warp)

    def time(self) -> float:
        return super().time() + self._warp.skipped


def test_f049_a_first_token_after_25_minutes_is_waited_for() -> None:
    case = public_faults()["F049"]["repro"]
    late_s = float(case["first_token_after_s"])

    async def answer(_: Seen) -> Any:
        async def pieces() -> Any:
            await asyncio.sleep(late_s)
            body = b"".join(event(p) for _, p in HELLO)
            yield head(200, {"content-length": str(len(body))}) + body

        return pieces()

    async def main(**limits: Any) -> RawReply:
        loop = asyncio.get_running_loop()
        async with ScriptedServer(answer) as server:
            return await send(post(server.url, **limits), Clock(now=loop.time))

    with asyncio.Runner(loop_factory=_WarpLoop) as runner:
        for limits in ({}, {"first_byte_timeout_s": 1.2 * late_s, "idle_timeout_s": 30.0}):
            raw = runner.run(main(**limits))
            assert raw.end == "complete", raw.detail
            assert timing_of(fold_openai(raw))[0].ttft_s == pytest.approx(late_s, abs=2.0)
        raw = runner.run(main(first_byte_timeout_s=600.0))
        assert raw.detail == "no token within first_byte_timeout_s = 600"
        assert raw.t_end_s == pytest.approx(600.0, abs=1.0)


def test_cancelling_gives_what_had_arrived() -> None:
    async def main() -> RawReply:
        cancel = asyncio.Event()
        begun = sse_play(HELLO[:1], finish=False, close="open")
        async with ScriptedServer(lambda _: begun) as server:
            asyncio.get_running_loop().call_later(0.1, cancel.set)
            return await send(post(server.url), cancel=cancel)

    raw = run(main())
    assert (raw.end, body_of(raw)) == ("cancelled", event(HELLO[0][1]))
    assert raw.t_end_s < 1.0


def test_cancelling_before_the_connection_stands_is_a_reply_too() -> None:
    async def main() -> RawReply:
        cancel = asyncio.Event()
        cancel.set()
        async with ScriptedServer(lambda _: sse_play(HELLO)) as server:
            return await send(post(server.url), cancel=cancel)

    assert run(main()).end == "cancelled"


def test_a_body_of_many_megabytes_is_timed_from_its_first_byte() -> None:
    raw, seen = ask(sse_play(HELLO), "x" * 30_000_000)
    assert raw.end == "complete"
    assert len(seen.body) == 30_000_002
    assert raw.send_s is not None
    assert raw.send_s > 0
    # The server can answer only after the last byte, so TTFT holds the sending.
    ttft_s = timing_of(fold_openai(raw))[0].ttft_s
    assert ttft_s is not None
    assert ttft_s >= raw.send_s


def test_connecting_is_in_no_other_time() -> None:
    raw, seen = ask(sse_play([(40.0, text("a", "stop")), (41.0, usage(1, 1))], head_ms=5.0))
    assert raw.connect_s is not None
    assert raw.connect_s > 0
    assert raw.t_sent >= seen.t_accept - 0.001
    assert raw.t_headers_s is not None
    assert 0.004 < raw.t_headers_s < 0.035
    assert raw.arrivals[0].t_s > 0.039


def test_f053_a_wall_clock_that_jumps_changes_no_interval(monkeypatch: Any) -> None:
    wall = iter(["2026-11-29T12:00:00Z", "2026-11-29T11:59:55Z"])
    monkeypatch.setattr("time.time", lambda: 0.0)

    async def main() -> RawReply:
        async with ScriptedServer(lambda _: sse_play(HELLO)) as server:
            return await send(post(server.url), Clock(wall=lambda: next(wall)))

    raw = run(main())
    assert raw.started_at == "2026-11-29T12:00:00Z"
    times = [a.t_s for a in raw.arrivals]
    assert times == sorted(times)
    assert 0.004 < raw.t_end_s < 1.0


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with a key and a certificate for 127.0.0.1, made for this test."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")]
    try:
        subprocess.run(made, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl command to make a certificate with")
    return tmp_path


def test_https_is_spoken_and_a_certificate_that_is_not_trusted_is_refused(
    certificate: Path,
) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate / "crt", certificate / "key")
    trusting = ssl.create_default_context(cafile=str(certificate / "crt"))

    async def main(context: ssl.SSLContext | None) -> RawReply:
        async with ScriptedServer(lambda _: sse_play(HELLO), ssl_context=served) as server:
            return await send(post(server.url), ssl_context=context)

    raw = run(main(trusting))
    assert raw.end == "complete"
    assert fold_openai(raw).text == "ab"
    distrusting = run(main(None))
    assert distrusting.end == "connect"
    assert distrusting.detail is not None
    assert "certificate" in distrusting.detail
