"""Split a chat completion's messages into system prompt, history and new message; remember calls for the client.

A run whose client offers tools ends with calls of these tools. The client's next request contains the assistant's last
message and the results of the tools. It lacks the calls that the agent made on the server in between, and the data
that a provider expects back with a call. So `Remembered` keeps the turns of the run, within a bound of memory. After
they are dropped, the next run uses the client's messages alone.
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
from .....protocol.session import same_but_for_results
from ....work.agent.history import INTERRUPTED
from .openai import CallSaid, ChatMessage

Json = Any

MOST_BYTES = 32 * 1024 * 1024
_EACH = 1024
"""Bytes counted for a run in addition to its text, so that many short runs are bounded too."""


class HandedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of client tools with which a run has ended; the client executes them.

    Attributes:
        calls: calls for the client to execute; their ids are unique among all runs.
        turns: turns of the run, including the calls; empty if the run changed the earlier history.
    """

    calls: tuple[ToolCall, ...]
    turns: tuple[Turn, ...] = ()


Find = Callable[[str], HandedOut | None]
"""Return the run whose first call for the client has this id; None if it was dropped."""

LONGEST_URL = 2048
_DATA = re.compile(r"data:(image/[a-z0-9.+-]{1,64});base64,(.*)", re.IGNORECASE | re.DOTALL)


class ConversationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A list of messages, split for a run.

    Attributes:
        system: the system prompt.
        history: the conversation so far; if it ends with results of tools, there is no prompt.
        prompt: the user's new message.
        images: images in the new message.
    """

    system: str
    history: tuple[Turn, ...]
    prompt: str
    images: tuple[ImagePart, ...] = ()


def asked(
    messages: list[ChatMessage],
    *,
    tools: bool = False,
    find: Find = lambda _: None,
    field: str = "messages",
    places: Sequence[str] | None = None,
) -> ConversationRequest:
    """Split the messages of a request into system prompt, history and new prompt.

    Args:
        tools: whether calls and their results are included; else they are skipped.
        find: finds the remembered run by its first call for the client.
        field: field of the body that holds the messages, for errors.
        places: position in the body of each message, for errors; by default `field` with its number.

    Raises:
        UsageError: the last message is neither the user's nor a tool's, a call has no result or a result no call, or a
            part is of an unknown kind.
    """
    system = "\n\n".join(_text(each) for each in messages if each.role in ("system", "developer"))
    places = places or [f"{field}[{number}]" for number in range(len(messages))]
    turns = _Turns(find)
    for place, message in zip(places, messages, strict=True):
        if message.role == "user":
            turns.add_user(_content(message, place), place)
        elif message.role == "assistant":
            turns.add_assistant(_text(message), message.tool_calls or [] if tools else [], place)
        elif message.role == "tool" and tools:
            turns.add_result(message, place)
    turns.check_answered(f"{field}[{len(messages)}]")
    said = turns.said
    if said and isinstance(said[-1], ToolTurn):
        return ConversationRequest(system=system, history=tuple(said), prompt="")
    if not said or messages[-1].role == "tool" or not isinstance(last := said[-1], UserTurn):
        results = "" if tools else ", or, with `tools`, the result of a call"
        raise UsageError(f"{field}: the last message must be the user's{results}")
    parts = parts_of(last.content)
    prompt = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    images = tuple(part for part in parts if isinstance(part, ImagePart))
    return ConversationRequest(system=system, history=tuple(said[:-1]), prompt=prompt, images=images)


class _Turns:
    """Builds the conversation message by message."""

    def __init__(self, find: Find) -> None:
        self.said: list[Turn] = []
        self._find = find
        self._open: dict[str, str] = {}  # id of a call without a result -> its tool

    def add_user(self, content: str | tuple[Part, ...], place: str) -> None:
        self.check_answered(place)
        self.said.append(UserTurn(content))

    def add_assistant(self, text: str, calls: list[CallSaid], place: str) -> None:
        self.check_answered(place)
        if calls:
            self._open = {call.id: call.function.name for call in calls}
            if len(self._open) < len(calls):
                raise UsageError(f"{place}.tool_calls: two calls have the same id")
            known = self._find(calls[0].id)
            if known is not None and [call.id for call in known.calls] == list(self._open):
                # The remembered turns replace the client's copy of the run: AG-UI clients send each text as a message.
                while self.said and isinstance(self.said[-1], AssistantTurn):
                    self.said.pop()
                if isinstance(known.turns[0], UserTurn) and self.said and isinstance(self.said[-1], UserTurn):
                    self.said.pop()  # `known.turns` has this message in the form that the model received
                self.said += known.turns
                return
            self.said.append(AssistantTurn(text, tuple(_call(call) for call in calls)))
        elif text:
            self.said.append(AssistantTurn(text))

    def add_result(self, message: ChatMessage, place: str) -> None:
        tool = self._open.pop(message.tool_call_id or "", None)
        if tool is None:
            raise UsageError(
                f"{place}: a tool message must follow the assistant message with the call of its `tool_call_id`"
            )
        self.said.append(ToolTurn(call=message.tool_call_id or "", name=tool, content=_text(message)))

    def check_answered(self, place: str) -> None:
        if self._open:
            raise UsageError(
                f"{place.partition('[')[0]}: the call {next(iter(self._open))!r} has no result before {place}"
            )


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


def _content(message: ChatMessage, place: str) -> str | tuple[Part, ...]:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    parts: list[Part] = []
    for part in message.content:
        kind, image = part.get("type"), part.get("image_url")
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(TextPart(part["text"]))
        elif kind == "image_url" and isinstance(image, dict) and isinstance(image.get("url"), str):
            parts.append(_image(image["url"], place))
        else:
            raise UsageError(f"{place}.content: parts must be of type text or image_url, not {kind!r}")
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _image(url: str, place: str) -> ImagePart:
    """Return an image by value, or by URL. The model's provider fetches the URL; the server never does."""
    where = f"{place}.content: image_url.url"
    if found := _DATA.fullmatch(url):
        try:
            return ImagePart(media_type=found[1].lower(), data=base64.b64decode(found[2], validate=True))
        except (binascii.Error, ValueError):
            raise UsageError(f"{where}: the text after `base64,` is not base64") from None
    if not url.startswith(("https://", "http://")) or len(url) > LONGEST_URL:
        raise UsageError(f"{where}: expected an https address, or data:image/TYPE;base64,..., not {url[:40]!r}")
    return ImagePart(url=url)


# --- calls for the client --------------------------------------------------------------------------------------


def handed_out(run: str, said: Sequence[Turn], before: Sequence[Turn], *, one: bool = False) -> HandedOut | None:
    """Return the calls of client tools with which a run has ended; None if it ended with an answer.

    Args:
        said: the whole conversation; calls without a result are marked as interrupted.
        before: the conversation before the run.
        one: hand out only the first call, and drop the others from the model's history.
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
    # Ids of a model's calls repeat in other runs. With the run's id they are unique keys of `Remembered`.
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
    """The newest runs that ended with calls of client tools, by subject and first call, so that the next request can
    continue them.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[HandedOut, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, subject: str, handed: HandedOut) -> None:
        """Remember a run, unless its turns are unknown, and drop the oldest ones beyond `MOST_BYTES`."""
        if not handed.turns:
            return
        size = _EACH + len(msgspec.json.encode(handed))
        self._kept[subject, handed.calls[0].id] = handed, size
        self._bytes += size
        while self._bytes > MOST_BYTES:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone

    def find(self, subject: str, call: str) -> HandedOut | None:
        """Return the run that ended with this call; None if it was dropped."""
        found = self._kept.get((subject, call))
        return None if found is None else found[0]


class ClientCalls:
    """Collector of the calls of client tools with which a run ends."""

    def __init__(self, remembered: Remembered, subject: str, before: Sequence[Turn], *, one: bool) -> None:
        self._remembered = remembered
        self._subject = subject
        self._before = before
        self._one = one
        self._said: Sequence[Turn] = ()
        self._handed: HandedOut | None = None

    def take(self, said: Sequence[Turn]) -> None:
        """Record the whole conversation, when the agent has finished."""
        self._said = said

    def calls(self, run: str) -> tuple[Any, ...]:
        """Return the calls, and remember the run, so that the client's next request can continue it.

        Call it when the run is over: the first call's result is cached.
        """
        if self._handed is None:
            # Cached, since each further call would remember the run once more.
            self._handed = handed_out(run, self._said, self._before, one=self._one)
            if self._handed is not None:
                self._remembered.keep(self._subject, self._handed)
        return () if self._handed is None else self._handed.calls
