"""An interactive bash in a terminal of its own, and a person who types into it and answers what programs ask."""

from __future__ import annotations

import os
import pty
import re
import signal
import termios
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import trio
from support.waiting import PATIENCE, READING

_PROMPT = "first hour, ended with $? > "
_ENDED = re.compile(r"first hour, ended with (\d+) > \Z")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>()][0-9A-B]?)")


class Ended(NamedTuple):
    """How a command ended, and what the terminal showed meanwhile, without escape sequences."""

    code: int
    shown: str


class Shell:
    """Use it as an async context manager; on the way out Ctrl-C and the end of the terminal end what is left in it."""

    def __init__(self, environ: dict[str, str], cwd: Path) -> None:
        self._environ = {**environ, "PS1": _PROMPT, "PROMPT_COMMAND": "", "TERM": "xterm", "HISTFILE": "/dev/null"}
        self._cwd = cwd
        self._text = ""

    async def __aenter__(self) -> Self:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, 230))
        self._bash = await trio.lowlevel.open_process(
            ["/bin/bash", "--norc", "--noprofile", "--noediting", "-i"],
            env=self._environ,
            cwd=self._cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=partial(os.login_tty, os.dup(slave)),
        )
        os.close(slave)
        await self._until(_ENDED, PATIENCE)
        self._text = ""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with trio.move_on_after(PATIENCE, shield=True):
            await self._leave()
        if self._bash.returncode is None:
            os.killpg(self._bash.pid, signal.SIGKILL)
            with trio.move_on_after(PATIENCE, shield=True):
                await self._bash.wait()
        os.close(self._master)

    async def run(self, line: str, answers: Sequence[tuple[str, str]] = (), *, within: float = PATIENCE) -> Ended:
        """Type a command, answer what it asks, and return when the prompt is back.

        Args:
            answers: what is asked, as regular expressions in the order asked, each with the keys to press.
            within: seconds.
        """
        self.begin(line)
        left = list(answers)
        read = 0
        with trio.move_on_after(within):
            while not _ENDED.search(self.shown()):
                if left and (found := re.compile(left[0][0]).search(self.shown(), read)):
                    read = found.end()
                    await trio.sleep(READING)
                    self.press(left.pop(0)[1])
                await self._read()
        shown = self.shown()
        code = _ENDED.search(shown)
        assert code is not None, f"{line}\nhas not ended within {within} s, but shown:\n{shown}"
        self._text = ""
        return Ended(int(code[1]), shown.split("\r\n", 1)[-1][: -len(code[0])])

    def begin(self, line: str) -> None:
        """Type a command."""
        self.press(line + "\n")

    async def shows(self, pattern: str, *, within: float = PATIENCE) -> str:
        """Wait until the terminal shows it; returns what it shows."""
        return await self._until(re.compile(pattern), within)

    async def prompt(self) -> Ended:
        """Wait for the prompt."""
        shown = await self._until(_ENDED, PATIENCE)
        self._text = ""
        code = _ENDED.search(shown)
        assert code is not None
        return Ended(int(code[1]), shown)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def shown(self) -> str:
        """What the terminal has shown since the last command."""
        return _ESCAPES.sub("", self._text)

    async def _leave(self) -> None:
        """Press Ctrl-C, again if that is not enough (a server lets its runs end first), and then Ctrl-D."""
        self._text = ""
        while not _ENDED.search(self.shown()):
            self.press("\x03")
            with trio.move_on_after(10):
                while not _ENDED.search(self.shown()):
                    await self._read()
        self.press("\x04")
        await self._bash.wait()

    async def _until(self, pattern: re.Pattern[str], within: float) -> str:
        with trio.move_on_after(within):
            while not pattern.search(self.shown()):
                await self._read()
            return self.shown()
        raise AssertionError(f"{pattern.pattern} is not shown within {within} s, but:\n{self.shown()}")

    async def _read(self) -> None:
        await trio.lowlevel.wait_readable(self._master)
        self._text += os.read(self._master, 65536).decode(errors="replace")
