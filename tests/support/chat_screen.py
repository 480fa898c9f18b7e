"""A chat's screen on a terminal whose other end is a test's: keys go in, and what is shown is read by pyte."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any

import pyte
from prompt_toolkit.input.vt100 import Vt100Input

from callboard.cli.chat.screen.application import ChatScreen
from callboard.cli.chat.screen.questions import CALM, ScreenQuestion
from callboard.cli.chat.screen.surface import TerminalOutput
from callboard.cli.chat.screen.threaded import WaitingHandler
from callboard.protocol.control import chat
from callboard.protocol.kernel.questions import Question
from support.waiting import PATIENCE

WITHIN = PATIENCE


class Person(WaitingHandler):
    """Leads the conversation: keeps what is sent, and offers these completions once `completes` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self.live: list[str] = []
        self.lines: list[str] = []
        self.offered: list[str] = []
        self.completing: list[str] = []
        self.completes = asyncio.Event()
        self.completes.set()

    def entered(self, shown: str, text: str) -> None:
        self.sent.append((shown, text))

    def settled(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def rows(self, _columns: int, _room: int) -> list[str]:
        return self.live

    async def complete(self, text: str) -> list[chat.Completion]:
        self.completing.append(text)
        await self.completes.wait()
        return [chat.Completion(text=each, start=0, about="what it does") for each in self.offered if text in each]


class ScriptedScreen:
    """See the module. `now` is the screen's clock, which stands still."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.now = 100.0
        self.person = Person()
        self.answers: dict[str, object] = {}
        self._size = columns, rows
        self._shown = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._shown)

    def play(self, body: Callable[[], Awaitable[None]]) -> None:
        """Runs the screen and the body."""

        async def play() -> None:
            master, slave = os.openpty()
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, master)
                terminal = stack.enter_context(os.fdopen(slave, "w", buffering=1))
                fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self._size[1], self._size[0], 0, 0))
                self._master = master
                output = TerminalOutput(terminal, colours=False)
                self.screen = ChatScreen(Vt100Input(terminal), output, clock=lambda: self.now)
                self.screen.handler = self.person
                loop = asyncio.get_running_loop()
                loop.add_reader(master, lambda: self._stream.feed(os.read(master, 65536)))
                run = asyncio.create_task(self.screen.run())
                try:
                    await self.until(lambda: ">" in self.display)
                    await body()
                finally:
                    self.screen.leave()
                    try:
                        assert await asyncio.wait_for(run, WITHIN) == 0
                    finally:
                        loop.remove_reader(master)

        asyncio.run(play())

    @property
    def display(self) -> str:
        """What the terminal shows."""
        return "\n".join(line.rstrip() for line in self._shown.display)

    @property
    def line(self) -> str:
        """The input line."""
        return self.screen.field.buffer.text

    @property
    def focused(self) -> str | None:
        """The id of the question that has the keys; "" where that is not shown yet."""
        asking = self.screen.questions.focused
        focused = None if asking is None else asking.question.id
        shown = re.search(r"^> (\[\d+\] )?agent asks: (\w+)\?", self.display, re.MULTILINE)
        return focused if focused == (shown and shown[2]) else ""

    async def ask(self, id: str, **how: Any) -> ScreenQuestion:
        """Asks, and has it drawn."""
        question = Question(id=id, actor="", **{"text": f"{id}?", **how})
        asking = self.screen.questions.add(question, "agent", lambda value: self.answers.__setitem__(id, value))
        await self.until(lambda: asking.since is not None)
        return asking

    async def waits(self) -> None:
        """No key is pressed for a moment, and the screen has looked at what that means."""
        self.now += CALM + 0.01
        self.screen.draw()
        await self.until(lambda: self.focused != "")

    async def press(self, keys: str, then: Callable[[], object]) -> None:
        """Presses keys, and waits for what comes of them."""
        os.write(self._master, keys.encode())
        await self.until(then)

    async def until(self, seen: Callable[[], object]) -> None:
        """Waits until it is so."""
        end = asyncio.get_running_loop().time() + WITHIN
        while not seen():
            assert asyncio.get_running_loop().time() < end, self.display
            await asyncio.sleep(0.005)
