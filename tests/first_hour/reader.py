"""A reader of a page, who types what it says, line by line."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from first_hour.pages import Command
from first_hour.scenes import Row, Scene
from first_hour.shell import Ended, Shell
from support.waiting import READING


class Reader:
    """Reads one page, in one terminal, and opens another for each command that goes on."""

    def __init__(self, page: str, scene: Scene, environ: dict[str, str], cwd: Path, stack: AsyncExitStack) -> None:
        self._page = page
        self._scene = scene
        self._environ = environ
        self._cwd = cwd
        self._stack = stack
        self._instead: dict[str, str] = {}
        self._shell: Shell | None = None
        self._sourced: list[str] = []

    async def set_up(self) -> None:
        """Open the terminal, and do what the page takes for granted."""
        self._shell = await self._stack.enter_async_context(Shell(self._environ, self._cwd))
        for line in self._scene.before:
            ended = await self._shell.run(line)
            assert ended.code == 0, f"{self._page}, before: {line}\n{ended.shown}"

    async def do(self, command: Command) -> None:
        """Run a command, and hold what it shows against the page."""
        assert self._shell is not None
        row = self._row(command.text)
        if row.skip:
            return
        line = self._typed(command.text)
        where = f"{self._page}:{command.line}: {line}"
        if row.serves:
            other = await self._stack.enter_async_context(Shell(self._environ, self._cwd))
            for again in self._sourced:
                await other.run(again)
            other.begin(line)
            await other.shows(self._typed(row.serves))
            await self._then(command.text)
            return
        ended = (
            await self._interactive(line, row)
            if row.interactive
            else await self._shell.run(line, row.answers, within=row.within)
        )
        if line.startswith("source "):
            self._sourced.append(line)
        assert row.interactive or ended.code == row.code, f"{where}\nended with {ended.code}\n{ended.shown}"
        assert re.search(self._typed(row.shows), ended.shown), f"{where}\ndoes not show {row.shows}\n{ended.shown}"
        assert "Traceback" not in ended.shown, f"{where}\n{ended.shown}"
        for name, pattern in self._scene.learns.items():
            if found := re.search(pattern, ended.shown):
                self._instead.setdefault(name, found[1])

    async def _then(self, text: str) -> None:
        assert self._shell is not None
        for begin, line in self._scene.then.items():
            if text.startswith(begin):
                ended = await self._shell.run(line)
                assert ended.code == 0, f"{self._page}, after {text}: {line}\n{ended.shown}"

    async def _interactive(self, line: str, row: Row) -> Ended:
        assert self._shell is not None
        self._shell.begin(line)
        await self._shell.shows(self._typed(row.shows))
        await trio.sleep(READING)
        self._shell.press(row.interactive)
        return await self._shell.prompt()

    def _row(self, text: str) -> Row:
        fitting = [begin for begin in self._scene.rows if text.startswith(begin)]
        return self._scene.rows[max(fitting, key=len)] if fitting else Row()

    def _typed(self, text: str) -> str:
        for name, instead in self._instead.items():
            text = text.replace(name, instead)
        return text
