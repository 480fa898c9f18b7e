"""Tools of servers under their own names, `<server>__<tool>`, and a server's results for a model.

A server's hints on a tool's effects are untrusted input, so its `trust` limits their influence:

    trust: full    every call is allowed
    trust: hints   a call is allowed unless the tool declares itself destructive; then it asks, as own writing tools do
    trust: none    every call asks

**Parameter names.** Anthropic and Bedrock refuse every request with a tool that has a property `$filter`, `first name`,
or one with more than 64 characters. The model gets accepted names, at every level of the schema. Before a call the
arguments get the server's own names back.

**Content other than text.**

    image, blob of an image      an image for the model, detected by its bytes; its media type may be wrong
    blob of a PDF, of a text     its text
    resource_link                text of the resource, read from the same server; web addresses remain links
    anything else                a line that names it

A model without image input gets the names of images (`Target.complete`). Limits keep one result from filling a request.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import trio

from .....protocol.chat import ImagePart, Part, TextPart
from .....protocol.errors import CallboardError, ToolFailed
from .....protocol.interrupted_calls import Repeats
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import KEYED
from .....protocol.mcp.model import McpTool as ServerTool
from .....supervisors import Actor
from ....io.encodings import image_type
from ...tools.tool import Arguments, Effect, Json, Label, Tool, ToolSpec, VisibleResult, shortened, text_of
from .names import offered_name
from .view import ServerView

_LONGEST_DESCRIPTION = 4_000
_NOTHING = "(the tool returned nothing)"


def direct_tool(view: ServerView, tool: ServerTool, name: str = "") -> Tool:
    """Return the tool in the form that is offered to a model.

    Args:
        name: name of the tool, if its usual name is taken.
    """
    name = name or offered_name(view.server.name, tool.name)
    own = _parameters(tool)
    offered = fitting(own)

    async def run(me: Actor, arguments: Arguments) -> Json:
        # The arguments have the offered names, and the server expects its own.
        given = arguments if offered is own else restored(arguments, own)
        result = await view.call(me, tool.name, given, name)
        has_more = holds_more_than_text(result)
        if has_more:
            result = await with_linked(me, view, result)
        error = error_of(result)
        if error is not None:
            raise ToolFailed(error)
        value = text_of_result(result)
        return content_with_images(value, result) if has_more else value

    description = shortened(tool.description or tool.title or "", _LONGEST_DESCRIPTION)
    return Tool(
        spec=ToolSpec(name=name, description=description, parameters=offered),
        run=run,
        effect=effect_of(view.server, tool),
        origin="mcp",
        repeats=repeats_of(view.server, tool),
        # Permissions use this name, whatever name the model sees.
        alias=f"{view.server.name}__{tool.name}",
        remembers=_remembers(view.server, tool),
        definition=_definition(view.server, tool),
        labels=labels_of(view.server),
        server=(view.server.name, *view.server.words),
        timeout=None,  # the call has its own clock, which pauses while users answer
    )


def effect_of(server: Server, tool: ServerTool) -> Effect:
    """Return the effect of a tool for permissions: `none` for a server with full trust, `execute` for one without any.

    For other servers it is `write` if the tool declares that it is destructive, otherwise `none`.
    """
    if server.trust == "full":
        return "none"
    if server.trust == "none":
        return "execute"
    hints = tool.annotations
    # Only an explicit hint counts, although the specification's default is True.
    return "write" if hints is not None and hints.destructive_hint is True else "none"


def repeats_of(server: Server, tool: ServerTool) -> Repeats | None:
    """Return the guarantee for repeated calls of the tool, from the server's hints.

    None without a hint, and for a server whose hints are not trusted (`trust: none`).
    """
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
    """Return the server's name if its process may change state in a call: a local one, with a tool that does not only
    read."""
    return server.name if server.type == "stdio" and repeats_of(server, tool) != "read" else ""


def labels_of(server: Server) -> frozenset[Label]:
    """Return the labels of a server: the user's setting, and `remote` for a remote one. The server's claims do not
    count."""
    return frozenset(server.labels if server.type == "stdio" else (*server.labels, "remote"))


def _definition(server: Server, tool: ServerTool) -> str:
    """Return a text that identifies the start of the server and its description of the tool."""
    how = [server.type, server.command, *server.args, server.url, server.cwd or ""]
    how += sorted(f"{name}={value}" for name, value in server.env.items())
    return "\n".join([*how, tool.name, tool.description or ""])


def _parameters(tool: ServerTool) -> dict[str, Json]:
    """Return the tool's schema with type object: no other type can be offered."""
    properties = tool.input_schema.get("properties")
    return {**tool.input_schema, "type": "object", "properties": properties if isinstance(properties, dict) else {}}


_FITS = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OTHERS = re.compile(r"[^A-Za-z0-9_.-]+")
_DEEPEST = 30
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("$defs", "definitions")
_ONES = ("items", "additionalProperties", "not")


def fitting(schema: Json, depth: int = 0) -> Json:
    """Return a tool's schema with parameter names that every provider accepts; the same object if nothing changes."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    changed: dict[str, Json] = {}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        names = renamed(properties)
        found = {names.get(name, name): fitting(each, depth + 1) for name, each in properties.items()}
        if names or any(found[names.get(name, name)] is not each for name, each in properties.items()):
            changed["properties"] = found
        required = schema.get("required")
        if names and isinstance(required, list):
            changed["required"] = [names.get(name, name) if isinstance(name, str) else name for name in required]
    for key in _ONES:
        if (part := fitting(schema.get(key), depth + 1)) is not schema.get(key):
            changed[key] = part
    for key in _LISTS:
        if isinstance(several := schema.get(key), list):
            parts = [fitting(each, depth + 1) for each in several]
            if any(part is not each for part, each in zip(parts, several, strict=True)):
                changed[key] = parts
    for key in _MAPS:
        if isinstance(named := schema.get(key), dict):
            parts_by_name = {name: fitting(each, depth + 1) for name, each in named.items()}
            if any(parts_by_name[name] is not each for name, each in named.items()):
                changed[key] = parts_by_name
    return {**schema, **changed} if changed else schema


def restored(value: Json, schema: Json, root: Json = None, depth: int = 0) -> Json:
    """Return arguments with the names of the server's own schema, after `fitting` had changed them."""
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [restored(each, schema.get("items"), root, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    # Without knowing which branch applies, all are tried: a branch only renames properties of its own.
    for key in _LISTS:
        for branch in schema[key] if isinstance(schema.get(key), list) else ():
            value = restored(value, branch, root, depth + 1)
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    own = {new: name for name, new in renamed(properties).items()}
    named = {own.get(name, name): each for name, each in value.items()}
    return {name: restored(each, properties.get(name), root, depth + 1) for name, each in named.items()}


def renamed(properties: dict[str, Json]) -> dict[str, str]:
    """Return a distinct name that every provider accepts, for each parameter name that some provider refuses."""
    found: dict[str, str] = {}
    for name in properties:
        if _FITS.fullmatch(name):
            continue
        stem = _OTHERS.sub("_", name).strip("_")[:60] or "value"
        new, number = stem, 1
        while new in properties or new in found.values():
            number += 1
            new = f"{stem}_{number}"
        found[name] = new
    return found


def _resolved(schema: Json, root: Json) -> Json:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found = root
    for key in reference[2:].split("/"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def text_of_result(result: Mapping[str, Json]) -> Json:
    """Return the texts of a `CallToolResult`, joined by newlines; for any other block, a line that names it.

    Without a text block the structured content is returned, together with the lines of other blocks if there are any.
    An object with neither `content` nor structured content is returned whole. A note replaces an empty result.
    """
    if not isinstance(result.get("content"), list) and "structuredContent" not in result:
        return {key: value for key, value in without_bytes(result).items() if key != "isError"} or _NOTHING
    texts = [_text_of_block(block) for block in _blocks(result)]
    # Servers should repeat structured content as text; then the text is sufficient.
    structured = result.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in _blocks(result)):
        return structured if not texts else {"content": texts, "structuredContent": structured}
    return "\n".join(texts) or _NOTHING


def error_of(result: Mapping[str, Json]) -> str | None:
    """Return the error text of a result with `isError`; None for any other result."""
    if result.get("isError") is not True:
        return None
    text = text_of_result(result)
    return text if isinstance(text, str) and text != _NOTHING else f"the tool failed: {text}"


def without_bytes(result: Mapping[str, Json]) -> dict[str, Json]:
    """Return the `CallToolResult` for `mcp_invoke_*`, without `_meta` and base64 data of images, sounds and files."""
    visible = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    if isinstance(visible.get("content"), list):
        visible["content"] = [_without_data(block) for block in visible["content"]]
    return visible


def holds_more_than_text(result: Mapping[str, Json]) -> bool:
    """Return True if a result has a block other than text, such as an image or a resource."""
    return any(block.get("type") != "text" for block in _blocks(result))


def _blocks(result: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    content = result.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text_of_block(block: Mapping[str, Json]) -> str:
    kind = str(block.get("type", "content"))
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return f"[resource {_unavailable_text(block.get('uri'), block.get('name'), block.get('mimeType'))}]"
    if kind == "resource":
        inner = block.get("resource")
        resource = inner if isinstance(inner, dict) else {}
        facts = _unavailable_text(resource.get("uri"), resource.get("mimeType"), _size(resource.get("blob")))
        text = resource.get("text")
        return f"[resource {facts}]\n{text}" if isinstance(text, str) else f"[resource {facts}]"
    return f"[{kind} {_unavailable_text(block.get('mimeType'), _size(block.get('data')))}]"


def _without_data(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    visible = dict(block)
    if "data" in visible:
        visible["data"] = f"[{_size(visible['data'])} left out]"
    if isinstance(visible.get("resource"), dict) and "blob" in visible["resource"]:
        visible["resource"] = {**visible["resource"], "blob": f"[{_size(visible['resource']['blob'])} left out]"}
    return visible


def _size(data: Json) -> str | None:
    """Return the size in bytes of base64 data."""
    return f"{len(data.rstrip('=')) * 3 // 4} bytes" if isinstance(data, str) else None


def _unavailable_text(*parts: Json) -> str:
    return ", ".join(str(part) for part in parts if part) or "without a name"


MOST_IMAGES, LARGEST_IMAGE = 8, 5 * 1024 * 1024
"""Images of one result, and bytes of each; providers refuse larger ones."""

LARGEST_DOCUMENT, LONGEST_TEXT = 32 * 1024 * 1024, 200_000
"""Bytes of a document that is read, and characters of its text."""

MOST_LINKS, LINKS_WITHIN = 4, 30.0
"""Linked resources that are read, and seconds for all of them."""


async def with_linked(me: Actor, view: ServerView, result: Mapping[str, Json]) -> dict[str, Json]:
    """Return the result with linked resources embedded, and with documents converted to text.

    At most `MOST_LINKS` links are read, within `LINKS_WITHIN` seconds in all; web addresses are not. Unreadable content
    remains unchanged.
    """
    content = result.get("content")
    if not isinstance(content, list) or not any(_kind(block) in ("resource", "resource_link") for block in content):
        return dict(result)
    links = 0
    read: dict[int, list[Any]] = {}  # by index in `content`
    with trio.move_on_after(LINKS_WITHIN):
        for place, block in enumerate(content):
            if _kind(block) == "resource_link" and _is_of_server(block) and links < MOST_LINKS:
                links += 1
                read[place] = await _read(me, view, block)
            elif _kind(block) == "resource" and isinstance(block.get("resource"), dict):
                read[place] = [{**block, "resource": await _as_text(me, block["resource"])}]
    return {**result, "content": [each for place, block in enumerate(content) for each in read.get(place, [block])]}


def images_of(result: Mapping[str, Json]) -> tuple[ImagePart, ...]:
    """Return the images of a result that can be shown to a model; `MOST_IMAGES` of `LARGEST_IMAGE` bytes at most."""
    content = result.get("content")
    images: list[ImagePart] = []
    for block in content if isinstance(content, list) else ():
        inner = block.get("resource") if _kind(block) == "resource" else block
        data = (inner.get("blob") if inner is not block else inner.get("data")) if isinstance(inner, dict) else None
        # The size is checked on the base64 text, before a huge image is decoded.
        if isinstance(data, str) and len(images) < MOST_IMAGES and len(data) <= LARGEST_IMAGE * 4 // 3 + 4:
            image = _decoded(data)
            if kind := image_type(image):
                images.append(ImagePart(media_type=kind, data=image))
    return tuple(images)


def content_with_images(value: Json, result: Mapping[str, Json]) -> Json:
    """Return `value` unchanged if the result has no images, otherwise a `VisibleResult` of its text and the images."""
    images = images_of(result)
    parts: tuple[Part, ...] = (TextPart(text_of(value)), *images)
    return VisibleResult(parts) if images else value


async def _read(me: Actor, view: ServerView, link: Mapping[str, Json]) -> list[Any]:
    """Return the link followed by the contents of its resource."""
    try:
        async with view.talk.scope.client(view.server.name, me) as client:
            if "resources" not in client.capabilities:
                return [link]
            read = await client.request("resources/read", {"uri": link["uri"]})
    except CallboardError:
        return [link]
    contents = read.get("contents")
    inside = [each for each in contents if isinstance(each, dict)] if isinstance(contents, list) else []
    return [link, *[{"type": "resource", "resource": await _as_text(me, each)} for each in inside[:MOST_LINKS]]]


async def _as_text(me: Actor, resource: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return an embedded resource with the text of its document in place of its bytes, if it has text."""
    blob, text = resource.get("blob"), resource.get("text")
    if isinstance(text, str):
        return {**resource, "text": shortened(text, LONGEST_TEXT)}
    if not isinstance(blob, str) or len(blob) > LARGEST_DOCUMENT * 4 // 3:
        return resource
    data = _decoded(blob)
    if not data or image_type(data):
        return resource
    from ....io.imports import imported

    await imported(".actors.work.knowledge.reading.read")
    from ...knowledge.reading.limits import Bounds, CantRead
    from ...knowledge.reading.read import RawDocument, read

    uri, media = str(resource.get("uri") or ""), str(resource.get("mimeType") or "")
    try:
        found = await read(
            me, RawDocument(source=uri, path=uri, data=data, media=media), Bounds(), trio.CapacityLimiter(1)
        )
    except CantRead:
        return resource
    text = "\n\n".join(document.text for document in found.documents).strip()
    return {**resource, "text": shortened(text, LONGEST_TEXT)} if text else resource


def _kind(block: Any) -> str:
    return str(block.get("type", "")) if isinstance(block, dict) else ""


def _is_of_server(link: Mapping[str, Json]) -> bool:
    """Return True for a resource of the server itself; web addresses are left to tools that access the web."""
    uri = link.get("uri")
    return isinstance(uri, str) and bool(uri) and not uri.lower().startswith(("http:", "https:"))


def _decoded(text: str) -> bytes:
    try:
        # Without validation, since base64 text may contain line breaks.
        return base64.b64decode(text, validate=False)
    except ValueError:
        return b""
