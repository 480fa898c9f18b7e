"""Requests to a language model and its replies, independent of the provider; and texts that name models.

A conversation is a tuple of turns: `UserTurn`, `AssistantTurn`, `ToolTurn`. The system prompt is a field of
`ChatRequest`, because half of the providers want it there. Content is plain text or a tuple of parts (text, images,
files). `actors/work/models` turns a `ChatRequest` into a provider's format and its answer into a `ChatReply`. Code
above that layer does not know the provider.

    request = ChatRequest(model="openai:gpt-4o-mini", messages=(UserTurn("Hello"),))
    reply = await gateway.chat(me, request)
    request = msgspec.structs.replace(request, messages=(*request.messages, reply.turn(), UserTurn("And then?")))

A text may name several models, separated by commas: `openai:gpt-4o,claude:claude-haiku-4-5`. The second one is asked if
the first does not answer. Such a text is valid wherever one model is: in a request, a session, on the command line, in
the environment. `models_of` splits it. In a file it may also be a list (`Models`, `DefaultModels`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

CASSETTE = "cassette"
"""Client name of cassettes as models (`cassette:FILE`): recorded replies, without a provider and without cost."""

_JOINED = Meta(
    description="`client:model`; of a list the first that answers.",
    extra={"joined": True},
    extra_json_schema={"x-joined": True},
)

Models: TypeAlias = Annotated[str | None, _JOINED]
"""Field of a file that may name a model, or several in the order in which they are asked."""

DefaultModels: TypeAlias = Annotated[str, _JOINED]
"""The same for a field that is empty without a model."""


def models_of(text: str) -> tuple[str, ...]:
    """Return the ids in a text, in order, each once; "" for an id that is missing between two commas.

    The path of a file with weights may contain commas: `local:/models/a,b.gguf` is one model.
    """
    if "," not in text:
        return (text,)
    found: list[str] = []
    for part in text.split(","):
        if found and _goes_on(found[-1]) and ":" not in part:
            found[-1] = f"{found[-1]},{part}"
        else:
            found.append(part)
    return tuple(dict.fromkeys(name.strip() for name in found))


def _goes_on(name: str) -> bool:
    return name.lstrip().startswith("local:") and "/" in name and not name.rstrip().lower().endswith(".gguf")


Json = Any
"""A JSON value: str, int, float, bool, None, or lists and string-keyed dicts of them."""

Role = Literal["system", "user", "assistant", "tool"]
"""Author of a message in a workflow."""


# --- content ----------------------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Text of a message."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image", omit_defaults=True):
    """Image: its bytes with their media type, or a `url` (http, https or data) that the provider fetches."""

    media_type: str = "image/png"
    data: bytes = b""
    url: str = ""


class FilePart(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """File for the model. Text files reach every provider; other types only providers that accept them."""

    name: str
    data: bytes
    media_type: str = "text/plain"


Part = TextPart | ImagePart | FilePart
Content = str | tuple[Part, ...]


def text_of(content: Content) -> str:
    """Return the text in `content`, its parts joined by newlines, without images and files."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def parts_of(content: Content) -> tuple[Part, ...]:
    """Return `content` as parts; the empty string has none."""
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return content


# --- tools ------------------------------------------------------------------------------------------------


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Tool offered to the model. `parameters` is a JSON Schema of type object."""

    name: str
    description: str = ""
    # msgspec accepts only empty collections as default values; any other needs a factory.
    parameters: dict[str, Json] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tool call by a model.

    Attributes:
        id: pairs the call with its result; unique within the conversation.
        name: name of the tool, as the model wrote it. Check it, because models invent names.
        arguments: the decoded object.
        malformed: the text the model wrote where an object was due; `arguments` is empty then.
        signature: opaque data of the provider that must be sent back with the call.
    """

    id: str
    name: str
    # Not shared, unlike a mutable default in Python: msgspec creates a new dictionary for each struct.
    arguments: dict[str, Json] = {}
    malformed: str = ""
    signature: str = ""


ToolChoice = str
"""`auto` (the model decides), `none`, `required` (some tool), or the name of the one tool it must call."""


# --- turns ------------------------------------------------------------------------------------------------


class Thought(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reasoning item of a turn, in the form that its provider wants to receive again. It is not part of the answer.

    Attributes:
        by: `client:model` that produced it; it is never sent to another model.
        form: format of `data`, opaque to all but the codec of that format.
    """

    by: str = ""
    form: str
    data: Json


class UserTurn(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """Message of the user."""

    content: Content


class AssistantTurn(msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True):
    """Earlier reply of the model: text, tool calls, or both; and its reasoning item if that must be sent again."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thought: Thought | None = None


class ToolTurn(msgspec.Struct, frozen=True, tag="tool", tag_field="role", omit_defaults=True):
    """Result of one tool call. `call` is its id; `error` is True if the tool failed."""

    # Both are needed: Gemini matches a result with its call by the name, OpenAI and Anthropic by the id.
    call: str
    name: str
    content: Content
    error: bool = False


Turn = UserTurn | AssistantTurn | ToolTurn


# --- request and reply ------------------------------------------------------------------------------------

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""Amount of reasoning before the answer."""

ThinkingBudget = Annotated[int, Meta(ge=0)]
"""The same in tokens; 0 for none."""


# Without garbage collection: its fields cannot form cycles.
class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Request to a model.

    Attributes:
        model: `client:model`; empty for the configured default.
        messages: the conversation, oldest first.
        system: the system prompt; empty for none.
        tools: tools offered to the model, in order.
        response_schema: JSON Schema that the reply's text must fit, if the provider can guarantee that.
        temperature, top_p: sampling; None for the value of the settings, then of the provider.
        max_tokens: maximum length of the reply; None likewise.
        reasoning_effort, thinking_budget: amount of reasoning, as a level or in tokens; None likewise.
        stop: texts before which the reply ends.
        stream: whether to stream the reply; None to stream if there is a listener.
        extra: further keys of the request's body in the provider's format; they do not replace others.
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
    """Token counts of one reply, as reported by the provider.

    Attributes:
        input_tokens, output_tokens: all that the model has read and written.
        cached_tokens: the part of the input that was read from the provider's cache.
        cache_write_tokens: the part of the input that was written to it; cache_write_1h_tokens: of these, for an hour.
        reasoning_tokens: the part of the output that is reasoning.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    # Counted apart, because Anthropic charges more for an hour in the cache than for five minutes.
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0


StopReason = Literal["end", "length", "tools", "refused", "failed"]
"""Reason for the end of a reply: it is complete, `max_tokens` was reached, it waits for tools, a filter cut it off, or
the provider failed. The last two are errors of the request, unless the model has refused in its own words.
"""


class ChatReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Complete reply.

    Attributes:
        text: text of the reply; empty if the model only calls tools.
        model: `client:model` that was asked.
        reasoning: visible reasoning, if the provider returns it.
        thought: reasoning item to be sent again with this reply.
        cost: cost in USD; None if the price is unknown.
        reason: the provider's own word for an unusual end.
        id: the provider's id of the reply, until the reply's event has it.
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
    id: str = ""

    def turn(self) -> AssistantTurn:
        """Return the reply as a turn, to continue the conversation."""
        return AssistantTurn(self.text, self.tool_calls, self.thought_by)

    @property
    def thought_by(self) -> Thought | None:
        """The reasoning item with `by` set to the model of this reply; None if there is none."""
        return None if self.thought is None else msgspec.structs.replace(self.thought, by=self.model)


# --- streaming --------------------------------------------------------------------------------------------


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """Further text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning"):
    """Further visible reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """Further part of the tool call number `index`. Its id and name are sent once; `arguments` is a part of the JSON
    text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Restarted(msgspec.Struct, frozen=True, tag="restarted"):
    """The stream broke and the request was sent again: discard the chunks so far, the reply starts over."""


Delta = TextDelta | ReasoningDelta | ToolCallDelta | Restarted
