"""Splits a chat completion's messages into system prompt, history and the new message; remembers its client's calls.

A run of an agent with tools of its client's ends by handing out calls of them. The client's next request holds the
assistant's last message and the tools' results. It lacks the calls that the agent has made here in between, and the
data that a provider wants back together with a call. So these are remembered, for as long as there is room; where they
are not, the run goes on from the client's request alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .....protocol.chat import AssistantTurn, ImagePart, Part, TextPart, ToolCall, ToolTurn, Turn, UserTurn, parts_of
from .....protocol.decoding import decode_json
from .....protocol.errors import UsageError
from .....protocol.session_turns import same_but_for_results
from ....work.agent.history import INTERRUPTED
from .openai import CallSaid, ChatMessage

Json = Any

MOST_BYTES = 32 * 1024 * 1024
_EACH = 1024
"""Bytes that a run takes beside its text, so that many short ones are bounded as well."""


class HandedOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has left to its client.

    Attributes:
        calls: those to play; their ids are unique among all runs.
        turns: what was said in the run, the calls included; empty if that can't be told from what was said before.
    """

    calls: tuple[ToolCall, ...]
    turns: tuple[Turn, ...] = ()


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
        arguments = decode_json(written or "{}", dict[str, Json])
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


# --- calls for the client --------------------------------------------------------------------------------------


def handed_out(run: str, said: Sequence[Turn], before: Sequence[Turn], *, one: bool = False) -> HandedOut | None:
    """What a run that is done has left to its client; None if it has answered.

    Args:
        said: all of the conversation; calls without a result are marked as interrupted.
        before: how it began.
        one: hand out the first call only; the model is shown no other.
    """
    at = max((index for index, turn in enumerate(said) if isinstance(turn, AssistantTurn)), default=-1)
    last = said[at] if at >= 0 else None
    if not isinstance(last, AssistantTurn):
        return None
    after = [turn for turn in said[at + 1 :] if isinstance(turn, ToolTurn)]
    unplayed = {turn.call for turn in after if turn.error and turn.content == INTERRUPTED}
    for_client = [call for call in last.tool_calls if call.id in unplayed]
    if not for_client:
        return None
    short = run.removeprefix("run-")
    names = {call.id: f"call_{short}_{number}" for number, call in enumerate(for_client[: 1 if one else None])}
    kept = tuple(
        msgspec.structs.replace(call, id=names.get(call.id, call.id))
        for call in last.tool_calls
        if call.id in names or call.id not in unplayed
    )
    results = [turn for turn in after if turn.call not in unplayed]
    whole = (*said[:at], msgspec.structs.replace(last, tool_calls=kept), *results)
    ours = set(names.values())
    return HandedOut(
        calls=tuple(call for call in kept if call.id in ours),
        turns=whole[len(before) :] if same_but_for_results(before, said) else (),
    )


class Remembered:
    """Runs that wait for their client's tools, the newest of them, by whom and by their first call."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[HandedOut, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, subject: str, handed: HandedOut) -> None:
        """Remember it, and forget the oldest that there is no room for."""
        if not handed.turns:
            return
        size = _EACH + len(msgspec.json.encode(handed))
        self._kept[subject, handed.calls[0].id] = handed, size
        self._bytes += size
        while self._bytes > MOST_BYTES:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone

    def find(self, subject: str, call: str) -> HandedOut | None:
        """The run that this call has ended; None if it was dropped."""
        found = self._kept.get((subject, call))
        return None if found is None else found[0]
