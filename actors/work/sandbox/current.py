"""The sandbox of the run that we work in, and how a process of it is held.

    held = await sandboxed(me, "fs_tool", writes=[output], shows=[file.parent])
    process = await start_process(me, argv, confinement=held)

There is none where the user wants none. The code that starts a process
says what that needs by its nature: the file that it leaves its result in, the directory of its own program. Servers are
shared by runs, so how one is held is a part of what it is shared by.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from .place import WITHIN, Beyond, Nature, Place

if TYPE_CHECKING:
    from pathlib import Path

    from ....supervisors import Actor
    from .held import Held
    from .of_run import Sandbox

T = TypeVar("T")

MOST_ATTEMPTS = 6
"""Times that a process is started, each but the first after a person has let it do more."""


current: ContextVar[Sandbox | None] = ContextVar("callboard_sandbox", default=None)
"""For all that works below the run."""


async def sandboxed(
    me: Actor,
    name: str,
    *,
    writes: Sequence[str | os.PathLike[str]] = (),
    shows: Sequence[str | os.PathLike[str]] = (),
    file: Path | None = None,
    beyond: Beyond = WITHIN,
) -> Held | None:
    """How a process of the tool, or of the script, of this name is held that `me` is about to start; None if it is not.

    Args:
        writes, shows: what it writes and reads by its nature.
        file: its program's text, or the directory of its programs, which may name variables that it has.
        beyond: what a person lets it do.

    Raises:
        ProcessError: it would have to be held, and can't be.
    """
    sandbox = current.get()
    if sandbox is None:
        return None
    return await sandbox.held(me, Nature(name=name, writes=writes, shows=shows, file=file, beyond=beyond))


async def played(
    me: Actor,
    attempt: Callable[[Beyond], Awaitable[tuple[T, Held | None]]],
    said: Callable[[T], str | None],
) -> tuple[T, str]:
    """What a process comes to, which is started again when it fails for its sandbox alone and a person lets it do more.

    Args:
        attempt: starts it once, told what it may do beyond; what it came to, and how it was held.
        said: what it has printed if it has failed; None if it has not.

    Returns:
        What the last attempt came to, and what the model is to know of its sandbox, "" for nothing.
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


def sandboxed_server(name: str, words: Sequence[str] = ()) -> Place | None:
    """How the process of the MCP server of this name is held; None if it is not.

    Args:
        words: of its entry in the user's own file, whose paths are meant for it.
    """
    sandbox = current.get()
    return None if sandbox is None else sandbox.of_server(name, words)
