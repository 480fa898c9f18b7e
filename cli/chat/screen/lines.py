"""Chat on a terminal without cursor control (`TERM=dumb`): settled lines are printed, whole lines are read.

The terminal retains its modes, and edits and echoes typed text. While a question is open, the next line answers the
oldest one, by the number of an option or by text. A line begun before the question could be read is dropped
(`render.keyboard`). A text that begins with `:::` is sent when it is complete; a question that arrives meanwhile is
asked after it. Ctrl-C, a signal in this mode, interrupts; a second one soon after leaves.
"""

from __future__ import annotations

import asyncio
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from os import read

from ....protocol.control.chat import FENCE, is_open
from ....protocol.kernel.questions import Question, understood
from ...render.choices import Value
from ...render.keyboard import READING, drop_pending
from .application import LEAVES, ChatScreen
from .field import DirectoryHistory
from .questions import ScreenQuestion


class LineScreen(ChatScreen):
    """Chat screen that prints and reads lines."""

    _ready = _prompting = _hidden = False
    _left: asyncio.Future[int]
    _readable_from = 0.0  # earliest time at which a line can answer the question
    _fenced = ""  # lines so far of an incomplete `:::` text

    async def run(self) -> int:
        """Run until the user leaves; return the exit code."""
        self._left = asyncio.get_running_loop().create_future()
        self._read(True)
        animation = asyncio.create_task(self._animate())
        self._shown()
        try:
            return await self._left
        finally:
            animation.cancel()
            self._read(False)
            self._hide(False)
            self.draw()
            if self._prompting:
                self._write("\n")

    def configure(self, *, vi: bool, history: DirectoryHistory) -> None:
        """Do nothing: the terminal edits lines itself."""

    def prompts(self, left: str, right: str) -> None:
        """Set the left prompt; there is no room for the right one."""
        self.left, self.right, self._ready = left, right, True
        self.wake()

    def leave(self, code: int = 0) -> None:
        if not self._left.done():
            self._left.set_result(code)

    def resized(self) -> None:
        """Do nothing: nothing is redrawn."""

    def continued(self) -> None:
        """Do nothing: this screen does not change the terminal's modes."""

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Give the terminal to another program for the duration of the block."""
        self.draw()
        self._read(False)
        self._hide(False)
        self.questions.hidden()
        try:
            yield
        finally:
            self._read(True)
            self.wake()

    def draw(self) -> None:
        """Print settled lines, then an open question, or the prompt if nothing works."""
        asking = self.questions.open[0] if self.questions.open and not self._fenced else None
        new = asking is not None and self.questions.focused is not asking
        if self._hidden and self.questions.focused is None:  # the question was withdrawn
            self._hide(False)
        self._write_final(new=new)
        if asking is not None:
            if new:
                self._ask(asking)
            self._prompt("  > ")
        elif self._fenced:
            self._prompt("  ")
        elif self._ready and not self.handler.busy and not self._left.done():
            self._prompt(self.left)

    def _ask(self, asking: ScreenQuestion) -> None:
        """Print the options of a question, below its text; from now on it can be read."""
        drop_pending(self._source.fileno())
        self.questions.focused = asking
        self._write("".join(f"  {at}. {text}\n" for at, text in enumerate(_options(asking.question), 1)))
        self._hide(asking.question.secret)
        self._readable_from = self._clock() + READING

    def _write_final(self, *, new: bool = False) -> None:
        """Print settled lines on rows of their own. `new`: more output follows below."""
        lines = self.handler.settled()
        if lines or new:
            self._write(("\n" if self._prompting else "") + "".join(f"{line}\n" for line in lines))
            self._prompting = False

    def _prompt(self, text: str) -> None:
        if not self._prompting:
            self._write(text)
            self._prompting = True

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is closed, which the next read reports
            sys.__stdout__.write(text)  # type: ignore[union-attr]  # never None at a terminal
            sys.__stdout__.flush()  # type: ignore[union-attr]  # likewise

    # --- lines ----------------------------------------------------------------------------------------------

    def _read(self, wanted: bool) -> None:
        loop, fd = asyncio.get_running_loop(), self._source.fileno()
        if wanted:
            loop.add_reader(fd, self._readable, fd)
        else:
            loop.remove_reader(fd)

    def _readable(self, fd: int) -> None:
        try:
            data = read(fd, 65536)
        except OSError:
            data = b""
        self._prompting = self._prompting and not data
        if not data:
            self._read(False)
            self.handler.leave()
        for line in data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else ():
            self._line(line)
        self.wake()

    def _line(self, line: str) -> None:
        asking = self.questions.focused
        if asking is not None and self._clock() < self._readable_from:
            self._readable_from = self._clock() + READING
            self._write("  (ignored: typed before the question was displayed)\n")
        elif asking is not None and not line.strip() and _has_no_default(asking.question):
            self._write("  (answer by a number, or by an option)\n")
        elif asking is not None:
            self._hide(False)
            self.questions.remove(asking)
            asking.answered(_answer(asking.question, line))
        elif is_open(text := self._fenced + line):
            if not self._fenced:
                self._write(f"  ({FENCE} ends the text)\n")
            self._fenced = f"{text}\n"
        elif text.strip():
            self._fenced = ""
            self._write_final()
            self._interrupted = float("-inf")  # the next Ctrl-C refers to this line
            self.handler.entered(text, text.strip())
            self.handler.settled()  # discard the echo of the line, which the terminal has printed

    def control_c(self) -> None:
        """Interrupt; a second Ctrl-C soon after leaves. Otherwise drop an incomplete text, or print how to leave."""
        now = self._clock()
        if now - self._interrupted < LEAVES:
            self.leave()
            return
        self._write("\n")  # the terminal has echoed the key and dropped the line
        self._prompting = False
        begun, self._fenced = self._fenced, ""
        if self.handler.busy:
            self._interrupted = now
            self.handler.interrupt()
        elif not begun:
            self._write("(To leave, press Ctrl-D or type .exit)\n")
        self.wake()

    def _hide(self, wanted: bool) -> None:
        """Switch the terminal's echo off or on. Switching it on drops typed input."""
        if wanted == self._hidden:
            return
        self._hidden = wanted
        fd = self._source.fileno()
        with suppress(termios.error):  # the terminal is closed
            modes = termios.tcgetattr(fd)
            modes[3] = modes[3] & ~termios.ECHO if wanted else modes[3] | termios.ECHO
            termios.tcsetattr(fd, termios.TCSANOW if wanted else termios.TCSAFLUSH, modes)


def _options(question: Question) -> tuple[str, ...]:
    return ("yes", "no") if question.kind == "confirm" else tuple(question.options)


def _has_no_default(question: Question) -> bool:
    return question.kind in ("confirm", "choice") and question.default is None


def _answer(question: Question, line: str) -> Value:
    """Parse the line as an answer: option numbers, or text."""
    options, text = _options(question), line.strip()
    words = text.replace(",", " ").split()
    if words and all(word.isdecimal() and 0 < int(word) <= len(options) for word in words):
        chosen = [options[int(word) - 1] for word in words]
        if question.kind == "checkbox":
            return chosen
        if len(chosen) == 1:
            return chosen[0]
    return understood(question, text)
