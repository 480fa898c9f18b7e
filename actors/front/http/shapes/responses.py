"""OpenAI's Responses API: the body of a request, and a run as a response or as its stream of events.

A request is converted to the equivalent chat completion (`shapes.openai`), so both have the same rules for tools,
images and sampling. Calls of an agent's own tools are not output items, because a client would try to execute them.

`previous_response_id` and `item_reference` refer to what `StoredResponses` holds: messages and items of the newest
responses, in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .....protocol import events as ev
from .....protocol.chat import ReasoningEffort, ToolCall
from .....protocol.control.method_structs import Json, Name, Object, Objects, Path, Text, Value
from .....protocol.errors import NotFound, UsageError
from .....protocol.events import Event, decode
from ....views.run_view import RunView
from ...control.logs.files import LoggedEvent
from .openai import (
    MOST_TOOLS,
    CallboardOptions,
    CallSaid,
    CallWritten,
    ChatCompletionRequest,
    ChatMessage,
    Format,
    FunctionNamed,
    FunctionOffered,
    Limit,
    NeverTrue,
    SchemaWanted,
    ToolNamed,
    ToolOffered,
    call_as_openai,
    finish_of,
)

STORED_BYTES = 32 * 1024 * 1024
_RESPONSE_BYTES = 1024
"""Bytes counted for a stored response in addition to its text, so that many short ones are bounded too."""

_ROLES = ("user", "assistant", "system", "developer")
_ITEMS = "message, function_call, function_call_output, item_reference or reasoning"

Emitted = tuple[str, dict[str, Json]]
"""Type and data of an event of a stream."""


class ResponsesFunction(FunctionOffered, frozen=True, kw_only=True):
    """A function that the client executes. `parameters` is a JSON Schema of type object."""

    type: Literal["function"]
    strict: bool | None = None


class ResponsesFunctionNamed(FunctionNamed, frozen=True, kw_only=True):
    """Function that the model must call first."""

    type: Literal["function"]


class TextFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Format of the answer. `schema` belongs to the type `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Name | None = None
    schema: Object | None = None
    strict: bool | None = None
    description: Value | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the answer's text."""

    format: TextFormat | None = None


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of reasoning."""

    effort: ReasoningEffort | None = None


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/responses`. Other fields (`include`, `truncation`, `user` ...) are ignored.

    Attributes:
        input: a prompt, or items of the types message, function_call, function_call_output, item_reference, reasoning.
        previous_response_id: a response that this one continues.
        store: false: nothing can refer to this response.
        metadata: sent back as it is.
    """

    model: Annotated[Path, Meta(min_length=1, description="`agent/NAME`, `graph/NAME`, `workflow/NAME`, or a model.")]
    input: Text | Objects
    instructions: Text | None = None
    previous_response_id: Name | None = None
    stream: bool | None = False
    store: bool | None = True
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_output_tokens: Limit | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    tools: Annotated[list[ResponsesFunction], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | ResponsesFunctionNamed | None = None
    parallel_tool_calls: bool | None = None
    background: Annotated[NeverTrue, Meta(description="`POST /v1/runs` starts runs in the background.")] | None = None
    metadata: Object | None = None
    callboard: CallboardOptions = CallboardOptions()

    def as_chat(self, messages: list[ChatMessage]) -> ChatCompletionRequest:
        """Return the chat completion with the same options.

        Raises:
            UsageError: `text.format` announces a schema and has none.
        """
        choice = self.tool_choice
        tools = None if self.tools is None else [ToolOffered(type="function", function=tool) for tool in self.tools]
        return ChatCompletionRequest(
            model=self.model,
            messages=messages,
            stream=self.stream,
            temperature=self.temperature,
            top_p=self.top_p,
            max_completion_tokens=self.max_output_tokens,
            reasoning_effort=None if self.reasoning is None else self.reasoning.effort,
            response_format=_format_of(self.text),
            tools=tools,
            tool_choice=ToolNamed(type="function", function=FunctionNamed(name=choice.name))
            if isinstance(choice, ResponsesFunctionNamed)
            else choice,
            parallel_tool_calls=self.parallel_tool_calls,
            callboard=self.callboard,
        )


def _format_of(text: TextOptions | None) -> Format | None:
    wanted = None if text is None else text.format
    if wanted is None:
        return None
    if wanted.type != "json_schema":
        return Format(type=wanted.type)
    if wanted.schema is None:
        raise UsageError("text.format: the type json_schema needs a `schema`")
    return Format(type="json_schema", json_schema=SchemaWanted(schema=wanted.schema, name=wanted.name or ""))


class ResponsesUsage(msgspec.Struct, kw_only=True):
    """Number of tokens of the run, under the names of the Responses API."""

    input_tokens: int = 0
    input_tokens_details: dict[str, int] = msgspec.field(default_factory=lambda: {"cached_tokens": 0})
    output_tokens: int = 0
    output_tokens_details: dict[str, int] = msgspec.field(default_factory=lambda: {"reasoning_tokens": 0})
    total_tokens: int = 0


class ResponseReply(msgspec.Struct, kw_only=True):
    """Reply to a response request. `output` has at most one message, and the calls of the client's functions."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    object: Literal["response"] = "response"
    output: list[dict[str, Json]] = []
    error: dict[str, str] | None = None
    incomplete_details: dict[str, str] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Json]] = []
    tool_choice: Json = "auto"
    parallel_tool_calls: bool = True
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning: dict[str, Json] = {}
    text: dict[str, Json] = {}
    truncation: Literal["disabled"] = "disabled"
    store: bool = True
    background: bool = False
    metadata: dict[str, Json] = {}
    usage: ResponsesUsage | None = None
    callboard: dict[str, Json] = {}


# --- input items -------------------------------------------------------------------------------------------------


def messages_of(
    given: str | list[dict[str, Json]], find: Callable[[str], dict[str, Json] | None] = lambda _: None
) -> tuple[list[ChatMessage], list[str]]:
    """Return the chat messages of an input, and the place in the body of each, for errors.

    Items of the type reasoning are skipped. A call is joined to the assistant message directly before it.

    Args:
        find: returns the stored item with the id of an `item_reference`; None if it is not stored.

    Raises:
        UsageError: an item does not have the shape of its type, has an unknown type, or is not stored.
    """
    if isinstance(given, str):
        return [ChatMessage(role="user", content=given)], ["input"]
    messages: list[ChatMessage] = []
    places: list[str] = []
    for number, item in enumerate(given):
        place = f"input[{number}]"
        if item.get("type") == "item_reference":
            item = _found(item, find, place)
        message = _message(item, place)
        if message is None:
            continue
        # The Responses API has an item for each call; a chat message has all calls of a turn.
        if message.tool_calls and messages and _joins(messages[-1]):
            said = messages[-1]
            messages[-1] = msgspec.structs.replace(said, tool_calls=[*(said.tool_calls or ()), *message.tool_calls])
            continue
        messages.append(message)
        places.append(place)
    return messages, places


def _joins(said: ChatMessage) -> bool:
    """Return whether a call belongs to the preceding message: calls of one turn directly follow its text."""
    return said.role == "assistant"


def _found(item: dict[str, Json], find: Callable[[str], dict[str, Json] | None], place: str) -> dict[str, Json]:
    id = item.get("id")
    found = find(id) if isinstance(id, str) else None
    if found is None:
        raise UsageError(f"{place}: the item {str(id)[:60]!r} is not stored, or no longer; send the item itself")
    return found


def _message(item: dict[str, Json], place: str) -> ChatMessage | None:
    match item.get("type", "message"):
        case "message":
            role = item.get("role")
            if role not in _ROLES:
                raise UsageError(f"{place}.role: expected {', '.join(_ROLES)}, not {str(role)[:60]!r}")
            return ChatMessage(role=role, content=_content(item.get("content"), f"{place}.content"))
        case "function_call":
            call = CallWritten(name=_text_at(item, "name", place), arguments=_text_at(item, "arguments", place, "{}"))
            said = CallSaid(id=_text_at(item, "call_id", place), function=call)
            return ChatMessage(role="assistant", tool_calls=[said])
        case "function_call_output":
            output = _content(item.get("output"), f"{place}.output")
            return ChatMessage(role="tool", content=output, tool_call_id=_text_at(item, "call_id", place))
        case "reasoning":  # encrypted for the provider that wrote it; runs store their own reasoning
            return None
        case kind:
            raise UsageError(f"{place}: the type of an item must be {_ITEMS}, not {str(kind)[:60]!r}")


def _text_at(item: dict[str, Json], key: str, place: str, default: str | None = None) -> str:
    value = item.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise UsageError(f"{place}.{key}: the value must be a string")
    return value


def _content(content: Json, place: str) -> str | list[dict[str, Json]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UsageError(f"{place}: expected a string or a list of parts")
    parts: list[dict[str, Json]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            parts.append({"type": "text", "text": part["refusal"]})
        elif kind == "input_image" and isinstance(part.get("image_url"), str):
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        else:
            raise UsageError(
                f"{place}: a part must have the type input_text, output_text, or input_image with an "
                f"`image_url`, not {str(kind)[:60]!r}"
            )
    return parts


# --- stored responses --------------------------------------------------------------------------------------------


class _StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    previous: str | None
    messages: tuple[ChatMessage, ...]
    items: dict[str, dict[str, Json]]
    size: int


class StoredResponses:
    """The newest responses, by subject and id. The oldest are dropped beyond `STORED_BYTES`."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[str, str], _StoredResponse] = OrderedDict()
        self._owners: dict[tuple[str, str], str] = {}  # (subject, item id) -> response id
        self._bytes = 0

    def add(
        self,
        subject: str,
        id: str,
        previous: str | None,
        messages: Sequence[ChatMessage],
        output: Sequence[dict[str, Json]],
    ) -> None:
        """Store a response: the messages of its request, and its output items."""
        said, _ = messages_of(list(output))
        whole = (*messages, *said)
        items = {str(item["id"]): item for item in output}
        size = _RESPONSE_BYTES + len(msgspec.json.encode((whole, items)))
        self._stored[subject, id] = _StoredResponse(previous=previous, messages=whole, items=items, size=size)
        self._owners.update({(subject, item): id for item in items})
        self._bytes += size
        # The oldest go first. A client that continues a dropped one must send its conversation again.
        while self._bytes > STORED_BYTES:
            (owner, _), oldest = self._stored.popitem(last=False)
            self._bytes -= oldest.size
            for item in oldest.items:
                self._owners.pop((owner, item), None)

    def messages(self, subject: str, id: str | None) -> list[ChatMessage]:
        """Return the conversation up to a response, its output included; empty without an id.

        Raises:
            NotFound: the response, or one that it continues, is not stored.
        """
        chain: list[_StoredResponse] = []
        wanted = id
        while wanted is not None:
            found = self._stored.get((subject, wanted))
            if found is None:
                raise NotFound(
                    f"previous_response_id: response {wanted[:60]!r} is not stored, or no longer; send the "
                    "conversation as `input`"
                )
            chain.append(found)
            wanted = found.previous
        return [message for each in reversed(chain) for message in each.messages]

    def item(self, subject: str, id: str) -> dict[str, Json] | None:
        """Return an output item of a stored response; None if there is none."""
        owner = self._owners.get((subject, id))
        return None if owner is None else self._stored[subject, owner].items[id]


# --- a run as a response -----------------------------------------------------------------------------------------


class ResponseProjection:
    """Mapping of a run to a response: as one reply, or as its stream of events.

    Args:
        calls: returns the calls that the run leaves to its client; called when the run is over.

    Attributes:
        error: `code` and `message`, once the run has failed.
        reply: the response so far.
    """

    def __init__(
        self,
        run: str,
        request: ResponsesRequest,
        created: int,
        *,
        calls: Callable[[], tuple[ToolCall, ...]] = tuple,
    ) -> None:
        self.error: tuple[str, str] | None = None
        self._run = run
        self._calls = calls
        self._view = RunView()
        self._number = 0
        self._began = self._said = self._turn_said = False
        self._finish = "stop"
        self.reply = ResponseReply(
            id=f"resp_{run}",
            created_at=created,
            model=request.model,
            status="in_progress",
            instructions=request.instructions,
            previous_response_id=request.previous_response_id,
            tools=[{"strict": None, **msgspec.to_builtins(tool)} for tool in request.tools or ()],
            tool_choice=msgspec.to_builtins(request.tool_choice) or "auto",
            parallel_tool_calls=request.parallel_tool_calls is not False,
            temperature=request.temperature,
            top_p=request.top_p,
            max_output_tokens=request.max_output_tokens,
            reasoning={"effort": None if request.reasoning is None else request.reasoning.effort, "summary": None},
            text={"format": _format_sent(request.text)},
            store=request.store is not False,
            metadata=request.metadata or {},
            callboard={"run": run},
        )

    @property
    def _message_id(self) -> str:
        return f"msg_{self._run}"

    def take(self, logged: LoggedEvent) -> list[Emitted]:
        """Return the events of the stream for an event of the run."""
        event = decode(logged.data)
        if event is None:
            return []
        self._view.see(event)
        return [self._numbered(kind, data) for kind, data in self._project(event)]

    def _numbered(self, kind: str, data: dict[str, Json]) -> Emitted:
        number, self._number = self._number, self._number + 1
        return kind, {"type": kind, "sequence_number": number, **data}

    def _project(self, event: Event) -> Iterator[Emitted]:
        match event.data:
            case ev.RunStarted() if not self._began:  # a run that another worker takes over emits RunStarted again
                self._began = True
                yield from self._whole("response.created")
                yield from self._whole("response.in_progress")
            case ev.LlmDelta(text=text) if text and self._view.speaks(event):
                # Texts of several model turns form one message, each beginning on a line of its own.
                between = "\n" if self._said and not self._turn_said else ""
                self._turn_said = True
                yield from self._say(between + text)
            case ev.LlmResponse(stop=stop) if self._view.speaks(event):
                self._turn_said = False
                self._finish = finish_of(stop)
            case ev.RunFinished() | ev.RunFailed() | ev.RunCancelled():
                yield from self._end(event.kind)

    def _whole(self, kind: str) -> Iterator[Emitted]:
        # A copy, because the reply still changes after this event.
        yield kind, {"response": msgspec.to_builtins(self.reply)}

    def _say(self, text: str) -> Iterator[Emitted]:
        at = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        if not self._said:
            self._said = True
            item = {**self._message(""), "content": [], "status": "in_progress"}
            yield "response.output_item.added", {"output_index": 0, "item": item}
            yield "response.content_part.added", {**at, "part": _text_part("")}
        yield "response.output_text.delta", {**at, "delta": text, "logprobs": []}

    def _message(self, text: str) -> dict[str, Json]:
        return {
            "id": self._message_id,
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [_text_part(text)],
        }

    def _end(self, kind: str) -> Iterator[Emitted]:
        reply, view = self.reply, self._view
        outcome = view.outcome or {}
        text = str(outcome["output"] or "")
        if text and not self._said:  # the answer of a graph, or of a worker's run with lost pieces
            yield from self._say(text)
        if self._said:
            item = self._message(text)
            at = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
            reply.output = [item]
            yield "response.output_text.done", {**at, "text": text, "logprobs": []}
            yield "response.content_part.done", {**at, "part": item["content"][0]}
            yield "response.output_item.done", {"output_index": 0, "item": item}
        # Only a finished run waits for results of its client's tools.
        calls = self._calls() if kind == "run.finished" else ()
        for number, call in enumerate(calls):
            yield from self._call(call, number)
        reply.usage = ResponsesUsage(
            input_tokens=view.input_tokens,
            output_tokens=view.output_tokens,
            total_tokens=view.input_tokens + view.output_tokens,
        )
        reply.callboard = self._extension(outcome)
        if kind != "run.finished":
            failed = outcome["error"] or {"code": "cancelled", "message": "the run was cancelled"}
            self.error = failed["code"], failed["message"]
            reply.status, reply.error = "failed", {"code": failed["code"], "message": failed["message"]}
            yield "error", {"code": failed["code"], "message": failed["message"], "param": None}
            yield from self._whole("response.failed")
        elif self._finish in ("length", "content_filter") and not calls:
            reason = "max_output_tokens" if self._finish == "length" else "content_filter"
            reply.status, reply.incomplete_details = "incomplete", {"reason": reason}
            yield from self._whole("response.incomplete")
        else:
            reply.status = "completed"
            yield from self._whole("response.completed")

    def _call(self, call: ToolCall, number: int) -> Iterator[Emitted]:
        written = call_as_openai(call)
        index, id = len(self.reply.output), f"fc_{self._run}_{number}"
        item: dict[str, Json] = {
            "id": id,
            "type": "function_call",
            "status": "completed",
            "call_id": written.id,
            "name": written.function.name,
            "arguments": written.function.arguments,
        }
        at = {"item_id": id, "output_index": index}
        yield (
            "response.output_item.added",
            {"output_index": index, "item": {**item, "arguments": "", "status": "in_progress"}},
        )
        yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
        yield "response.function_call_arguments.done", {**at, "name": item["name"], "arguments": item["arguments"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
        self.reply.output = [*self.reply.output, item]

    def _extension(self, outcome: dict[str, Json]) -> dict[str, Json]:
        sent: dict[str, Json] = {"run": self._run, "status": outcome["status"], "turns": outcome["turns"]}
        if self._view.priced:  # an unknown cost is omitted, because 0 would be wrong
            sent["cost"] = self._view.cost
        return sent | ({"state": outcome["state"]} if outcome["state"] else {})


def _text_part(text: str) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _format_sent(text: TextOptions | None) -> dict[str, Json]:
    wanted = TextFormat() if text is None or text.format is None else text.format
    sent: dict[str, Any] = msgspec.to_builtins(wanted)
    return {key: value for key, value in sent.items() if value is not None}
