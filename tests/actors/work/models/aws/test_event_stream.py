"""AWS's binary messages: cut wherever they are, and never taken if a bit was changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.aws_messages import message
from support.messages import says

from callboard.actors.work.models.aws.bedrock import EventStreamMessage, EventStreamParser
from callboard.protocol.errors import UpstreamError

PUBLISHED = (
    b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json"
    b"{'foo':'bar'}\x8d\x9c\x08\xb1"
)
EMPTY = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2H\xeb}\x98\xc8\xff"


def read(data: bytes, size: int) -> list[EventStreamMessage]:
    parser = EventStreamParser()
    return [found for start in range(0, len(data), size) for found in parser.feed(data[start : start + size])]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_messages_are_read_wherever_they_are_cut(size: int) -> None:
    data = PUBLISHED + EMPTY + message({":event-type": "größe"}, b"{}")
    assert read(data, size) == [
        EventStreamMessage({"content-type": "application/json"}, b"{'foo':'bar'}"),
        EventStreamMessage({}, b""),
        EventStreamMessage({":event-type": "größe"}, b"{}"),
    ]


def test_headers_that_are_no_texts_are_passed_over() -> None:
    others = (
        b"\x00",
        b"\x01",
        b"\x02a",
        b"\x03ab",
        b"\x04abcd",
        b"\x05" + b"a" * 8,
        b"\x06\x00\x02ab",
        b"\x08" + b"a" * 8,
    )
    raw = b"".join(b"\x01x" + each for each in (*others, b"\x09" + b"a" * 16)) + b"\x01y\x07\x00\x02ok"
    assert read(message(raw, b""), 1000) == [EventStreamMessage({"y": "ok"}, b"")]


@pytest.mark.parametrize(
    "raw", [b"\x05ab", b"\x01x", b"\x01x\x0a", b"\x01x\x07\x00", b"\x01x\x07\x00\x09ab", b"\x01\xff\x00"]
)
def test_headers_that_make_no_sense_are_damage(raw: bytes) -> None:
    with pytest.raises(UpstreamError, match=says("work.models.aws.bedrock._headers.2")):
        read(message(raw, b""), 1000)


@given(st.integers(0, 8 * len(PUBLISHED) - 1))
def test_a_bit_that_was_changed_is_found(bit: int) -> None:
    data = bytearray(PUBLISHED)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(UpstreamError, match="checksum"):
        read(bytes(data), 1000)


def test_lengths_that_cannot_be_are_damage() -> None:
    for total, headers in ((10, 0), (40, 30), (2**31, 0)):
        with pytest.raises(UpstreamError, match=f"a message claims {total} bytes, {headers} of them headers"):
            read(message(b"", b"", total=total, headers_length=headers), 1000)


def test_half_a_message_is_none() -> None:
    assert read(PUBLISHED[:-1], 1000) == []
