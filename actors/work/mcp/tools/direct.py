"""Tools of servers offered one by one, as `<server>__<tool>`.

A server's hints on a tool's effects are untrusted input, so they decide only as far as its `trust` goes:

    trust: full    every call goes ahead
    trust: hints   it goes ahead unless the tool says that it destroys something; then it asks, as our own writers do
    trust: none    every call asks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import ToolFailed
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import Tool as ServerTool
from ...tools.rendering import shortened
from ...tools.tool import Arguments, Effect, Json, Tool, ToolSpec
from .names import offered_name
from .results import error_of, text_of_result
from .view import View

if TYPE_CHECKING:
    from .....supervisors import Actor

_LONGEST_DESCRIPTION = 4_000


def direct_tool(view: View, tool: ServerTool, name: str = "") -> Tool:
    """The tool as a model is offered it.

    Args:
        name: what it is called, if its usual name is taken.
    """
    name = name or offered_name(view.server.name, tool.name)

    async def run(me: Actor, arguments: Arguments) -> Json:
        result = await view.call(me, tool.name, arguments, name)
        error = error_of(result)
        if error is not None:
            raise ToolFailed(error)
        return text_of_result(result)

    description = shortened(tool.description or tool.title or "", _LONGEST_DESCRIPTION)
    return Tool(
        spec=ToolSpec(name=name, description=description, parameters=_parameters(tool)),
        run=run,
        effect=effect_of(view.server, tool),
        origin="mcp",
        alias=f"{view.server.name}__{tool.name}",
        timeout=None,  # the call has a clock of its own, which stands still while people think
    )


def effect_of(server: Server, tool: ServerTool) -> Effect:
    """What permissions take the tool for."""
    if server.trust == "full":
        return "none"
    if server.trust == "none":
        return "execute"
    hints = tool.annotations
    return "write" if hints is not None and hints.destructive_hint is True else "none"


def _parameters(tool: ServerTool) -> dict[str, Json]:
    """Its schema, of type object whatever it says: nothing else can be offered."""
    properties = tool.input_schema.get("properties")
    return {**tool.input_schema, "type": "object", "properties": properties if isinstance(properties, dict) else {}}
