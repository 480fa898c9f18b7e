"""Tools of servers offered one by one, as `<server>__<tool>`, and what a server's answer to a call says for a model.

A server's hints on a tool's effects are untrusted input, so they decide only as far as its `trust` goes:

    trust: full    every call goes ahead
    trust: hints   it goes ahead unless the tool says that it destroys something; then it asks, as our own writers do
    trust: none    every call asks
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .....protocol.errors import ToolFailed
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import KEYED
from .....protocol.mcp.model import Tool as ServerTool
from .....protocol.repeats import Repeats
from .....supervisors import Actor
from ...tools.tool import Arguments, Effect, Json, Tool, ToolSpec, shortened
from .names import offered_name
from .view import View

_LONGEST_DESCRIPTION = 4_000
_NOTHING = "(the tool returned nothing)"


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
        repeats=repeats_of(view.server, tool),
        alias=f"{view.server.name}__{tool.name}",
        remembers=_remembers(view.server, tool),
        definition=_definition(view.server, tool),
        labels=labels_of(view.server, tool),
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


def repeats_of(server: Server, tool: ServerTool) -> Repeats | None:
    """What the server says of a call of the tool that is made twice, as far as its hints are believed."""
    if server.trust == "none":
        return None
    if tool.meta is not None and tool.meta.get(KEYED) is True:
        return "keyed"
    hints = tool.annotations
    if hints is None:
        return None
    if hints.read_only_hint is True:
        return "read"
    return "idempotent" if hints.idempotent_hint is True else None


def _remembers(server: Server, tool: ServerTool) -> str:
    """The server's name, if its process may be another one after a call: one of ours that does not only read."""
    return server.name if server.type == "stdio" and repeats_of(server, tool) != "read" else ""


def labels_of(server: Server, tool: ServerTool | None) -> frozenset[Literal["outside", "private", "sends"]]:
    """What labels are to take a tool for, by what the user says of its server; None for one that stands for all."""
    found: set[Literal["outside", "private", "sends"]] = set()
    if "trusted" not in server.labels:
        found.add("outside")
    if "private" in server.labels:
        found.add("private")
    if tool is not None and "inside" not in server.labels and repeats_of(server, tool) != "read":
        found.add("sends")
    return frozenset(found)


def _definition(server: Server, tool: ServerTool) -> str:
    """How the server is started or reached, and what it says of the tool."""
    how = [server.type, server.command, *server.args, server.url, server.cwd or ""]
    how += sorted(f"{name}={value}" for name, value in server.env.items())
    return "\n".join([*how, tool.name, tool.description or ""])


def _parameters(tool: ServerTool) -> dict[str, Json]:
    """Its schema, of type object whatever it says: nothing else can be offered."""
    properties = tool.input_schema.get("properties")
    return {**tool.input_schema, "type": "object", "properties": properties if isinstance(properties, dict) else {}}


def text_of_result(result: Mapping[str, Json]) -> Json:
    """The texts of a `CallToolResult`; its structured content where it has no text; all of it if it is none."""
    if not isinstance(result.get("content"), list) and "structuredContent" not in result:
        return {key: value for key, value in without_bytes(result).items() if key != "isError"} or _NOTHING
    said = [_text_of_block(block) for block in _blocks(result)]
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in _blocks(result)):
        return structured if not said else {"content": said, "structuredContent": structured}
    return "\n".join(said) or _NOTHING


def error_of(result: Mapping[str, Json]) -> str | None:
    """What the tool says went wrong; None if nothing did."""
    if result.get("isError") is not True:
        return None
    text = text_of_result(result)
    return text if isinstance(text, str) and text != _NOTHING else f"the tool failed and said: {text}"


def without_bytes(result: Mapping[str, Json]) -> dict[str, Json]:
    """The `CallToolResult` for `mcp_invoke_*`: without `_meta` and the base64 text of images, sounds and files."""
    told = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    if isinstance(told.get("content"), list):
        told["content"] = [_without_data(block) for block in told["content"]]
    return told


def _blocks(result: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    content = result.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text_of_block(block: Mapping[str, Json]) -> str:
    kind = str(block.get("type", "content"))
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return f"[resource {_told(block.get('uri'), block.get('name'), block.get('mimeType'))}]"
    if kind == "resource":
        inner = block.get("resource")
        return _text_of_resource(inner if isinstance(inner, dict) else {})
    return f"[{kind} {_told(block.get('mimeType'), _size(block.get('data')))}]"


def _text_of_resource(resource: Mapping[str, Json]) -> str:
    name = f"[resource {_told(resource.get('uri'), resource.get('mimeType'), _size(resource.get('blob')))}]"
    text = resource.get("text")
    return f"{name}\n{text}" if isinstance(text, str) else name


def _without_data(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    told = dict(block)
    if "data" in told:
        told["data"] = f"[{_size(told['data'])} left out]"
    if isinstance(told.get("resource"), dict) and "blob" in told["resource"]:
        told["resource"] = {**told["resource"], "blob": f"[{_size(told['resource']['blob'])} left out]"}
    return told


def _size(data: Json) -> str | None:
    """How many bytes a base64 text stands for."""
    return f"{len(data.rstrip('=')) * 3 // 4} bytes" if isinstance(data, str) else None


def _told(*parts: Json) -> str:
    return ", ".join(str(part) for part in parts if part) or "without a name"
