"""Tool files for tests: writes tool files, declares them by hand, and calls them for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.work.tools.declare.declaration import Argument, Declaration, EnvVar, Language
from callboard.actors.work.tools.files.call import file_tool
from callboard.actors.work.tools.files.call_process import CallLimits
from callboard.actors.work.tools.files.environment import Home
from callboard.actors.work.tools.tool import Tool
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Answer, Question
from callboard.supervisors import Actor, Root

LANGUAGES: dict[str, Language] = {".sh": "bash", ".py": "python", ".ts": "typescript", ".js": "typescript"}


class Bench:
    """Tool files in a directory, and a root to call them under.

    Attributes:
        questions: every question that came up to the root.
        answers: what they are answered with, in order; when none is left nobody answers.
        events: of every call.
        home: of the tools.
    """

    def __init__(self, root: Root, directory: Path) -> None:
        self.root = root
        self.directory = directory
        self.questions: list[Question] = []
        self.answers: list[str | list[str]] = []
        self.events: list[Event] = []
        # The interpreter itself comes first: what a version manager puts on the PATH takes ten times as long to start.
        environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(directory)}
        self.home = Home(config_dir=directory / "config", environ=environ, cache=directory / "cache")

    def write(self, name: str, text: str) -> Path:
        """Write a tool file."""
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip("\n"))
        return file

    def declare(
        self,
        file: Path,
        function: str = "main",
        *,
        arguments: Sequence[Argument] = (),
        environment: Sequence[EnvVar] = (),
        names: Sequence[str] = (),
        **more: Any,
    ) -> Declaration:
        """What a reader would say of it, as far as calling it is concerned."""
        properties = {name: {} for name in (*names, *(argument.name for argument in arguments))}
        return Declaration(
            name=more.pop("name", "t"),
            description="",
            parameters={"type": "object", "properties": properties, "required": []},
            file=file,
            function=function,
            line=1,
            language=LANGUAGES[file.suffix],
            arguments=tuple(arguments),
            environment=tuple(environment),
            **more,
        )

    def policy(self, question: Question) -> Any:
        """Answers from `answers`, like a person who has made up their mind."""
        from callboard.supervisors import PASS

        self.questions.append(question)
        return Answer(question=question.id, value=self.answers.pop(0)) if self.answers else PASS

    async def call(
        self,
        declaration: Declaration,
        _arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = 10,
        limits: CallLimits = CallLimits(),  # noqa: B008 - frozen
        home: Home | None = None,
        **arguments: Any,
    ) -> Any:
        """Call it as an actor of its own, as the agent loop does; what the model would be told."""
        tool = file_tool(declaration, home or self.home, timeout=timeout, limits=limits)
        return await self.play(tool, {**(_arguments or {}), **arguments})

    async def play(self, tool: Tool, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool as an actor of its own."""

        async def run(me: Actor) -> Any:
            me.policy = self.policy
            return await tool.run(me, arguments or {})

        ref = self.root.spawn(run, name="t", link=False)
        with self.root.bus.listen(self.events.append):
            return await result_of(ref)

    async def bash(self, text: str, /, *, arguments: Sequence[Argument] = (), **given: Any) -> Any:
        """Write `tools.sh` and call its `main`."""
        return await self.call(self.declare(self.write("tools.sh", text), arguments=arguments), given)

    async def python(self, text: str, /, **given: Any) -> Any:
        """Write `tools.py` and call its `run`."""
        return await self.call(self.declare(self.write("tools.py", text), "run"), given)

    def at_home(self, **changes: Any) -> Home:
        """The home with some of it changed."""
        return msgspec.structs.replace(self.home, **changes)

    @property
    def printed(self) -> list[str]:
        """The lines that calls have printed so far."""
        return [event.data.text for event in self.events if event.kind == "tool.call.delta"]


async def result_of(ref: Any) -> Any:
    """What an actor returned, or raise what it crashed with."""
    from callboard.protocol.errors import ActorFailed

    try:
        return await ref.result()
    except ActorFailed as failed:
        raise failed.__cause__ from None


def option(name: str, **more: Any) -> Argument:
    """`@option --<name>`"""
    return Argument(name=name.replace("-", "_"), kind="option", long=name, **more)


def flag(name: str, **more: Any) -> Argument:
    """`@flag --<name>`"""
    return Argument(name=name.replace("-", "_"), kind="flag", long=name, values=0, **more)


def positional(name: str, **more: Any) -> Argument:
    """`@arg <name>`"""
    return Argument(name=name.replace("-", "_"), kind="positional", long=name, **more)


def can_run() -> bool:
    """Whether there is a tsx, or a node that reads TypeScript by itself. Nothing is fetched for a test."""
    if shutil.which("node") is None:
        return False
    if shutil.which("tsx") is not None:
        return True
    asked = subprocess.run(["node", "-p", "process.features.typescript"], capture_output=True, check=False)
    return asked.stdout.strip() in (b"strip", b"transform")


@cache
def npx_has_tsx() -> bool:
    """Whether `npx tsx` runs without fetching it: a tsx in PATH is not enough, npx looks in its own directories."""
    if shutil.which("npx") is None:
        return False
    return subprocess.run(["npx", "--no-install", "tsx", "--version"], capture_output=True).returncode == 0


needs_typescript = pytest.mark.skipif(not can_run(), reason="needs tsx or node 22.18")
