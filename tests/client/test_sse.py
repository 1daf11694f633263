"""The parser against every legal way to write and to cut an event stream."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.client.sse import SseError, SseEvent, SseParser


def parse(*reads: bytes) -> list[SseEvent]:
    """Events of a stream whose reads came at 1, 2, 3 ... seconds."""
    parser = SseParser()
    found = [e for t, data in enumerate(reads, 1) for e in parser.feed(data, float(t))]
    return found + parser.close()


def data(*reads: bytes) -> list[bytes]:
    return [e.data for e in parse(*reads)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_may_end_with_lf_cr_or_crlf(end: bytes) -> None:
    assert data(end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])) == [b"a\nb", b"c"]


def test_a_crlf_cut_between_reads_is_one_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_a_cr_line_end_is_not_taken_for_half_a_crlf() -> None:
    assert data(b"data: a\r", b"data: b\r\r") == [b"a\nb"]


def test_one_blank_after_the_colon_is_dropped_and_only_one() -> None:
    assert data(b"data:a\n\ndata: b\n\ndata:  c\n\n") == [b"a", b"b", b" c"]


def test_comments_and_unknown_fields_carry_nothing() -> None:
    stream = b": ping\n\nretry: 3000\n\nid: 7\nfoo: bar\n\ndata: a\n: inside\ndata: b\n\n"
    assert data(stream) == [b"a\nb"]


def test_event_and_id_are_kept_with_their_event_and_the_type_is_forgotten_after_it() -> None:
    found = parse(b"event: x\nid: 7\ndata: a\n\ndata: b\n\n")
    assert [(e.event, e.id, e.data) for e in found] == [("x", "7", b"a"), (None, "7", b"b")]


def test_a_type_without_data_does_not_leak_into_the_next_event() -> None:
    assert [e.event for e in parse(b"event: error\n\ndata: a\n\n")] == [None]


def test_a_field_without_a_colon_is_a_field_with_an_empty_value() -> None:
    assert data(b"data\n\ndata: a\ndata\n\n") == [b"", b"a\n"]


def test_a_byte_order_mark_is_dropped_at_the_start_alone_even_when_cut() -> None:
    assert data(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [b"a"]
    assert data(b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbf\n\n") == [b"a", b"\xef\xbb\xbf"]
    assert data(b"\xef", b"oo: x\ndata: a\n\n") == [b"a"]


def test_only_cr_and_lf_end_a_line() -> None:
    kept = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei"
    assert data(f"data: {kept}\n\n".encode()) == [kept.encode()]


def test_the_last_event_needs_no_blank_line_and_no_line_end() -> None:
    assert data(b"data: a\n\ndata: b\n") == [b"a", b"b"]
    assert data(b"data: a\n\ndata: b") == [b"a", b"b"]


def test_an_error_field_makes_an_error_event() -> None:
    assert [(e.event, e.data) for e in parse(b'error: {"code":500}\n\n')] == [
        ("error", b'{"code":500}')
    ]


def test_an_event_has_the_time_of_the_read_that_brought_its_last_data_byte() -> None:
    assert [e.t_s for e in parse(b"data: a", b"\n", b"\n")] == [1.0]
    assert [e.t_s for e in parse(b"data: a", b"b\n\n")] == [2.0]
    assert [e.t_s for e in parse(b"data: a\n", b"data: b\r", b"\n\r\n")] == [2.0]
    assert [e.t_s for e in parse(b"data: a\n", b": ping\n", b"\n")] == [1.0]
    assert [e.t_s for e in parse(b"data: a\n\ndata: b\n\n", b"data: c\n\n")] == [1.0, 1.0, 2.0]
    assert [e.t_s for e in parse(b"data: a", b"")] == [1.0]


def test_an_event_above_the_limit_is_refused_with_a_sentence() -> None:
    parser = SseParser(max_event_bytes=1000)
    with pytest.raises(SseError, match="larger than 1000 bytes"):
        parser.feed(b"data: " + b"x" * 2000, 0.0)
    parser = SseParser(max_event_bytes=1000)
    with pytest.raises(SseError, match="larger than 1000 bytes"):
        parser.feed(b"data: xx\n" * 400, 0.0)


def test_many_small_events_never_add_up_to_the_limit() -> None:
    parser = SseParser(max_event_bytes=100)
    assert sum(len(parser.feed(b"data: xxxxxxxxxxxxxxxx\n\n", 0.0)) for _ in range(1000)) == 1000


@pytest.mark.parametrize(
    ("read", "count"),
    [(b"x", 400_000), (b"data: x\n", 200_000), (b"\r", 200_000), (b":\n", 200_000)],
    ids=["one endless line", "one endless event", "only line ends", "only comments"],
)
def test_hostile_streams_take_linear_time(read: bytes, count: int) -> None:
    def took(n: int) -> float:
        parser = SseParser()
        start = time.process_time()
        for _ in range(n):
            parser.feed(read, 0.0)
        parser.close()
        return time.process_time() - start

    # Quadratic work would make four times the input 16 times as slow.
    small = min(took(count // 4) for _ in range(3))
    assert took(count) < 9 * small + 0.05


_pieces = st.sampled_from(
    [
        *(b"data: ", b"data:", b"data", b"event: error", b"id: 1", b"retry: 5", b": ping", b"x: y"),
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r"),
        *(b"a", b" ", b":", "\u4e2d".encode(), "\U0001f642".encode(), "\u2028".encode()),
        *(b"\xef\xbb\xbf", b"\x85", b"[DONE]", b'{"a":1}'),
    ]
)


def reference(stream: bytes) -> list[tuple[bytes, str | None]]:
    """The standard's own words as a loop over characters, one after another."""
    text = stream.decode("latin-1")
    if text.startswith("\xef\xbb\xbf"):
        text = text[3:]
    lines, line, at = [], "", 0
    while at < len(text):
        if text[at] == "\r" or text[at] == "\n":
            lines.append(line)
            line = ""
            if text[at] == "\r" and at + 1 < len(text) and text[at + 1] == "\n":
                at += 1
        else:
            line += text[at]
        at += 1
    lines += [line] if line else []
    found: list[tuple[bytes, str | None]] = []
    buffer: list[str] | None = None
    kind = None
    for line in [*lines, ""]:
        if line == "":
            if buffer is not None:
                found.append(("\n".join(buffer).encode("latin-1"), kind))
            buffer, kind = None, None
            continue
        name, colon, value = line.partition(":")
        if colon and value[:1] == " ":
            value = value[1:]
        if name == "data":
            buffer = [*(buffer or []), value]
        elif name == "event":
            kind = value.encode("latin-1").decode("utf-8", "replace")
    return found


@given(st.lists(_pieces, max_size=40), st.data())
@settings(max_examples=400, deadline=None)
def test_any_cut_gives_the_same_events(pieces: list[bytes], choice: st.DataObject) -> None:
    stream = b"".join(pieces)
    cuts = sorted(choice.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    reads = [stream[a:b] for a, b in pairwise(edges)]
    expected = reference(stream)
    assert [(e.data, e.event) for e in parse(stream)] == expected
    assert [(e.data, e.event) for e in parse(*reads)] == expected


@given(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"])))
def test_text_cut_into_single_bytes_comes_back_whole(kept: str) -> None:
    stream = f"data: {kept}\n\n".encode()
    assert data(*[stream[i : i + 1] for i in range(len(stream))]) == [kept.encode()]
