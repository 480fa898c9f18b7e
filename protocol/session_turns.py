"""Conversion of a session's messages to the turns of a conversation, and back, by Loki's rules.

    role: user       content: text, or parts: {type: text, text}, {type: image_url, image_url: {url}}
    role: assistant  content: text
    role: tool       content: {tool_results: [{call: {name, arguments, id}, output}], text, sequence}
    role: system     content: the system prompt; or, once the session was compressed, the summary

A `tool` message has the calls of a model's turn together with their results; `text` is the model's text. With
`sequence` the calls were made one after another. Callboard adds its own keys to Loki's: `error`, `signature`,
`malformed`, `thought`, and parts of type `file`. It adds `within` to messages in the user's role that were sent after
an exchange had begun.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from .chat import (
    AssistantTurn,
    Content,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    Thought,
    ToolCall,
    ToolTurn,
    Turn,
    UserTurn,
)
from .chat import text_of as content_text
from .decoding import convert
from .session import Session

Json = Any
Message = dict[str, Json]


def turns_of(session: Session) -> list[Turn]:
    """Return the history that the next turn of this session builds on.

    If the session has just been compressed, the last exchange before the summary is included. The system prompt of an
    uncompressed session is not a turn: see `system_of`.
    """
    messages = session.messages
    # Loki's rule. Otherwise the model would know the last exchange, which the user is about to continue, only from the
    # summary.
    if len(messages) == 1 and len(session.compressed_messages) >= 2:
        users = [index for index, each in enumerate(session.compressed_messages) if each.get("role") == "user"]
        messages = [*messages, *(session.compressed_messages[users[-1] :] if users else [])]
    if messages and messages[0].get("role") == "system" and not session.compressed_messages:
        messages = messages[1:]
    return [turn for index, message in enumerate(messages) for turn in _turns(message, index)]


def system_of(session: Session) -> str:
    """Return the system prompt in the session's messages; "" for none."""
    first = (session.compressed_messages or session.messages or [{}])[0]
    return content_text(_content(first.get("content"))) if first.get("role") == "system" else ""


def messages_of(turns: Iterable[Turn]) -> list[Message]:
    """Convert turns to messages, without calls that have no result."""
    messages: list[Message] = []
    waiting: dict[str, ToolCall] = {}
    for turn in turns:
        if isinstance(turn, UserTurn):
            messages.append({"role": "user", "content": _parts(turn.content)})
        elif isinstance(turn, AssistantTurn):
            waiting = {call.id: call for call in turn.tool_calls}
            thought = {} if turn.thought is None else {"thought": msgspec.to_builtins(turn.thought)}
            if not turn.tool_calls:
                messages.append({"role": "assistant", "content": turn.text, **thought})
            else:
                held: Message = {"tool_results": [], "text": turn.text, "sequence": False, **thought}
                messages.append({"role": "tool", "content": held})
        elif (call := waiting.pop(turn.call, None)) is not None:
            messages[-1]["content"]["tool_results"].append(_result(call, turn))
    return [each for each in messages if each["role"] != "tool" or each["content"]["tool_results"]]


def _result(call: ToolCall, turn: ToolTurn) -> Message:
    told: Message = {"name": call.name, "arguments": call.arguments, "id": call.id}
    told |= {key: value for key in ("signature", "malformed") if (value := getattr(call, key))}
    result: Message = {"call": told, "output": _parts(turn.content)}
    return {**result, "error": True} if turn.error else result


def _parts(content: Content) -> Json:
    if isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: Part) -> Message:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    data = base64.b64encode(part.data).decode()
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{data}"}}
    return {"type": "file", "name": part.name, "media_type": part.media_type, "data": data}


def _turns(message: Message, index: int) -> Iterator[Turn]:
    role, content = message.get("role"), message.get("content")
    if role == "tool" and isinstance(content, dict):
        yield from _calls(content, index)
    elif role == "assistant":
        yield AssistantTurn(content_text(_content(content)), thought=_thought(message.get("thought")))
    elif role in ("user", "system"):
        yield UserTurn(_content(content))


def _calls(content: Message, index: int) -> Iterator[Turn]:
    told = content.get("tool_results")
    results = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    calls = [_call(each.get("call"), f"call_{index}_{place}") for place, each in enumerate(results)]
    # `sequence`: Loki writes calls of several model replies into one message; each gets a turn of its own again.
    groups = [[place] for place in range(len(calls))] if content.get("sequence") else [list(range(len(calls)))]
    text = str(content.get("text") or "")
    thought = _thought(content.get("thought"))
    for group in groups:
        if group:
            yield AssistantTurn(text, tuple(calls[place] for place in group), thought)
        # Text and reasoning belong to the first reply only.
        text, thought = "", None
        for place in group:
            call, result = calls[place], results[place]
            yield ToolTurn(call.id, call.name, _content(result.get("output")), bool(result.get("error")))


def _thought(told: Json) -> Thought | None:
    """Return the model's reasoning item; None without one, or if it is invalid because the file was edited by hand."""
    try:
        return None if told is None else convert(told, Thought)
    except msgspec.ValidationError:
        return None


def _call(told: Json, id: str) -> ToolCall:
    told = told if isinstance(told, dict) else {}
    arguments = told.get("arguments")
    return ToolCall(
        id=str(told.get("id") or id),
        name=str(told.get("name") or ""),
        arguments=arguments if isinstance(arguments, dict) else {},
        malformed=str(told.get("malformed") or ""),
        signature=str(told.get("signature") or ""),
    )


def _content(told: Json) -> Content:
    if isinstance(told, str):
        return told
    if isinstance(told, list):
        # All or nothing: with an unknown part the list is given as JSON text, so that nothing of it is lost.
        parts = tuple(part for part in map(_read_part, told) if part is not None)
        if len(parts) == len(told):
            return parts
    if told is None:
        return ""
    import json

    return json.dumps(told, ensure_ascii=False, default=str)


def _read_part(told: Json) -> Part | None:
    if not isinstance(told, dict):
        return None
    if told.get("type") == "text":
        return TextPart(str(told.get("text") or ""))
    if told.get("type") == "image_url" and isinstance(told.get("image_url"), dict):
        return _image(str(told["image_url"].get("url") or ""))
    if told.get("type") == "file":
        return FilePart(str(told.get("name")), _bytes(told.get("data")), str(told.get("media_type") or "text/plain"))
    return None


def _image(url: str) -> ImagePart:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImagePart(media_type=head[5:-7], data=_bytes(data))
    return ImagePart(url=url)


def _bytes(text: Json) -> bytes:
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def same_but_for_results(old: Sequence[Turn], new: Sequence[Turn]) -> bool:
    """Return whether `new` continues the conversation `old`, with changes of results at most."""
    return len(new) >= len(old) and all(one is two or _one_call(one, two) for one, two in zip(old, new, strict=False))


def with_results(messages: Sequence[Message], results: Mapping[str, Content]) -> list[Message]:
    """Return the messages with the results of these calls (by id) replaced."""
    return [_with_results(message, results) if results else message for message in messages]


def _with_results(message: Message, results: Mapping[str, Content]) -> Message:
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, dict):
        return message
    held = content.get("tool_results")
    if not isinstance(held, list):
        return message
    changed = [_with_result(each, results) if isinstance(each, dict) else each for each in held]
    return {**message, "content": {**content, "tool_results": changed}}


def _with_result(result: Message, results: Mapping[str, Content]) -> Message:
    call = result.get("call")
    id = call.get("id") if isinstance(call, dict) else None
    return {**result, "output": _parts(results[id])} if isinstance(id, str) and id in results else result


def _one_call(one: Turn, two: Turn) -> bool:
    return isinstance(one, ToolTurn) and isinstance(two, ToolTurn) and one.call == two.call
