"""Sandbox of the current run, in a context variable, and the entry points for code that starts processes.

    held = await sandboxed(me, "fs_tool", writes=[output], shows=[file.parent])
    process = await start_process(me, argv, confinement=held)

The variable is None if the user disables the sandbox. The caller names the paths that the process needs by its nature:
its result file, or the directory of its program. MCP servers are shared by runs, so their sandbox rules are part of the
key that they are shared by.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from .place import WITHIN, Beyond, Nature, SandboxPlace

if TYPE_CHECKING:
    from pathlib import Path

    from ....supervisors import Actor
    from .held import HeldProcess
    from .of_run import Sandbox

T = TypeVar("T")

MOST_ATTEMPTS = 6
"""Starts of one process at most; each start after the first follows a grant by the user."""


current: ContextVar[Sandbox | None] = ContextVar("callboard_sandbox", default=None)
"""Sandbox of the run, for all code that the run executes."""


async def sandboxed(
    me: Actor,
    name: str,
    *,
    writes: Sequence[str | os.PathLike[str]] = (),
    shows: Sequence[str | os.PathLike[str]] = (),
    file: Path | None = None,
    beyond: Beyond = WITHIN,
) -> HeldProcess | None:
    """Return the confinement for a tool's or script's process that `me` is about to start; None without a sandbox.

    Args:
        writes, shows: paths that the process writes and reads by its nature.
        file: the program's text, or the directory of its programs, which may name variables that it needs.
        beyond: grants of the user.

    Raises:
        ProcessError: the process needs a sandbox, and none works.
    """
    sandbox = current.get()
    if sandbox is None:
        return None
    return await sandbox.held(me, Nature(name=name, writes=writes, shows=shows, file=file, beyond=beyond))


async def played(
    me: Actor,
    attempt: Callable[[Beyond], Awaitable[tuple[T, HeldProcess | None]]],
    said: Callable[[T], str | None],
) -> tuple[T, str]:
    """Run a process, and run it again if only the sandbox made it fail and the user grants more.

    Args:
        attempt: runs the process once with the given grants; returns its result and its confinement.
        said: returns the output of a failed process, and None for a successful one.

    Returns:
        The result of the last attempt, and a note on the sandbox for the model, "" for none.
    """
    beyond = WITHIN
    for _ in range(MOST_ATTEMPTS):
        result, held = await attempt(beyond)
        text = said(result)
        if held is None or text is None:
            return result, ""
        more, note = await held.afterwards(me, text)
        if more is None:
            return result, note
        beyond = Beyond(writes=(*beyond.writes, *more.writes), network=beyond.network or more.network)
    return result, note


def sandboxed_server(name: str, words: Sequence[str] = ()) -> SandboxPlace | None:
    """Return the sandbox rules for the process of the named MCP server; None without a sandbox.

    Args:
        words: words of its entry in the user's own file; the server may use the paths among them.
    """
    sandbox = current.get()
    return None if sandbox is None else sandbox.of_server(name, words)
