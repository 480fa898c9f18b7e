"""A pseudo-terminal for programs under test."""

from __future__ import annotations

import os
import pty
import re
import termios

import pyte
import trio

from support.waiting import PATIENCE


class Screen:
    """A pseudo-terminal: what is written to it, and keys for whoever reads from it."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.text = ""

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)

    def modes(self) -> int:
        return int(termios.tcgetattr(self.slave)[3]) & (termios.ICANON | termios.ECHO | termios.ISIG)

    async def shows(self, pattern: str) -> None:
        with trio.move_on_after(PATIENCE):
            while not re.search(pattern, self.text):
                await trio.lowlevel.wait_readable(self.master)
                self.text += os.read(self.master, 65536).decode()
            return
        raise AssertionError(f"{pattern!r} is not shown, but {self.text[-2000:]!r}")

    def display(self) -> list[str]:
        """What a terminal of 80 columns and 24 rows shows of it."""
        shown = pyte.Screen(80, 24)
        pyte.Stream(shown).feed(self.text)
        return [line.rstrip() for line in shown.display]

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())
