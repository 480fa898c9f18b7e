"""What a server's answer to a call says, for a model.

text_of_result   as a text: texts as they are, everything else by its name; for tools that are offered one by one
without_bytes    the answer as it came, images and the like named instead of spelled out; for `mcp_invoke_*`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tools.tool import Json

_NOTHING = "(the tool returned nothing)"


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
    """The `CallToolResult` without `_meta`, and without the base64 text of images, sounds and files."""
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
