"""A terminal that is slow, stopped or gone: no part of the answer gets lost, and nothing is left half-written."""

from __future__ import annotations

import errno
import os
import select
import termios
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest
from support.waiting import PATIENCE

from callboard.cli.render.markdown.stream import MarkdownStream
from callboard.cli.render.markdown.terminal import LiveText, TerminalWriter
from callboard.cli.render.markdown.theme import Theme

TEXT = "".join(f"line {number:05} of the answer\n\n" for number in range(8_000))


@pytest.fixture
def master() -> Iterator[int]:
    """The side of a terminal that shows; see `slave`."""
    master, slave = os.openpty()
    pty[master] = slave
    yield master
    os.close(master)


pty: dict[int, int] = {}


@pytest.fixture
def slave(master: int) -> Iterator[TextIO]:
    """The side of a terminal to write to, which does not block."""
    os.set_blocking(pty[master], False)
    with os.fdopen(pty.pop(master), "w", encoding="utf-8") as stream:
        yield stream


def live(stream: TextIO) -> LiveText:
    return LiveText(stream, lambda columns: MarkdownStream(columns, Theme()), {}, size=lambda: (80, 24))


def seen(master: int) -> bytes:
    """What has come to the terminal."""
    got = b""
    while select.select([master], [], [], 0.5)[0]:
        got += os.read(master, 4096)
    return got


def reader(master: int, until: bytes, after: float = 0.1) -> tuple[threading.Thread, bytearray]:
    got = bytearray()

    def read() -> None:
        time.sleep(after)
        while until not in got:
            got.extend(os.read(master, 4096))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, got


def test_a_terminal_that_takes_only_a_part_gets_the_rest_once_it_has_room(master: int, slave: TextIO) -> None:
    thread, got = reader(master, b"line 07999")
    shown = live(slave)
    shown.add(TEXT)
    shown.end()
    thread.join(PATIENCE)
    assert not shown.broken
    assert [number for number in range(8_000) if b"line %05d" % number not in got] == []


def test_what_others_have_left_in_the_stream_stands_before(master: int, slave: TextIO) -> None:
    thread, got = reader(master, b"answer", after=0)
    slave.write("before ")
    TerminalWriter(slave).write("answer")
    thread.join(PATIENCE)
    assert bytes(got) == b"before answer"


def test_a_stopped_terminal_holds_no_picture_up_and_gets_it_later(master: int, slave: TextIO) -> None:
    os.set_blocking(slave.fileno(), True)  # as terminals are
    shown = live(slave)
    termios.tcflow(slave.fileno(), termios.TCOOFF)  # Ctrl-S
    shown.add("some ")
    shown.draw()
    shown.add("words")
    shown.draw()
    assert shown.wants_drawing
    termios.tcflow(slave.fileno(), termios.TCOON)
    shown.draw()
    assert not shown.wants_drawing
    assert b"some words" in seen(master)
    shown.end()


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "no"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_write_that_is_broken_off_leaves_the_terminal_as_it_was(
    master: int, slave: TextIO, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    real, faults = os.write, [fault]

    def half(file: int, data: memoryview) -> int:
        if faults:
            real(file, data[: len(data) // 2])
            raise faults.pop()
        return real(file, data)

    shown = live(slave)
    shown.add("some words\n\nand more")
    monkeypatch.setattr(os, "write", half)
    if isinstance(fault, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            shown.draw()
    else:
        shown.draw()
        assert shown.broken
    written = seen(master)
    assert written.startswith(b"\x1b[?2026h")
    assert written.endswith(b"\x18\x1b[?7h\x1b[?2026l\x1b[0m\x1b[?25h")
