"""Splits a chat completion's messages into system prompt, history and the new message."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

import msgspec

from .....protocol.chat import AssistantTurn, ImagePart, Part, TextPart, ToolCall, ToolTurn, Turn, UserTurn, parts_of
from .....protocol.errors import UsageError
from .client_tools import HandedOut
from .openai import CallSaid, ChatMessage

Json = Any

Find = Callable[[str], HandedOut | None]
"""The run whose first call for the client has this id; None if it was dropped."""

LONGEST_URL = 2048
_DATA = re.compile(r"data:(image/[a-z0-9.+-]{1,64});base64,(.*)", re.IGNORECASE | re.DOTALL)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of messages asks for.

    Attributes:
        system: the system prompt.
        history: the conversation so far; if it ends with results of tools, there is no prompt.
        prompt: what is said now.
        images: what is shown with it.
    """

    system: str
    history: tuple[Turn, ...]
    prompt: str
    images: tuple[ImagePart, ...] = ()


def asked(messages: list[ChatMessage], *, tools: bool = False, find: Find = lambda _: None) -> Asked:
    """What the messages ask for.

    Args:
        tools: whether calls and their results are part of it. Those of other conversations are left out.
        find: what is remembered of runs that ended with calls for the client.

    Raises:
        UsageError: the last thing said is neither the user's nor a tool's, a call has no result or a result no call, or
            a part is of an unknown kind.
    """
    system = "\n\n".join(_text(each) for each in messages if each.role in ("system", "developer"))
    turns = _Turns(find)
    for number, message in enumerate(messages):
        if message.role == "user":
            turns.add_user(_content(message, number), number)
        elif message.role == "assistant":
            turns.add_assistant(_text(message), message.tool_calls or [] if tools else [], number)
        elif message.role == "tool" and tools:
            turns.add_result(message, number)
    turns.check_answered(len(messages))
    said = turns.said
    if said and isinstance(said[-1], ToolTurn):
        return Asked(system=system, history=tuple(said), prompt="")
    if not said or messages[-1].role == "tool" or not isinstance(last := said[-1], UserTurn):
        results = "" if tools else ", or, with `tools`, the result of a call"
        raise UsageError(f"messages: the last one has to be the user's{results}")
    parts = parts_of(last.content)
    prompt = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    images = tuple(part for part in parts if isinstance(part, ImagePart))
    return Asked(system=system, history=tuple(said[:-1]), prompt=prompt, images=images)


class _Turns:
    """The conversation as it is read, message by message."""

    def __init__(self, find: Find) -> None:
        self.said: list[Turn] = []
        self._find = find
        self._open: dict[str, str] = {}  # calls without a result: their tools, by id

    def add_user(self, content: str | tuple[Part, ...], number: int) -> None:
        self.check_answered(number)
        self.said.append(UserTurn(content))

    def add_assistant(self, text: str, calls: list[CallSaid], number: int) -> None:
        self.check_answered(number)
        if calls:
            self._open = {call.id: call.function.name for call in calls}
            if len(self._open) < len(calls):
                raise UsageError(f"messages[{number}].tool_calls: two of them have the same id")
            known = self._find(calls[0].id)
            if known is not None and [call.id for call in known.calls] == list(self._open):
                if isinstance(known.turns[0], UserTurn) and self.said and isinstance(self.said[-1], UserTurn):
                    self.said.pop()  # it stands there as the model was told it
                self.said += known.turns
                return
            self.said.append(AssistantTurn(text, tuple(_call(call) for call in calls)))
        elif text:
            self.said.append(AssistantTurn(text))

    def add_result(self, message: ChatMessage, number: int) -> None:
        tool = self._open.pop(message.tool_call_id or "", None)
        if tool is None:
            raise UsageError(
                f"messages[{number}]: a tool's message comes after the assistant's whose call has its `tool_call_id`"
            )
        self.said.append(ToolTurn(call=message.tool_call_id or "", name=tool, content=_text(message)))

    def check_answered(self, number: int) -> None:
        if self._open:
            raise UsageError(f"messages: the call {next(iter(self._open))!r} has no result before messages[{number}]")


def _call(call: CallSaid) -> ToolCall:
    written = call.function.arguments
    try:
        arguments = msgspec.json.decode(written or "{}", type=dict[str, Json])
    except (msgspec.DecodeError, RecursionError):
        return ToolCall(id=call.id, name=call.function.name, malformed=written)
    return ToolCall(id=call.id, name=call.function.name, arguments=arguments)


def _text(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(part.get("text", "")) for part in message.content or () if part.get("type") == "text")


def _content(message: ChatMessage, number: int) -> str | tuple[Part, ...]:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    parts: list[Part] = []
    for part in message.content:
        kind, image = part.get("type"), part.get("image_url")
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(TextPart(part["text"]))
        elif kind == "image_url" and isinstance(image, dict) and isinstance(image.get("url"), str):
            parts.append(_image(image["url"], number))
        else:
            raise UsageError(f"messages[{number}].content: parts are of type text or image_url, not {kind!r}")
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _image(url: str, number: int) -> ImagePart:
    """An image by value, or by an address that the model's provider fetches: we never do."""
    where = f"messages[{number}].content: image_url.url"
    if found := _DATA.fullmatch(url):
        try:
            return ImagePart(media_type=found[1].lower(), data=base64.b64decode(found[2], validate=True))
        except (binascii.Error, ValueError):
            raise UsageError(f"{where}: what comes after `base64,` is no base64") from None
    if not url.startswith(("https://", "http://")) or len(url) > LONGEST_URL:
        raise UsageError(f"{where}: an https address, or data:image/TYPE;base64,... was expected, not {url[:40]!r}")
    return ImagePart(url=url)
