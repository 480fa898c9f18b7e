"""The sandbox of the run that we work in, and how a process of it is held.

    held = await sandboxed(me, "fs_tool", writes=[output], shows=[file.parent])
    process = await start_process(me, argv, confinement=held)

There is none where the user wants none, and then nothing else of this room is imported. The code that starts a process
says what that needs by its nature: the file that it leaves its result in, the directory of its own program. Servers are
shared by runs, so how one is held is a part of what it is shared by.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from ....supervisors import Actor
    from .of_run import Sandbox
    from .place import Held, Place

T = TypeVar("T")

MOST_ATTEMPTS = 5
"""Times that a process is started again, each after a person has let it do more."""

current: ContextVar[Sandbox | None] = ContextVar("callboard_sandbox", default=None)
"""For all that works below the run."""


async def sandboxed(
    me: Actor,
    name: str,
    *,
    writes: Sequence[str | os.PathLike[str]] = (),
    shows: Sequence[str | os.PathLike[str]] = (),
    file: Path | None = None,
) -> Held | None:
    """How a process of the tool, or of the script, of this name is held that `me` is about to start; None if it is not.

    Args:
        writes, shows: what it writes and reads by its nature.
        file: its program's text, which may name variables that it has.

    Raises:
        ProcessError: it would have to be held, and can't be.
    """
    sandbox = current.get()
    if sandbox is None:
        return None
    return await sandbox.held(me, name, writes=writes, shows=shows, file=file)


async def played(
    me: Actor,
    attempt: Callable[[Sequence[str]], Awaitable[tuple[T, Held | None]]],
    said: Callable[[T], str | None],
) -> tuple[T, str]:
    """What a process comes to, which is started again when it fails for its sandbox alone and a person lets it do more.

    Args:
        attempt: starts it once, told what it may write besides; what it came to, and how it was held.
        said: what it has printed if it has failed; None if it has not.

    Returns:
        What the last attempt came to, and what the model is to know of its sandbox, "" for nothing.
    """
    writes: tuple[str, ...] = ()
    while True:
        result, held = await attempt(writes)
        text = said(result)
        if held is None or text is None:
            return result, ""
        after = await held.afterwards(me, text)
        if not after.writes or len(writes) == MOST_ATTEMPTS:
            return result, after.note
        writes = (*writes, *after.writes)


def sandboxed_server(name: str) -> Place | None:
    """How the process of the MCP server of this name is held; None if it is not."""
    sandbox = current.get()
    return None if sandbox is None else sandbox.of_server(name)
