"""Workspace of a run: instructions, skills, servers and hooks from its directory and from the user's own.

`trust` decides which files of a workspace are used. If there are unused files, the run reports it in one line
(`problem`). The directory prompt of an agent (`OpeningInstructions`) is a single value, so that a cassette can store
it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.chat import TextPart, ToolTurn, Turn
from ...protocol.mcp.config import McpConfig, Server
from ...protocol.problems import Problem
from ...protocol.references import of_environment
from . import instructions as written
from .opening_instructions import ListedSkill, OpeningInstructions, Wish
from .skills import tool as skill_words
from .skills.discovery import FoundSkill, FoundSkills
from .trust import HOOKS, OF_HOOKS, SERVERS, Trusted, offers, record_of, workspace_of

if TYPE_CHECKING:
    from ...protocol.hooks import HookTable
    from .tools.tool import Arguments, Tool

MOST_NAMED = 5


class Workspace:
    """Files of a run's workspace. The constructor reads files and blocks.

    Args:
        here: the run's directory.
        config_dir: the user's own directory.
        instructions, skills: load these at all.

    Attributes:
        here: the run's directory.
        skills: the available skills.
        servers: the MCP servers of the workspace.
        hooks: the hooks of its files, in order.
        problems: errors in its files.
    """

    def __init__(
        self, here: Path, config_dir: Path, environ: Mapping[str, str], *, instructions: bool, skills: bool
    ) -> None:
        self.here = here
        self._environ = environ
        self._trusted = workspace_of(here, environ)
        self._written: list[written.Instructions] = []
        self._instructs = instructions
        self.problems: list[Problem] = []
        if instructions:
            if self._trusted is not None:
                self._written += written.of_workspace(self._trusted, here)
            self._written += written.of_user(config_dir)
        self.skills = FoundSkills(self._trusted, config_dir, environ) if skills else None
        self.problems += [] if self.skills is None else self.skills.broken
        self.servers = self._servers()
        self.hooks = self._hooks()

    @property
    def root(self) -> Path:
        """Root of the workspace; the run's directory if it is in none."""
        return self.here if self._trusted is None else self._trusted.root

    def _hooks(self) -> list[HookTable]:
        """Return the hooks of its files; none if a file that belongs to them has changed since it was trusted."""
        trusted = self._trusted
        if trusted is None or not trusted.is_trusted:
            return []
        files = [trusted.root / name for name in HOOKS if (trusted.root / name).is_file()]
        if not files:
            return []
        # Hooks run these scripts, so a changed script disables all hooks, as a changed hook file does.
        scripts = [path for folder in OF_HOOKS for path in (trusted.root / folder).rglob("*") if path.is_file()]
        texts = {path: trusted.text(path) for path in [*files, *scripts]}
        if any(text is None for text in texts.values()):
            return []
        from ...protocol.hooks import read_hooks

        found: list[HookTable] = []
        for file in files:
            table, problems = read_hooks(texts[file] or "", str(file))
            self.problems += problems
            found.append(table)
        return found

    def _servers(self) -> tuple[Server, ...]:
        trusted = self._trusted
        text = None if trusted is None else trusted.text(trusted.root / SERVERS)
        if text is None:
            return ()
        from ...protocol.mcp.read_config import read_mcp

        assert trusted is not None
        read: McpConfig = read_mcp(text, str(trusted.root / SERVERS))
        self.problems += read.problems
        return tuple(_filled(server, self._environ) for server in read.servers.values())

    def opening_instructions(self, wish: Wish) -> OpeningInstructions:
        """Return the directory prompt for these options."""
        blocks = []
        if wish.instructions:
            blocks.append(written.block(self._written, self.here))
        found: dict[str, FoundSkill] = {}
        if self.skills is not None:
            found = skill_words.chosen(self.skills, wish.skills)
            if wish.tells:
                blocks.append(skill_words.block(list(found.values()), wish.words))
        return OpeningInstructions(
            blocks=tuple(block for block in blocks if block),
            skills=tuple(ListedSkill(name=name, allows=each.skill.allows) for name, each in found.items()),
            below=wish.instructions and self._instructs and self._trusted is not None and self._trusted.is_trusted,
        )

    def entered(self, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """Return the instructions of a directory that a call works in; "" for none.

        Files that this conversation already has are left out. Reads files.
        """
        trusted = self._trusted
        assert trusted is not None
        path = arguments.get(tool.subject)
        # A null byte would make `realpath` raise ValueError.
        if not isinstance(path, str) or not path or "\0" in path:
            return ""
        place = Path(os.path.realpath(self.here / path))
        found = written.on_the_way(trusted, self.here, place if place.is_dir() else place.parent)
        return "\n\n".join(written.note(each) for each in found if not _has_mark(written.marks(each.file), said))

    def all_problems(self) -> list[Problem]:
        """Return the errors in its files, and the report about unused files."""
        left = self.problem()
        return [*self.problems, *(() if left is None else (left,))]

    def problem(self) -> Problem | None:
        """Return the report about unused files, and how to use them; None if all files are used."""
        return None if self._trusted is None else _problem_of(self._trusted, self.here)


def unused(root: Path, here: Path, environ: Mapping[str, str]) -> Problem | None:
    """Return the warning of runs about unused files, for front ends that ask the user about them otherwise."""
    return _problem_of(Trusted(root, record_of(root, environ)), here)


def _problem_of(trusted: Trusted, here: Path) -> Problem | None:
    if trusted.is_refused:
        return None
    if not trusted.is_trusted:
        there = offers(trusted, here)
        what = f"{there}: not loaded until you trust this directory (callboard trust; --show lists it first)"
        code = "untrusted_directory"
    else:
        there = ", ".join(list(trusted.passed_over)[:MOST_NAMED])
        more = len(trusted.passed_over) - MOST_NAMED
        what = f"{there}{f' and {more} more' if more > 0 else ''}: not loaded, changed since you trusted it"
        what += " (callboard trust --show)"
        code = "changed_since_trusted"
    if not there:
        return None
    return Problem(severity="warning", file=str(trusted.root), code=code, message=what)


def _filled(server: Server, environ: Mapping[str, str]) -> Server:
    """Return a server of `.mcp.json` with environment variables inserted.

    Secrets of the vault are not available to it.
    """

    def put(text: str) -> str:
        return of_environment(text, environ, lambda reference, name: None)  # noqa: ARG005 - unset variables are empty

    plain = Server(name=server.name, type=server.type)
    return msgspec.structs.replace(
        server,
        trust=plain.trust,  # a server's own file may not grant it trust
        sampling=plain.sampling,
        labels=(),
        warm=False,
        command=put(server.command),
        args=tuple(map(put, server.args)),
        url=put(server.url),
        env={name: put(value) for name, value in server.env.items()},
        headers={name: put(value) for name, value in server.headers.items()},
    )


def _has_mark(mark: str, said: Sequence[Turn]) -> bool:
    for turn in said:
        # Searched in the turns instead of remembered, so that resumed conversations need no other state.
        if isinstance(turn, ToolTurn):
            content = turn.content
            texts = [content] if isinstance(content, str) else [p.text for p in content if isinstance(p, TextPart)]
            if any(mark in text for text in texts):
                return True
    return False
