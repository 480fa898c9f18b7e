"""Workspace of a run: instructions, skills, servers and hooks from its directory and from the user's own.

`trust` decides which files of a workspace are used. If there are unused files, the run reports it in one line
(`problem`). The directory prompt of an agent (`OpeningInstructions`) is a single value, so that a cassette can store
it. `AroundCalls` applies skill permissions and AGENTS.md files to the tool calls of one conversation.

Instructions by users for the agents that work in a directory are in AGENTS.md:

    <config>/AGENTS.md          the user's own, for all directories
    ./AGENTS.md, ../AGENTS.md   from the directory of the run up to the root of its repository, nearest first

In a directory without AGENTS.md, its CLAUDE.md is used. `@path` in a file imports another file of the workspace, once,
up to `trust.DEEPEST_IMPORT` levels. An agent gets the texts in its system prompt. The files of a directory further down
are appended to a tool's result, when a tool of the agent first works there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ...protocol.chat import TextPart, ToolTurn, Turn
from ...protocol.environment import of_environment
from ...protocol.mcp.config import McpConfig, Server
from ...protocol.permissions import Permissions as Rules
from ...protocol.problems import Problem
from .opening_instructions import ListedSkill, OpeningInstructions, Wish
from .playback import OutsideEffect, done
from .skills import FoundSkill, FoundSkills, chosen, narrowed
from .skills import block as skills_block
from .trust import (
    DEEPEST_IMPORT,
    HOOKS,
    INSTRUCTIONS,
    MOST_IMPORTS,
    OF_HOOKS,
    SERVERS,
    Trusted,
    imported_in,
    levels,
    offers,
    record_of,
    workspace_of,
)

if TYPE_CHECKING:
    from ...protocol.hooks import HookTable
    from ...supervisors import Actor
    from .tools.tool import Arguments, Tool


MOST_NAMED = 5


class Workspace:
    """Files of a run's workspace. The constructor reads files and blocks.

    Args:
        here: the run's directory.
        config_dir: the user's own directory.
        instructions, skills: False to load none of these.

    Attributes:
        here: the run's directory.
        skills: the available skills; None if they are not loaded.
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
        self._written: list[Instructions] = []
        self._instructs = instructions
        self.problems: list[Problem] = []
        if instructions:
            if self._trusted is not None:
                self._written += of_workspace(self._trusted, here)
            self._written += of_user(config_dir)
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
        from ...protocol.mcp.config import read_mcp

        assert trusted is not None
        read: McpConfig = read_mcp(text, str(trusted.root / SERVERS))
        self.problems += read.problems
        return tuple(_filled(server, self._environ) for server in read.servers.values())

    def opening_instructions(self, wish: Wish) -> OpeningInstructions:
        """Return the directory prompt for these options."""
        blocks = []
        if wish.instructions:
            blocks.append(instructions_block(self._written, self.here))
        found: dict[str, FoundSkill] = {}
        if self.skills is not None:
            found = chosen(self.skills, wish.skills)
            if wish.tells:
                blocks.append(skills_block(list(found.values()), wish.words))
        return OpeningInstructions(
            blocks=tuple(block for block in blocks if block),
            skills=tuple(ListedSkill(name=name, allows=each.skill.allows) for name, each in found.items()),
            below=wish.instructions and self._instructs and self._trusted is not None and self._trusted.is_trusted,
        )

    def entered(self, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """Return the instructions of a call's directory, and of those between it and the run's directory; "" for none.

        Files whose instructions are already in a tool result of the conversation are left out. Blocks: reads files.
        """
        trusted = self._trusted
        assert trusted is not None
        path = arguments.get(tool.subject)
        # A null byte would make `realpath` raise ValueError.
        if not isinstance(path, str) or not path or "\0" in path:
            return ""
        place = Path(os.path.realpath(self.here / path))
        found = on_the_way(trusted, self.here, place if place.is_dir() else place.parent)
        return "\n\n".join(note(each) for each in found if not _has_mark(marks(each.file), said))

    def all_problems(self) -> list[Problem]:
        """Return the errors in its files, and the report about unused files."""
        left = self.problem()
        return [*self.problems, *(() if left is None else (left,))]

    def problem(self) -> Problem | None:
        """Return the report about unused files, and how to use them; None if all are used, or the user refused them."""
        return None if self._trusted is None else _problem_of(self._trusted, self.here)


def unused(root: Path, here: Path, environ: Mapping[str, str]) -> Problem | None:
    """Return the warning of runs that files are not loaded because the user has not decided about the workspace.

    None if the user has trusted or refused it, or if it has no such files. For front ends that ask the user otherwise.
    """
    return _problem_of(Trusted(root, record_of(root, environ)), here)


def _problem_of(trusted: Trusted, here: Path) -> Problem | None:
    if trusted.is_refused:
        return None
    if not trusted.is_trusted:
        there = offers(trusted, here)
        what = (
            f"{there}: not loaded, because this directory is not trusted (callboard trust --show lists the "
            "files, callboard trust loads them)"
        )
        code = "untrusted_directory"
    else:
        there = ", ".join(list(trusted.passed_over)[:MOST_NAMED])
        more = len(trusted.passed_over) - MOST_NAMED
        what = (
            f"{there}{f' and {more} more' if more > 0 else ''}: not loaded, because of changes since you trusted "
            "this directory"
        )
        what += " (review them: callboard trust --show)"
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


class AroundCalls:
    """Workspace policy of one conversation; implements `tools.calls.Around`.

    Args:
        workspace: None in a run that is replayed from a record.
        told: the instructions at the start of the conversation.
    """

    def __init__(self, workspace: Workspace | None, told: OpeningInstructions) -> None:
        self._workspace = workspace
        self._told = told

    def narrowed(self, said: Sequence[Turn]) -> Rules:
        """Return the permissions of the skill that the conversation follows now; empty if it follows none."""
        return narrowed(self._told.skills, said)

    async def entered(self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """Return the instructions that `Workspace.entered` finds for a call; "" for none.

        Only a tool whose subject is a path gets any. A replay returns the recorded text.
        """
        if not self._told.below or tool.subject != "path":
            return ""
        workspace = self._workspace
        entered = _nothing if workspace is None else workspace.entered
        find = partial(trio.to_thread.run_sync, entered, tool, arguments, said)
        # `done` records the text, so that a replay does not depend on the files.
        return await done(me, OutsideEffect("instructions", tool.name, arguments), str, find)


def _nothing(tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
    del tool, arguments, said
    return ""


# --- AGENTS.md

LARGEST_FILE = 40_000
"""Most characters of one file that agents get."""

LARGEST = 100_000
"""Most characters of all files together."""

_HEAD = """\
## Instructions for this directory
The people who work in {here} have written down how it is done here. What the user says, and what stands above, goes \
before it; of two of these files the one that comes first."""

_FOUND = "[{file} has instructions for agents that work there:]\n{text}"


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """Text of one file, with its imports.

    Attributes:
        file: name of the file in messages.
    """

    file: str
    text: str


def of_user(config_dir: Path) -> list[Instructions]:
    """Return the instructions in AGENTS.md of the user's configuration directory; empty without text in it. Blocks."""
    file = config_dir / INSTRUCTIONS[0]
    try:
        with file.open("rb") as opened:
            # A character has at most 4 bytes in UTF-8.
            text = opened.read(LARGEST_FILE * 4).decode("utf-8-sig", "replace").strip()
    except OSError:
        return []
    return [Instructions(file=str(file), text=_shortened(text, str(file)))] if text else []


def of_workspace(trusted: Trusted, directory: Path) -> list[Instructions]:
    """Return the trusted instructions for a directory of a workspace, nearest first.

    A file that would exceed `LARGEST` characters in total is left out.
    """
    return _bounded(_of(trusted, place) for place in levels(directory, trusted.root))


def on_the_way(trusted: Trusted, directory: Path, to: Path) -> list[Instructions]:
    """Return the instructions of directories between the run's and `to`, which is further down.

    The directory nearest to `to` comes first.
    """
    above = set(levels(directory, trusted.root))
    places = [place for place in levels(to, trusted.root) if place not in above]
    return _bounded(_of(trusted, place) for place in places)


def instructions_block(found: Iterable[Instructions], here: Path) -> str:
    """Return the section of the system prompt; "" without instructions."""
    parts = [f"### {each.file}\n{each.text}" for each in found]
    return "\n\n".join([_HEAD.format(here=here), *parts]) if parts else ""


def note(found: Instructions) -> str:
    """Return the text to append to a tool's result when a call enters a directory with instructions."""
    return _FOUND.format(file=found.file, text=found.text)


def marks(file: str) -> str:
    """Return the start of a file's `note`, which shows that a conversation already has the file."""
    return _FOUND.partition("{text}")[0].format(file=file)


def _of(trusted: Trusted, place: Path) -> Instructions | None:
    for name in INSTRUCTIONS:
        file = place / name
        if not file.is_file():
            continue
        text = trusted.text(file)
        if text is None or not text.strip():
            return None
        parts = [text.strip(), *_imported(trusted, file, text)]
        shown = os.path.relpath(file, trusted.root)
        return Instructions(file=shown, text=_shortened("\n\n".join(parts), shown))
    return None


def _imported(trusted: Trusted, file: Path, text: str) -> list[str]:
    """Return the texts of all files that a text imports, directly or indirectly, each once."""
    found: dict[Path, str] = {}
    todo = [(file, text, 0)]
    while todo and len(found) < MOST_IMPORTS:
        # Breadth first: if there are too many imports, the direct ones are used.
        whose, said, depth = todo.pop(0)
        for name in imported_in(said) if depth < DEEPEST_IMPORT else ():
            other = Path(os.path.normpath(whose.parent / name))
            if other == file or other in found:
                continue
            inner = trusted.text(other)
            if inner is not None:
                found[other] = f"From {os.path.relpath(other, trusted.root)}:\n{inner.strip()}"
                todo.append((other, inner, depth + 1))
    return list(found.values())


def _bounded(found: Iterable[Instructions | None]) -> list[Instructions]:
    """Return the files in order, without the ones that exceed the total limit."""
    kept: list[Instructions] = []
    left = LARGEST
    for each in found:
        if each is not None and len(each.text) <= left:
            kept.append(each)
            left -= len(each.text)
    return kept


def _shortened(text: str, file: str) -> str:
    if len(text) <= LARGEST_FILE:
        return text
    return f"{text[:LARGEST_FILE]}\n[... {file} goes on for {len(text) - LARGEST_FILE} more characters, left out here]"
