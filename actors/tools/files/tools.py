"""Tools made of what tool files declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from .call import play
from .home import Home
from .limits import USUAL, Limits
from .output import result

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..declare.declaration import Declaration


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
        ToolFailed: it could not be started, or failed.
    """
    return (await play(me, declaration, {}, home, timeout=timeout, limits=limits)).text
