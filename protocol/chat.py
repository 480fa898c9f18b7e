"""Requests to a language model and its replies, the same for every provider.

A conversation is a tuple of turns: `UserTurn`, `AssistantTurn`, `ToolTurn`; the system prompt stands beside it
in `ChatRequest`, since half of the providers want it there. Content is plain text or a tuple of parts (text,
images, files). `actors/work/models` turns a `ChatRequest` into a provider's own format and its answer into a
`ChatReply`; nothing above that floor knows which provider it was.

    request = ChatRequest(model="openai:gpt-4o-mini", messages=(UserTurn("Hello"),))
    reply = await gateway.chat(me, request)
    request = msgspec.structs.replace(request, messages=(*request.messages, reply.turn(), UserTurn("And then?")))
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Json = Any
"""A JSON value: str, int, float, bool, None, or lists and string-keyed dicts of them."""

Role = Literal["system", "user", "assistant", "tool"]
"""Who says a message of a workflow."""


# --- content ----------------------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image", omit_defaults=True):
    """An image: its bytes with their media type, or a `url` (http, https or data) that the provider fetches."""

    media_type: str = "image/png"
    data: bytes = b""
    url: str = ""


class FilePart(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """A file the model should read. Text files reach every provider; other types only those that take them."""

    name: str
    data: bytes
    media_type: str = "text/plain"


Part = TextPart | ImagePart | FilePart
Content = str | tuple[Part, ...]


def text_of(content: Content) -> str:
    """The text in `content`, its parts joined by newlines; images and files are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def parts_of(content: Content) -> tuple[Part, ...]:
    """`content` as parts; the empty string has none."""
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return content


# --- tools ------------------------------------------------------------------------------------------------


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool offered to the model. `parameters` is a JSON Schema of type object."""

    name: str
    description: str = ""
    parameters: dict[str, Json] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model wants a tool to run.

    Attributes:
        id: pairs the call with its result; unique within the conversation.
        name: as offered (models do invent names: check it).
        arguments: the decoded object.
        malformed: the text the model wrote where an object was due; `arguments` is empty then.
        signature: what the provider wants to see again together with the call; opaque to others.
    """

    id: str
    name: str
    arguments: dict[str, Json] = {}
    malformed: str = ""
    signature: str = ""


ToolChoice = str
"""`auto` (the model decides), `none`, `required` (some tool), or the name of the one tool it must call."""


# --- turns ------------------------------------------------------------------------------------------------


class Thought(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model has thought before or within a turn, as its provider wants to see it again. No part of the answer.

    Attributes:
        by: `client:model` that thought it; nothing of it is sent to others.
        form: the format that `data` is in; opaque to all but the codec of that format.
    """

    by: str = ""
    form: str
    data: Json


class UserTurn(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """What the user says."""

    content: Content


class AssistantTurn(msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True):
    """What the model said before: text, tool calls, or both; and what it thought, where that has to be kept."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thought: Thought | None = None


class ToolTurn(msgspec.Struct, frozen=True, tag="tool", tag_field="role", omit_defaults=True):
    """The result of one tool call. `call` is its id, `error` says that the tool failed."""

    call: str
    name: str
    content: Content
    error: bool = False


Turn = UserTurn | AssistantTurn | ToolTurn


# --- request and reply ------------------------------------------------------------------------------------

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model is to think before it answers."""

ThinkingBudget = Annotated[int, Meta(ge=0)]
"""The same in tokens; 0 for not at all."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):  # leads to nothing but data
    """One request to a model.

    Attributes:
        model: `client:model`; empty for the configured default.
        messages: the conversation, oldest first.
        system: the system prompt; empty for none.
        tools: offered to the model, in order.
        response_schema: JSON Schema that the reply's text must fit, where the provider can promise that.
        temperature, top_p: sampling; None leaves it to the settings, then to the provider.
        max_tokens: bound of the reply; None likewise.
        reasoning_effort, thinking_budget: how much it thinks first, as a level or in tokens; None likewise.
        stop: the reply ends before any of these.
        stream: ask for the reply in pieces; None: if there is a listener for them.
        extra: more keys for the body of the request, in the provider's own words; they replace nothing.
    """

    messages: tuple[Turn, ...]
    model: str = ""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    response_schema: dict[str, Json] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_budget: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool | None = None
    extra: dict[str, Json] = {}


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one reply as the provider counted them.

    Attributes:
        input_tokens, output_tokens: all that the model has read and written.
        cached_tokens: of the input, what the provider's cache had.
        cache_write_tokens: of the input, what went into that cache; cache_write_1h_tokens: of these, for an hour.
        reasoning_tokens: of the output, what was thought before the answer.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0


StopReason = Literal["end", "length", "tools", "refused", "failed"]
"""Why the model stopped: it was done, `max_tokens` was reached, it waits for tools, a filter cut it off, or the
provider failed. The last two are errors of the request, unless the model has refused in words of its own."""


class ChatReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A complete reply.

    Attributes:
        text: what the model said; empty when it only calls tools.
        model: `client:model` that was asked.
        reasoning: visible reasoning, where the provider shows it.
        thought: what the provider wants to see of it again, together with this reply.
        cost: in USD; None where the price is not known.
        reason: the provider's own word for an end that is not an ordinary one.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: StopReason = "end"
    usage: TokenUsage = TokenUsage()
    model: str = ""
    reasoning: str = ""
    thought: Thought | None = None
    cost: float | None = None
    reason: str = ""

    def turn(self) -> AssistantTurn:
        """The reply as a turn, to go on with the conversation."""
        return AssistantTurn(self.text, self.tool_calls, self.thought_by)

    @property
    def thought_by(self) -> Thought | None:
        """`thought` with the name of the model."""
        return None if self.thought is None else msgspec.structs.replace(self.thought, by=self.model)


# --- a reply in pieces ------------------------------------------------------------------------------------


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning"):
    """More visible reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """More of the tool call number `index`: its id and name come once, `arguments` is a piece of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Restarted(msgspec.Struct, frozen=True, tag="restarted"):
    """The stream broke and the request was sent again: forget the pieces so far, the reply starts anew."""


Delta = TextDelta | ReasoningDelta | ToolCallDelta | Restarted
