"""A window with a program in it, for tests that wait with trio: keys by tmux's names, the screen by pyte.

It takes the part of `Tmux` where nothing depends on what a terminal does with rows when its size changes. The program
is a fork of one that has imported most of it (see starter.py), so it begins in a third of the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import trio
from qa.terminal import Terminal

from support.waiting import PATIENCE

_KEYS = {"Enter": "\r", "Escape": "\x1b", "Tab": "\t", "Up": "\x1b[A", "Down": "\x1b[B"}
_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "COVERAGE_PROCESS_START")


class Window:
    """See the module.

    Args:
        columns, rows: its size.
    """

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self._size = columns, rows
        self._terminal: Terminal

    def start(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Runs `callboard` with these arguments."""
        columns, rows = self._size
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._terminal = Terminal(
            arguments,
            {**kept, **environment},
            Path.cwd(),
            columns=columns,
            rows=rows,
        )

    @property
    def pid(self) -> int:
        """The program's."""
        return self._terminal.pid

    @property
    def raw(self) -> str:
        """All that the program has sent so far."""
        self._terminal.rows()
        return self._terminal.raw

    def lines(self) -> list[str]:
        """Scrollback and screen."""
        lines = self._terminal.rows()
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def press(self, *keys: str) -> None:
        """Presses keys: `Enter`, `C-c`, `M-a`; everything else is text."""
        for key in keys:
            if key[:2] == "C-" and len(key) == 3:
                key = chr(ord(key[2]) & 0x1F)
            elif key[:2] == "M-" and len(key) == 3:
                key = f"\x1b{key[2]}"
            self._terminal.press(_KEYS.get(key, key))

    async def shows(self, text: str) -> None:
        """Waits until it is shown."""
        await self._until(lambda: text in "\n".join(self.lines()), text)

    async def until(self, seen: Callable[[list[str]], bool]) -> None:
        """Waits until its lines are as they should be."""
        await self._until(lambda: seen(self.lines()), "what should be")

    async def gone(self, text: str) -> None:
        """Waits until it is shown no more."""
        await self._until(lambda: text not in "\n".join(self.lines()), f"no {text}")

    async def ended(self) -> int:
        """The exit code of the program, once it has ended."""
        return await trio.to_thread.run_sync(self._terminal.ended)

    async def leave(self) -> int:
        """Presses Ctrl-D; the exit code of the program.

        A chat refuses to end until it has heard of the end of a turn, whose text is on the screen before that.
        """
        presses = 0
        with trio.move_on_after(PATIENCE):
            while self._terminal.alive:
                if presses <= "\n".join(self.lines()).count("wait until it has finished, or interrupt it"):
                    presses += 1
                    self.press("C-d")
                await trio.sleep(0.1)
        return await self.ended()

    def close(self) -> None:
        """Ends the program if it has not."""
        if hasattr(self, "_terminal"):
            self._terminal.close()

    async def _until(self, seen: Callable[[], bool], what: str) -> None:
        with trio.move_on_after(PATIENCE):
            while not seen():
                await trio.sleep(0.02)
            return
        raise AssertionError(f"{what!r} is not shown:\n" + "\n".join(self.lines()))
