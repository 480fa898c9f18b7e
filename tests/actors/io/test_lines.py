"""Lines for a reader that is slow, stands still or goes away."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable

import pytest
import trio
import trio.testing
from support.messages import says

from callboard.actors.io import lines as module
from callboard.actors.io.lines import from_any_thread, line_writer


def test_lines_arrive_in_order() -> None:
    receiver, sender = os.pipe()
    with os.fdopen(sender, "w") as stream:
        lines = line_writer(stream)
        for number in range(100):
            lines.put(f"{number}\n")
        lines.finish()
    with os.fdopen(receiver) as reader:
        assert reader.read() == "".join(f"{number}\n" for number in range(100))


def test_a_reader_that_stands_still_holds_up_nobody() -> None:
    receiver, sender = os.pipe()
    with os.fdopen(sender, "w") as stream:
        lines = line_writer(stream)
        for _ in range(50):
            lines.put("x" * 65536)  # a pipe holds one of these
        lines.finish(timeout=0.05)
        assert lines.error is None
        os.close(receiver)


def test_a_reader_that_is_too_far_behind_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100_000)
    receiver, sender = os.pipe()
    with os.fdopen(sender, "w") as stream:
        lines = line_writer(stream)
        for _ in range(5):
            lines.put("x" * 65536)
        with pytest.raises(OSError, match=says("io.lines.ThreadedLines.put")):
            lines.finish()
        os.close(receiver)


def test_what_is_written_no_longer_counts_as_behind_however_the_threads_take_turns() -> None:
    class Short(str):  # its bytes give way to the other thread while they are counted
        def encode(self, *_: str) -> bytes:
            return Slow(super().encode())

    class Slow(bytes):
        def __len__(self) -> int:
            time.sleep(0)
            return super().__len__()

    stream = io.StringIO()
    lines = line_writer(stream)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20_000):
            lines.put(Short("0123456789"))
        lines.finish()
    finally:
        sys.setswitchinterval(before)
    assert stream.tell() == 200_000
    assert lines.behind == 0


def test_a_reader_that_went_away_is_a_broken_pipe() -> None:
    receiver, sender = os.pipe()
    os.close(receiver)
    with os.fdopen(sender, "w") as stream:
        lines = line_writer(stream)
        lines.put("x\n")
        with pytest.raises(BrokenPipeError):
            lines.finish()


def test_a_stream_without_a_descriptor_will_do() -> None:
    stream = io.StringIO()
    lines = line_writer(stream)
    lines.put("a\n")
    lines.finish()
    assert stream.getvalue() == "a\n"


def test_a_reader_that_goes_as_all_is_over_disturbs_nobody() -> None:
    called: list[str] = []

    async def main() -> Callable[[], None]:
        tell = from_any_thread(lambda: called.append("in time"))
        tell()
        await trio.testing.wait_all_tasks_blocked()
        return from_any_thread(lambda: called.append("too late"))

    trio.run(main)()
    assert called == ["in time"]
