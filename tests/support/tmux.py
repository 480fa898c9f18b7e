"""A real terminal: tmux on a socket of its own, with one window."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import trio

from support.waiting import PATIENCE

POLL = 0.06
"""Seconds between looks at the window. Each look starts a program, which takes 5 ms of processor time."""


class Tmux:
    """`tmux` of a size, in which one program runs; it has no configuration, and ends with the test.

    Args:
        columns, rows: its size.
        directory: for its socket.
    """

    def __init__(self, columns: int, rows: int, directory: Path) -> None:
        self._tmux = [
            str(shutil.which("tmux")),
            "-S",
            str(directory / f"tmux-{uuid.uuid4().hex[:8]}"),
            "-f",
            "/dev/null",
        ]
        self._size = ["-x", str(columns), "-y", str(rows)]
        self._done = directory / f"done-{uuid.uuid4().hex[:8]}"

    def start(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Runs the program; its exit code is in `code` when it has ended."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        program = shlex.join(["env", "-u", "NO_COLOR", *settings, *arguments])
        script = f"{program}; echo $? > {self._done}.new; mv {self._done}.new {self._done}; exec sleep 1000"
        outer = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
        subprocess.run([*self._tmux, "new-session", "-d", *self._size, script], check=True, env=outer)
        self._command("set-option", "-g", "history-limit", "50000")

    def _command(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout

    def screen(self) -> list[str]:
        """The rows of the screen."""
        return [line.rstrip() for line in self._command("capture-pane", "-p").split("\n")]

    def lines(self) -> list[str]:
        """Scrollback and screen; lines that the terminal has broken are put together."""
        lines = [line.rstrip() for line in self._command("capture-pane", "-p", "-J", "-S", "-").split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def styled(self) -> str:
        """Scrollback and screen with colours."""
        return self._command("capture-pane", "-p", "-e", "-S", "-")

    def cursor(self) -> tuple[int, bool]:
        """Its column, and whether it can be seen."""
        column, shown = self._command("display-message", "-p", "#{cursor_x} #{cursor_flag}").split()
        return int(column), shown == "1"

    def press(self, *keys: str) -> None:
        self._command("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Pastes it, bracketed where the program has asked for that."""
        file = self._done.with_suffix(".paste")
        file.write_text(text)
        self._command("load-buffer", str(file))
        self._command("paste-buffer", "-p", "-d")

    def resize(self, columns: int, rows: int) -> None:
        self._command("resize-window", "-x", str(columns), "-y", str(rows))

    async def shows(self, text: str) -> None:
        """Waits until it is shown."""
        await self.until(lambda lines: text in "\n".join(lines))

    async def until(self, seen: Callable[[list[str]], bool]) -> None:
        """Waits until its lines are as they should be."""
        with trio.move_on_after(PATIENCE):
            while not seen(self.lines()):
                await trio.sleep(POLL)
            return
        raise AssertionError("what should be is not shown:\n" + "\n".join(self.lines()))

    async def ended(self) -> int:
        """The exit code of the program, once it has ended."""
        with trio.fail_after(PATIENCE):
            while not self._done.exists():
                await trio.sleep(0.02)
        return int(self._done.read_text())

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
