"""What a run takes from the directory that it works in, and from its user's own: instructions, skills, servers.

What of a workspace counts, `trust` decides. Where something is there that does not count, the run says so in one line
(`problem`). What an agent is told (`Told`) is one value of a run, so that a cassette has it.
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
from .skills import tool as skill_words
from .skills.found import FoundSkill, Skills
from .told import Told, ToldSkill, Wish
from .trust.offered import HOOKS, OF_HOOKS, SERVERS
from .trust.trusted import offers, workspace_of

if TYPE_CHECKING:
    from ...protocol.hooks import HookTable
    from .tools.tool import Arguments, Tool

MOST_NAMED = 5


class Workspace:
    """See the module. Reads files when it is made.

    Args:
        here: the run's directory.
        config_dir: the user's own.
        instructions, skills: whether these are wanted at all.

    Attributes:
        here: as given.
        skills: the skills that there are.
        servers: the MCP servers of the workspace.
        hooks: the hooks of its files, in their order.
        problems: what its files have wrong with them.
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
        self.skills = Skills(self._trusted, config_dir, environ) if skills else None
        self.problems += [] if self.skills is None else self.skills.broken
        self.servers = self._servers()
        self.hooks = self._hooks()

    @property
    def root(self) -> Path:
        """Where the workspace begins; the run's directory if it is in none."""
        return self.here if self._trusted is None else self._trusted.root

    def _hooks(self) -> list[HookTable]:
        """The hooks of its files: none, if one of the files that belong to them is not what was trusted."""
        trusted = self._trusted
        if trusted is None or not trusted.is_trusted:
            return []
        files = [trusted.root / name for name in HOOKS if (trusted.root / name).is_file()]
        if not files:
            return []
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

    def told(self, wish: Wish) -> Told:
        """What who has this wish is told."""
        blocks = []
        if wish.instructions:
            blocks.append(written.block(self._written, self.here))
        found: dict[str, FoundSkill] = {}
        if self.skills is not None:
            found = skill_words.chosen(self.skills, wish.skills)
            if wish.tells:
                blocks.append(skill_words.block(list(found.values()), wish.words))
        return Told(
            blocks=tuple(block for block in blocks if block),
            skills=tuple(ToldSkill(name=name, allows=each.skill.allows) for name, each in found.items()),
            below=wish.instructions and self._instructs and self._trusted is not None and self._trusted.is_trusted,
        )

    def entered(self, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """The instructions of a directory that a call works in and that this conversation was not told of; "" for none.

        Reads files.
        """
        trusted = self._trusted
        assert trusted is not None
        path = arguments.get(tool.subject)
        if not isinstance(path, str) or not path or "\0" in path:
            return ""
        place = Path(os.path.realpath(self.here / path))
        found = written.on_the_way(trusted, self.here, place if place.is_dir() else place.parent)
        return "\n\n".join(written.note(each) for each in found if not _was_told(written.marks(each.file), said))

    def all_problems(self) -> list[Problem]:
        """What its files have wrong with them, and what of them does not count."""
        left = self.problem()
        return [*self.problems, *(() if left is None else (left,))]

    def problem(self) -> Problem | None:
        """What is there that does not count, and how to change that; None if all counts."""
        trusted = self._trusted
        if trusted is None or trusted.is_refused:
            return None
        if not trusted.is_trusted:
            there = offers(trusted, self.here)
            what = f"{there}: not used (callboard trust --show shows it, callboard trust has it used)"
            code = "untrusted_directory"
        else:
            there = ", ".join(list(trusted.passed_over)[:MOST_NAMED])
            more = len(trusted.passed_over) - MOST_NAMED
            what = f"{there}{f' and {more} more' if more > 0 else ''}: not used, for it is not what you have trusted"
            what += " (callboard trust --show)"
            code = "changed_since_trusted"
        if not there:
            return None
        return Problem(severity="warning", file=str(trusted.root), code=code, message=what)


def _filled(server: Server, environ: Mapping[str, str]) -> Server:
    """A server of `.mcp.json` with the variables that it names. Secrets of the vault are not for it."""

    def put(text: str) -> str:
        return of_environment(text, environ, lambda reference, name: None)  # noqa: ARG005 - it is empty then

    plain = Server(name=server.name, type=server.type)
    return msgspec.structs.replace(
        server,
        trust=plain.trust,  # what it may do unasked, its own file does not say
        sampling=plain.sampling,
        labels=(),
        warm=False,
        command=put(server.command),
        args=tuple(map(put, server.args)),
        url=put(server.url),
        env={name: put(value) for name, value in server.env.items()},
        headers={name: put(value) for name, value in server.headers.items()},
    )


def _was_told(mark: str, said: Sequence[Turn]) -> bool:
    for turn in said:
        if isinstance(turn, ToolTurn):
            content = turn.content
            texts = [content] if isinstance(content, str) else [p.text for p in content if isinstance(p, TextPart)]
            if any(mark in text for text in texts):
                return True
    return False
