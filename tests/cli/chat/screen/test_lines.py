"""The chat on a terminal that has lines alone: what a line answers, and what the terminal echoes."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any, TextIO

import pytest
from prompt_toolkit.input.vt100 import Vt100Input
from support.waiting import PATIENCE, POLL

from callboard.cli.chat.screen import lines as module
from callboard.cli.chat.screen.lines import LineScreen
from callboard.cli.chat.screen.surface import TerminalOutput
from callboard.cli.chat.screen.threaded import WaitingHandler
from callboard.cli.render.keyboard import READING
from callboard.protocol.kernel.questions import Question


class Person(WaitingHandler):
    """Who leads, and remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = True
        self.sent: list[tuple[str, str]] = []
        self.interrupts = 0

    def entered(self, shown: str, text: str) -> None:
        self.sent.append((shown, text))

    def interrupt(self) -> None:
        self.interrupts += 1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(POLL)


class Lines:
    """A screen on a terminal whose other end is here."""

    def __init__(self, terminal: TextIO, master: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.person = Person()
        self.answers: list[object] = []
        self.read = 0
        self._fd, self._master = terminal.fileno(), master
        output = TerminalOutput(terminal, colours=False, draws=False)
        self.screen = LineScreen(Vt100Input(terminal), output, clock=lambda: self.now)
        self.screen.handler = self.person
        monkeypatch.setattr(module, "read", self._noted)

    def ask(self, **how: Any) -> Callable[[], None]:
        """Asks, and shows it; what withdraws it."""
        question = Question(id="q", actor="", text="Well", **how)
        asking = self.screen.questions.add(question, "agent", self.answers.append)
        return lambda: self.screen.questions.remove(asking)

    async def types(self, keys: str) -> None:
        """Type, and wait until the screen has read the line, if it is a whole one."""
        expected = self.read + keys.count("\n")
        os.write(self._master, keys.encode())
        await asyncio.sleep(0.1)  # a part of a line is read with its end, or is dropped before
        await until(lambda: self.read >= expected)

    def _noted(self, file: int, most: int) -> bytes:
        data = os.read(file, most)
        self.read += data.count(b"\n")
        return data

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    master, slave = os.openpty()
    with ExitStack() as stack:
        stack.callback(os.close, master)
        text = stack.enter_context(os.fdopen(slave, "w", buffering=1))
        monkeypatch.setattr(sys, "__stdout__", text)
        yield Lines(text, master, monkeypatch)


def played(lines: Lines, body: Callable[[], Awaitable[None]]) -> None:
    """Runs the screen and the body."""

    async def play() -> None:
        run = asyncio.create_task(lines.screen.run())
        await asyncio.sleep(0.02)
        await body()
        lines.screen.leave()
        assert await asyncio.wait_for(run, PATIENCE) == 0

    asyncio.run(play())


def test_what_was_typed_before_a_question_could_be_read_is_no_answer_to_it(lines: Lines) -> None:
    async def body() -> None:
        await lines.types("half a line")
        lines.ask(kind="confirm")
        lines.screen.draw()
        await lines.types("yes\n")  # at once
        assert lines.answers == []
        lines.now += READING + 0.01
        await lines.types("\n")
        assert lines.answers == []
        await lines.types("1\n")
        assert lines.answers == ["yes"]
        assert lines.person.sent == []

    played(lines, body)


def test_a_line_that_comes_between_a_question_and_its_text_is_text(lines: Lines) -> None:
    async def body() -> None:
        lines.ask(kind="confirm")
        lines.screen._line("yes")
        assert lines.answers == []
        assert lines.person.sent == [("yes", "yes")]

    played(lines, body)


def test_a_secret_question_that_is_withdrawn_has_the_terminal_echo_again(lines: Lines) -> None:
    async def body() -> None:
        withdraw = lines.ask(secret=True)
        lines.screen.draw()
        assert not lines.echoes
        await lines.types("s3cr")
        withdraw()
        lines.screen.draw()
        assert lines.echoes
        await lines.types("\nnext\n")
        assert lines.person.sent == [("next", "next")]

    played(lines, body)
    assert lines.echoes


def test_leaving_in_the_middle_of_a_secret_has_the_terminal_echo_again(lines: Lines) -> None:
    async def body() -> None:
        lines.ask(secret=True)
        lines.screen.draw()
        assert not lines.echoes

    played(lines, body)
    assert lines.echoes


def test_a_text_between_fences_is_one_line_and_a_question_waits_for_its_end(lines: Lines) -> None:
    async def body() -> None:
        await lines.types(":::\n")
        await lines.types("one\n")
        lines.ask(kind="confirm")
        lines.screen.draw()
        lines.now += READING + 0.01
        await lines.types("\n")
        await lines.types("1\n")
        assert lines.person.sent == []
        await lines.types("two :::\n")
        assert lines.person.sent == [(":::\none\n\n1\ntwo :::", ":::\none\n\n1\ntwo :::")]
        lines.screen.draw()
        lines.now += READING + 0.01
        await lines.types("2\n")
        assert lines.answers == ["no"]

    played(lines, body)


def test_ctrl_c_drops_a_text_that_was_begun_with_a_fence(lines: Lines) -> None:
    async def body() -> None:
        await lines.types("::: one\n")
        lines.person.busy = False
        lines.screen.control_c()
        await lines.types("two\n")
        assert lines.person.sent == [("two", "two")]

    played(lines, body)


def test_ctrl_c_interrupts_and_a_second_one_soon_after_leaves(lines: Lines) -> None:
    async def body() -> None:
        lines.screen.control_c()
        assert lines.person.interrupts == 1
        lines.now += 3
        lines.person.busy = False
        lines.screen.control_c()  # says how to leave
        lines.person.busy = True
        lines.screen.control_c()
        assert lines.person.interrupts == 2
        await lines.types("another\n")
        lines.screen.control_c()  # for this line, though the last one was just before
        assert lines.person.interrupts == 3
        assert not lines.screen._left.done()
        lines.screen.control_c()
        assert lines.screen._left.done()

    played(lines, body)
