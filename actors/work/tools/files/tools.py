"""Tools made of what tool files declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import ToolFailed
from ..tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from .call import play
from .home import Home
from .limits import USUAL, Limits
from .output import result

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ..declare.declaration import Declaration

_LINES, _CHARACTERS = 5, 500
"""Of stderr that an error quotes."""


def file_tool(declaration: Declaration, home: Home, *, timeout: float | None = TIMEOUT, limits: Limits = USUAL) -> Tool:
    """The tool that calls this function in a process of its own.

    Args:
        timeout: seconds of one call; None for no end. It stands still while the tool waits for a person, which is why
            the tool's own `timeout` is None.
    """

    async def run(me: Actor, arguments: Arguments) -> Json:
        return result(await play(me, declaration, arguments, home, timeout=timeout, limits=limits))

    spec = ToolSpec(name=declaration.name, description=declaration.description, parameters=declaration.parameters)
    return Tool(spec=spec, run=run, origin="file", timeout=None)


async def instructions(
    me: Actor, declaration: Declaration, home: Home, *, timeout: float | None = TIMEOUT, limits: Limits = USUAL
) -> str:
    """What the function `_instructions` of an agent's tool file writes.

    Raises:
        ToolFailed: it could not be started, or failed. There is no model to read its stderr, so the message quotes it.
    """
    try:
        return (await play(me, declaration, {}, home, timeout=timeout, limits=limits)).text
    except ToolFailed as failed:
        lines = [line.strip() for line in failed.stderr.splitlines() if line.strip()][-_LINES:]
        if not lines:
            raise
        said = "\n".join(lines)[-_CHARACTERS:]
        raise ToolFailed(f"{failed}; it wrote to stderr: {said}", stderr=failed.stderr) from failed
