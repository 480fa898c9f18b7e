"""Server-sent events, split anywhere."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.io.http import sse
from callboard.actors.io.http.sse import SseEvent, SseParser
from callboard.protocol.errors import UpstreamError


def events_of(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    raw = end.join([b"event: greeting", b"data: a", b"data: b", b"", b"data:c", b"", b""])
    assert events_of(raw) == [SseEvent("greeting", "a\nb"), SseEvent("message", "c")]


def test_comments_ids_and_retries_are_no_part_of_an_event() -> None:
    assert events_of(b": hello\nid: 7\nretry: 10\ndata: x\n\n") == [SseEvent("message", "x")]


def test_the_id_to_go_on_from_is_that_of_the_last_whole_event() -> None:
    parser = SseParser()
    list(parser.feed(b"id: 1\ndata: x\n\nid: 2\ndata: y\n"))
    assert parser.last_id == "1"
    list(parser.feed(b"\ndata: without\n\n"))
    assert parser.last_id == "2"
    list(parser.feed(b"id: 3\n\nid: a\0b\n\n"))
    assert parser.last_id == "3"


def test_the_time_to_wait_is_told_in_milliseconds() -> None:
    parser = SseParser()
    assert parser.retry is None
    list(parser.feed(b"retry: 1500\nretry: soon\nretry: -1\nretry: 9999999999999\n\n"))
    assert parser.retry == 1.5


def test_the_limit_can_be_another() -> None:
    with pytest.raises(UpstreamError, match=says("io.http.sse.SseParser._lines", _limit=10)):
        list(SseParser(limit=10).feed(b"data: 12345678\n\n"))


def test_lines_of_nothing_count_too() -> None:
    with pytest.raises(UpstreamError, match=says("io.http.sse.SseParser._lines", _limit=10)):
        list(SseParser(limit=10).feed(b"data:\n" * 12))


def test_an_event_without_data_is_none_and_its_kind_is_forgotten() -> None:
    assert events_of(b"event: ping\n\ndata: x\n\n") == [SseEvent("message", "x")]


def test_an_unfinished_event_is_not_told() -> None:
    assert events_of(b"data: x\n") == []


def test_only_one_space_is_taken_from_the_value() -> None:
    assert events_of(b"data:  x\ndata\n\n") == [SseEvent("message", " x\n")]


def test_a_byte_order_mark_is_skipped_at_the_beginning_only() -> None:
    bom = b"\xef\xbb\xbf"
    assert events_of(bom + b"data: x\n\n" + bom + b"data: y\n\n") == [SseEvent("message", "x")]


def test_an_event_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 100)
    with pytest.raises(UpstreamError, match=says("io.http.sse.SseParser._lines", _limit=100)):
        events_of(*[b"data: 0123456789\n"] * 20)


LINES = st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]), max_size=12)
EVENTS = st.lists(st.tuples(st.sampled_from(["message", "delta", "é"]), st.lists(LINES, min_size=1, max_size=3)))


@given(events=EVENTS, ends=st.randoms(use_true_random=False), cuts=st.lists(st.integers(0, 400)))
def test_what_was_written_is_read_wherever_the_bytes_are_split(
    events: list[tuple[str, list[str]]], ends: random.Random, cuts: list[int]
) -> None:
    lines: list[str] = []
    for kind, data in events:
        lines += [f"event: {kind}", ": note", *[f"data: {line}" for line in data], ""]
    # A line that ends in CR followed by an empty one that ends in LF would be read as one CRLF.
    end = ends.choice(["\n", "\r", "\r\n"])
    raw = "".join(line + end for line in lines).encode()
    places = sorted({0, len(raw), *[cut for cut in cuts if cut < len(raw)]})
    pieces = [raw[start:stop] for start, stop in pairwise(places)]
    expected = [SseEvent(kind, "\n".join(data)) for kind, data in events]
    assert events_of(*pieces) == expected
    assert events_of(*[raw[i : i + 1] for i in range(len(raw))]) == expected
