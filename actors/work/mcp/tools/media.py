"""Content of a server's result other than text: images, documents, and linked resources.

    image, blob of an image      an image for the model, detected by its bytes; its media type may be wrong
    blob of a PDF, of a text     its text
    resource_link                text of the resource, read from the same server; web addresses remain links
    anything else                a line that names it

A model without image input gets the names of images (`Target.complete`). Limits keep one result from filling a request.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import trio

from .....protocol.chat import ImagePart, Part, TextPart
from .....protocol.errors import CallboardError
from .....supervisors import Actor
from ....io.encodings import image_type
from ...tools.tool import Json, VisibleResult, shortened, text_of
from .view import ServerView

MOST_IMAGES, LARGEST_IMAGE = 8, 5 * 1024 * 1024
"""Images of one result, and bytes of each; providers refuse larger ones."""

LARGEST_DOCUMENT, LONGEST_TEXT = 32 * 1024 * 1024, 200_000
"""Bytes of a document that is read, and characters of its text."""

MOST_LINKS, LINKS_WITHIN = 4, 30.0
"""Linked resources that are read, and seconds for all of them."""


async def with_linked(me: Actor, view: ServerView, result: Mapping[str, Json]) -> dict[str, Json]:
    """Return the result with linked resources embedded, and with documents converted to text.

    Unreadable content remains unchanged.
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
    """Return the images of a result that can be shown to a model."""
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
    """Return a result's text for a model, together with its images if there are any."""
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
