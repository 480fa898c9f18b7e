"""The sandbox of the run that we work in, and how a process of it is held.

    process = await start_process(me, argv, confinement=sandboxed("fs_tool", writes=[output], shows=[file.parent]))

There is none where the user wants none, and then nothing else of this room is imported. The code that starts a process
says what that needs by its nature: the file that it leaves its result in, the directory of its own program. Servers are
shared by runs, so how one is held is a part of what it is shared by.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....supervisors.confinement import Confinement
    from .of_run import Place, Sandbox

current: ContextVar[Sandbox | None] = ContextVar("callboard_sandbox", default=None)
"""For all that works below the run."""


def sandboxed(
    name: str, *, writes: Sequence[str | os.PathLike[str]] = (), shows: Sequence[str | os.PathLike[str]] = ()
) -> Confinement | None:
    """How a process of the tool, or of the script, of this name is held; None if it is not.

    Args:
        writes, shows: what it writes and reads by its nature.
    """
    sandbox = current.get()
    place = None if sandbox is None else sandbox.of_tool(name)
    return None if place is None else place.process(writes, shows)


def sandboxed_server(name: str) -> Place | None:
    """How the process of the MCP server of this name is held; None if it is not."""
    sandbox = current.get()
    return None if sandbox is None else sandbox.of_server(name)
