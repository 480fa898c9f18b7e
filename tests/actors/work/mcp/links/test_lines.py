"""Lines are the same however they come in pieces, and none beyond the limit is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.work.mcp.links.stdio import ENDLESS, JUNK, LONGEST, LineSplitter, LineTooLong

PIECES = st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\x00", b"\n")), max_size=30)


@given(PIECES, st.integers(1, 20))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes], limit: int) -> None:
    lines = LineSplitter(limit)
    got = [line for piece in pieces for line in lines.feed(piece)]
    whole = b"".join(pieces).split(b"\n")[:-1]
    assert len(got) == len(whole)
    for line, expected in zip(got, whole, strict=True):
        if isinstance(line, LineTooLong):
            assert line.size == len(expected)
            assert len(expected) >= limit
        else:
            assert line.removesuffix(b"\n") == expected
            assert len(expected) <= limit


@pytest.mark.parametrize(
    ("begin", "end", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"text":"', b'"}}', 7),
        (b'{"id": 8, "jsonrpc": "2.0", "result": {"text": "', b'"}}', 8),
        (b'{"result":{"text":"', b'"},"jsonrpc":"2.0","id":9}', 9),
        (b'{"result":{"text":"', b'"},"id":10,"jsonrpc":"2.0"}', 10),
        (b'{"result":{"id":11,"text":"', b'"}}', None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"text":"', b'"}}', None),
        (b'{"jsonrpc":"2.0","id":12,"method":"x","params":{"text":"', b'"}}', None),  # its own id, not ours
        (b'{"method":"x","params":{"text":"', b'"},"jsonrpc":"2.0","id":13}', None),
    ],
)
@pytest.mark.parametrize("piece", [1000, 100_000])
def test_the_id_of_a_line_that_is_too_long_is_found(begin: bytes, end: bytes, id: int | None, piece: int) -> None:
    data = begin + b"x" * 5000 + end + b"\n"
    lines = LineSplitter(1000)
    got = [line for at in range(0, len(data), piece) for line in lines.feed(data[at : at + piece])]
    [line] = got
    assert isinstance(line, LineTooLong)
    assert line.id == id
    assert line.size == len(data) - 1


@pytest.mark.parametrize(
    ("limit", "begin", "most"), [(100, b"x", JUNK), (100, b"{", LONGEST), (2 * LONGEST, b"{", ENDLESS * 2 * LONGEST)]
)
def test_a_line_has_no_end_when_it_is_far_too_long_and_sooner_if_it_is_no_message(
    limit: int, begin: bytes, most: int
) -> None:
    lines, piece = LineSplitter(limit), bytes(16 * 1024 * 1024)
    assert lines.feed(begin) == []
    size = len(begin)
    while size < most:
        assert not lines.endless
        more = piece[: most - size]
        assert lines.feed(more) == []
        size += len(more)
    assert not lines.endless
    lines.feed(b"x")
    assert lines.endless
    assert lines.beginning.startswith(begin)
    lines.feed(b"\n")
    assert not lines.endless
