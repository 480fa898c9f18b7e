"""The screen's thread and its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TextIO

import pytest
from support.waiting import PATIENCE

from callboard.cli.chat.screen.threaded import ScreenThread, WaitingHandler


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    master, slave = os.openpty()
    with ExitStack() as stack:
        stack.callback(os.close, master)
        yield stack.enter_context(os.fdopen(slave, "w", buffering=1))


def started(terminal: TextIO, ended: Callable[[ScreenThread], None] = lambda _: None) -> ScreenThread:
    thread = ScreenThread(terminal, terminal, ended=lambda: ended(thread))
    thread.start()
    return thread


def test_it_is_over_when_it_says_that_it_has_ended(terminal: TextIO) -> None:
    said: list[bool] = []
    thread = started(terminal, lambda thread: said.append(thread.over))
    assert not thread.over
    thread.finish()
    assert said == [True]


def test_pictures_that_fail_end_it_with_their_error(terminal: TextIO) -> None:
    class Broken(WaitingHandler):
        def rows(self, _columns: int, _room: int) -> list[str]:
            raise ZeroDivisionError("no picture")

    thread = started(terminal)
    try:

        def broken() -> None:
            thread.screen.handler = Broken()
            thread.screen.wake()

        thread.call(broken)
        thread._thread.join(PATIENCE)
        assert thread.over
        assert isinstance(thread.error, ZeroDivisionError)
    finally:
        thread.finish()
