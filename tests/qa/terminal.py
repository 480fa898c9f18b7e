"""A program at a real terminal: a pty, the keys that a person presses, and the screen that a person sees.

    with Terminal(["ask", "hello"], environ, cwd) as terminal:
        terminal.shows("Go on?")
        terminal.press("y")
        assert terminal.ended() == 0

The screen is pyte's, with all that has scrolled off its top. What is waited for is looked for below the *mark*, which
`mark` sets, and `line` before it types. The terminal answers what programs ask of terminals (where the cursor is), so
prompt_toolkit finds itself at home.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyte
from support.starter import CALLBOARD
from support.waiting import PATIENCE, READING

PYTHON = (sys.executable, "-m", "callboard.cli")

WITHIN = PATIENCE
"""Seconds that anything may take."""

ENTER, ESCAPE, TAB = "\r", "\x1b", "\t"
CTRL_C, CTRL_D, CTRL_O, CTRL_U = "\x03", "\x04", "\x0f", "\x15"
DOWN = "\x1b[B"


class Screen(pyte.Screen):  # type: ignore[misc]  # pyte has no types
    """pyte's, with scrollback, and a way back to the program."""

    def __init__(self, columns: int, rows: int, back: int) -> None:
        self.gone: list[str] = []
        self._back = back
        super().__init__(columns, rows)

    def _row(self, number: int) -> str:
        row = self.buffer[number]
        return "".join(row[column].data for column in range(self.columns)).rstrip()

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.gone.append(self._row(0))
        super().index()

    def write_process_input(self, data: str) -> None:
        os.write(self._back, data.encode())

    def rows(self) -> list[str]:
        """Scrollback and screen, down to the last row that is not empty or has the cursor."""
        rows = [*self.gone, *(self._row(number) for number in range(self.lines))]
        while rows and not rows[-1] and len(rows) > self.at() + 1:
            rows.pop()
        return rows

    def at(self) -> int:
        """The cursor's row, counted from the top of the scrollback."""
        return len(self.gone) + int(self.cursor.y)


class Terminal:
    """A program at a terminal of its own; what is left of it ends with the block.

    Args:
        arguments: of `callboard`.
        anew: whether a Python begins with it; else it is a fork (see starter.py).

    Attributes:
        raw: all that the program has sent.
    """

    def __init__(
        self,
        arguments: list[str],
        environ: dict[str, str],
        cwd: Path,
        *,
        columns: int = 120,
        rows: int = 50,
        anew: bool = False,
    ) -> None:
        self.raw = ""
        self._command = [*(PYTHON if anew else CALLBOARD), *arguments]
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (rows, columns))
        self._screen = Screen(columns, rows, self._master)
        self._stream = pyte.ByteStream(self._screen)
        self._stream.select_other_charset("G")
        self._mark = self._raw_mark = 0
        self._open = True
        self._program = self._begun(environ, cwd, slave)
        os.close(slave)

    def _begun(self, environ: dict[str, str], cwd: Path, terminal: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            env=environ,
            cwd=cwd,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            preexec_fn=partial(os.login_tty, terminal),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what a person does

    def press(self, keys: str) -> None:
        """Types keys."""
        os.write(self._master, keys.encode())

    def choose(self, key: str) -> None:
        """Reads what can be chosen, and presses a key."""
        time.sleep(READING)
        self.press(key)

    def line(self, text: str) -> None:
        """Types a line, and looks from here on at what it shows."""
        self.mark()
        self.press(text + ENTER)

    def mark(self) -> None:
        """What is shown so far is not looked at any more."""
        self._read(0)
        self._mark, self._raw_mark = self._screen.at(), len(self.raw)

    # --- what a person sees

    def shown(self) -> str:
        """The rows below the mark."""
        return "\n".join(self._screen.rows()[self._mark :])

    def rows(self) -> list[str]:
        """All rows, with the scrollback."""
        self._read(0)
        return self._screen.rows()

    def sent(self) -> str:
        """What the program has sent since the mark, escape sequences included."""
        return self.raw[self._raw_mark :]

    def prompt(self) -> str:
        """The row of the cursor."""
        return self._screen.rows()[self._screen.at()]

    def shows(self, pattern: str, *, within: float = WITHIN) -> str:
        """Waits until a pattern is shown below the mark; returns all that is."""
        return self._until(lambda: re.search(pattern, self.shown(), re.MULTILINE), f"{pattern!r} is not shown", within)

    def shows_not(self, pattern: str) -> None:
        """What is there now does not have it."""
        self._read(0)
        assert not re.search(pattern, self.shown(), re.MULTILINE), self._picture(f"{pattern!r} is shown")

    def gone(self, text: str, *, within: float = WITHIN) -> str:
        """Waits until a text is not shown below the mark any more; returns what is."""
        return self._until(lambda: text not in self.shown(), f"{text!r} is still shown", within)

    def asks(self, pattern: str, *, within: float = WITHIN) -> str:
        """Waits until the cursor stands in a row that fits the pattern; returns what is shown below the mark."""
        return self._until(lambda: re.search(pattern, self.prompt()), f"the cursor is not at {pattern!r}", within)

    @property
    def is_raw(self) -> bool:
        """Whether the program reads keys itself; while another has the terminal, lines are read and echoed."""
        return not termios.tcgetattr(self._master)[3] & termios.ICANON

    def has_sent(self, pattern: str, *, within: float = WITHIN) -> str:
        """Waits until the program has sent something since the mark, escape sequences included."""
        self._until(lambda: re.search(pattern, self.sent()), f"{pattern!r} is not sent", within)
        return self.sent()

    def sees(self, seen: Callable[[], object], wrong: str, *, within: float = WITHIN) -> None:
        """Waits until something is so that is not on the screen."""
        end = time.monotonic() + within
        while not seen():
            assert time.monotonic() < end, self._picture(wrong)
            self._read(0.02)

    def ended(self, *, within: float = WITHIN) -> int:
        """Waits for the program's end; its exit code."""
        self._until(lambda: not self._open, "the program has not ended", within)
        return self._program.wait()

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self._program.poll() is None

    @property
    def pid(self) -> int:
        return self._program.pid

    # --- inside

    def _until(self, seen: object, wrong: str, within: float) -> str:
        assert callable(seen)
        end = time.monotonic() + within
        while not seen():
            left = end - time.monotonic()
            if left <= 0 or not self._open:
                why = f"within {within:g} s" if self._open else f"and the program has ended: {self._program.wait()}"
                raise AssertionError(self._picture(f"{wrong}, {why}"))
            self._read(left)
        return self.shown()

    def _picture(self, why: str) -> str:
        rows = "\n".join(f"| {row}" for row in self._screen.rows()[-80:])
        return f"{' '.join(self._command[1:])}\n{why}. What is shown since row {self._mark}:\n{rows}"

    def _read(self, within: float) -> None:
        """Takes what has come; waits for the first of it."""
        while self._open and select.select([self._master], [], [], within)[0]:
            within = 0
            try:
                data = os.read(self._master, 65536)
            except OSError:  # Linux says so when the last process has closed the other end
                data = b""
            self._open = bool(data)
            self.raw += data.decode(errors="replace")
            self._stream.feed(data)

    def close(self) -> None:
        """Ends the program as a window does that is closed; whatever does not go by that is killed."""
        try:
            family = [*psutil.Process(self._program.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            family = []
        if self.alive:
            self._program.send_signal(signal.SIGHUP)
            try:
                self._program.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._program.kill()
        self._program.wait()
        _, left = psutil.wait_procs(family, timeout=PATIENCE)
        for process in left:
            process.kill()
        os.close(self._master)
        assert not left, f"left behind: {left}"
