"""One key at a terminal, which is as it was before whatever ends the waiting."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator

import click
import pytest
from support.screen import Screen
from support.waiting import PATIENCE

from callboard.cli.render.keyboard import read_key


@pytest.fixture
def after(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Does something in a thread once keys count, and checks at the end that the terminal is as it was."""
    modes, threads, read = screen.modes(), [], os.read
    reading = threading.Event()

    def noted(file: int, most: int) -> bytes:
        if file == screen.slave:  # what was typed before is thrown away by now
            reading.set()
            # A signal that came right before a blocking read would be handled after it.
            while not select.select([file], [], [], 0.05)[0]:
                pass
        return read(file, most)

    def later(act: Callable[[], None]) -> None:
        def wait_and_act() -> None:
            assert reading.wait(PATIENCE)
            act()

        reading.clear()
        threads.append(threading.Thread(target=wait_and_act))
        threads[-1].start()

    monkeypatch.setattr(os, "read", noted)

    yield later
    for thread in threads:
        thread.join()
    assert screen.modes() == modes


After = Callable[[Callable[[], None]], None]


@pytest.mark.parametrize(
    ("pressed", "key"), [("e", "e"), ("\r", "\n"), ("\n", "\n"), ("ü", "ü"), ("\x1b[A", ""), ("\x1b", ""), ("\x1a", "")]
)
def test_a_key(screen: Screen, after: After, pressed: str, key: str) -> None:
    after(lambda: screen.press(pressed))
    assert read_key(screen.slave) == key


def test_what_was_typed_before_is_thrown_away(screen: Screen, after: After) -> None:
    screen.press("yyy\n")
    after(lambda: screen.press("q"))
    assert read_key(screen.slave) == "q"


def test_ctrl_c_and_ctrl_d_are_what_they_are_elsewhere(screen: Screen, after: After) -> None:
    after(lambda: screen.press("\x03"))
    with pytest.raises(KeyboardInterrupt):
        read_key(screen.slave)
    after(lambda: screen.press("\x04"))
    with pytest.raises(EOFError):
        read_key(screen.slave)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back_first(screen: Screen, after: After, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    after(lambda: os.kill(os.getpid(), number))
    with pytest.raises(click.exceptions.Exit) as ended:
        read_key(screen.slave)
    assert ended.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
