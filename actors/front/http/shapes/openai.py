"""OpenAI's chat completions: the fields of a request, and a run as a reply or as chunks.

Listed fields of a request are honoured or refused. Others (`seed`, `user`, `metadata`, `store`, penalties ...) are
ignored, because a client would not miss their effect. Data without a field in OpenAI's format is under `callboard`: the
run's id, its status, the cost of tokens, the nodes that it enters.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .....protocol import events as ev
from .....protocol.chat import ReasoningEffort, ToolCall
from .....protocol.control.method_structs import MOST, Json, Name, Object, Objects, Path, Text, Value, Variables
from .....protocol.errors import UsageError
from .....protocol.events import Event, decode
from ....views.run_view import RunView
from ...control.logs.files import LoggedEvent

MOST_TOOLS = 128


class CallWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Function of a call, and its `arguments`: the text of a JSON object, as the model wrote it."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    arguments: Text = "{}"


class CallSaid(msgspec.Struct, frozen=True, kw_only=True):
    """Tool call in an assistant message."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    function: CallWritten
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Message: `content` is text, or parts of the types `text` and `image_url`.

    Attributes:
        tool_calls: of an assistant message.
        tool_call_id: of a `tool` message: the call whose result it is.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Objects | None = None
    tool_calls: Annotated[list[CallSaid], Meta(max_length=MOST)] | None = None
    tool_call_id: Name | None = None


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = False


class FunctionOffered(msgspec.Struct, frozen=True, kw_only=True):
    """Function that the client executes. `parameters` is a JSON Schema of type object."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    description: Value | None = None
    parameters: Object | None = None


class FunctionNamed(msgspec.Struct, frozen=True, kw_only=True):
    """Name of a function."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]


class ToolNamed(msgspec.Struct, frozen=True, kw_only=True):
    """Tool that the model must call first."""

    type: Literal["function"]
    function: FunctionNamed


class ToolOffered(msgspec.Struct, frozen=True, kw_only=True):
    """Tool that the client executes."""

    type: Literal["function"]
    function: FunctionOffered


class SchemaWanted(msgspec.Struct, frozen=True, kw_only=True):
    """JSON Schema that the answer must match."""

    schema: Object
    name: Name = ""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """Format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaWanted | None = None


class CallboardOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that OpenAI's format does not have.

    Attributes:
        variables: values of the agent's variables.
        state: replaces keys of a graph's `initial_state`.
        timeout: seconds after which the run is ended.
    """

    variables: Variables = {}
    state: Object = {}
    timeout: Annotated[float, Meta(gt=0)] | None = None


Limit = Annotated[int, Meta(ge=1, le=10_000_000)]
Words = Annotated[list[Annotated[Value, Meta(min_length=1)]], Meta(max_length=16)]
NeverTrue = Annotated[Literal[False], Meta(description="There are none.")]


class ChatCompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request in OpenAI's format. Sampling options apply to an agent, or to a model itself; graphs have their own."""

    model: Annotated[Path, Meta(min_length=1, description="`agent/NAME`, `graph/NAME`, `workflow/NAME`, or a model.")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    reasoning_effort: ReasoningEffort | None = None
    stop: Value | Words | None = None
    response_format: Format | None = None
    n: Annotated[int, Meta(ge=1, le=1, description="Only one answer is supported.")] | None = None
    tools: Annotated[list[ToolOffered], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: (
        Annotated[
            Literal["auto", "none", "required"],
            Meta(description="`required`: the first answer must be a call. Later answers are up to the agent."),
        ]
        | ToolNamed
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[list[Json], Meta(max_length=0, description="Deprecated by OpenAI: use `tools` instead.")] | (
        None
    ) = None
    logprobs: NeverTrue | None = None
    callboard: CallboardOptions = CallboardOptions()

    @property
    def first_choice(self) -> str | None:
        """The `tool_choice` of the first request: `required`, or the name of a tool; None leaves it to the model.

        Raises:
            UsageError: the tool is not among `tools`, or `required` comes without `tools`.
        """
        names = [tool.function.name for tool in self.tools or ()]
        if isinstance(self.tool_choice, ToolNamed):
            name = self.tool_choice.function.name
            if name not in names:
                raise UsageError(f"tool_choice: {name!r} is not one of `tools`")
            return name
        if self.tool_choice != "required":
            return None
        if not names:
            raise UsageError("tool_choice: `required` needs `tools`")
        return "required"

    @property
    def sampling(self) -> dict[str, Any]:
        """The requested fields of a `ChatRequest`.

        Raises:
            UsageError: the type `json_schema` comes without a schema.
        """
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        wanted = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            # The newer of OpenAI's two names takes precedence.
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "stop": stop or None,
            "response_schema": _schema_of(self.response_format),
        }
        found = {name: value for name, value in wanted.items() if value is not None}
        # The agent's own budget must not be combined with the requested effort.
        return found if self.reasoning_effort is None else {**found, "thinking_budget": None}


def _schema_of(wanted: Format | None) -> dict[str, Json] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    if wanted.json_schema is None:
        raise UsageError("response_format: the type json_schema needs a `json_schema` with a `schema`")
    return wanted.json_schema.schema


Finish = Literal["stop", "length", "tool_calls", "content_filter"]

_FINISH: dict[str, Finish] = {"length": "length", "refused": "content_filter"}
"""OpenAI's `finish_reason` by stop reason."""


def finish_of(stop: str) -> Finish:
    """Return OpenAI's `finish_reason` for the stop reason of a reply; "stop" for any without a counterpart."""
    return _FINISH.get(stop, "stop")


class ChatUsage(msgspec.Struct, kw_only=True):
    """Number of tokens under OpenAI's names."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Message with the answer."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None
    tool_calls: list[CallSaid] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice of a reply."""

    message: Said
    index: int = 0
    finish_reason: Finish = "stop"
    logprobs: None = None


class ChatCompletionReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a chat completion request."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    callboard: dict[str, Any]
    object: Literal["chat.completion"] = "chat.completion"


class ChatCompletionProjection:
    """Mapping of a run to a chat completion: as one reply, or as chunks.

    Args:
        usage: True sends the usage at the end of a stream.
        calls: returns the calls that the run leaves to its client; called when the run is over.

    Attributes:
        error: `code` and `message`, once the run has failed.
    """

    def __init__(
        self,
        run: str,
        model: str,
        created: int,
        *,
        usage: bool = False,
        calls: Callable[[], tuple[ToolCall, ...]] = tuple,
    ) -> None:
        self.error: tuple[str, str] | None = None
        self._calls = calls
        self._finish: Finish = "stop"
        self._run, self._model, self._created = run, model, created
        self._wants_usage = usage
        self._view = RunView()
        self._said = self._turn_said = False

    def take(self, logged: LoggedEvent) -> list[dict[str, Json]]:
        """Return the chunks of the stream for an event of the run."""
        event = decode(logged.data)
        if event is None:
            return []
        self._view.see(event)
        match event.data:
            case ev.RunStarted():
                return [self._chunk({"role": "assistant", "content": ""}, callboard={"run": self._run})]
            case ev.LlmDelta(text=text) if text and self._view.speaks(event):
                between = "\n" if self._said and not self._turn_said else ""
                self._said = self._turn_said = True
                return [self._chunk({"content": between + text})]
            case ev.LlmResponse(stop=stop) if self._view.speaks(event):
                self._turn_said = False
                self._finish = finish_of(stop)
            case ev.NodeEntered() | ev.NodeExited() | ev.QuestionAsked():
                told = {"kind": event.kind, "seq": event.seq, **msgspec.to_builtins(event.data)}
                return [self._chunk({}, callboard={"event": told})]
            case ev.RunFinished() | ev.RunFailed() | ev.RunCancelled():
                return self._ended(event)
        return []

    def _ended(self, event: Event) -> list[dict[str, Json]]:
        outcome = self._outcome
        chunks = []
        if not self._said and outcome["output"]:
            chunks.append(self._chunk({"content": outcome["output"]}))
        if event.kind != "run.finished":
            error = outcome["error"] or {"code": "cancelled", "message": "the run was cancelled"}
            self.error = error["code"], error["message"]
            return [*chunks, {"error": {"code": error["code"], "message": error["message"], "type": "run_failed"}}]
        calls = [call_as_openai(call) for call in self._calls()]
        if calls:
            # OpenAI's streams number the calls, its whole replies do not.
            told = [{"index": number, **msgspec.to_builtins(call)} for number, call in enumerate(calls)]
            chunks.append(self._chunk({"tool_calls": told}))
        chunks.append(self._chunk({}, finish="tool_calls" if calls else self._finish, callboard=self._extension()))
        if self._wants_usage:
            last = self._chunk({})
            # OpenAI's `include_usage`: a further chunk, without choices, after the one with the `finish_reason`.
            chunks.append({**last, "choices": [], "usage": msgspec.to_builtins(self._usage())})
        return chunks

    @property
    def reply(self) -> ChatCompletionReply:
        """Complete reply of a run that is over."""
        output, calls = self._outcome["output"], [call_as_openai(call) for call in self._calls()]
        if calls:
            said = Said(content=output or None, tool_calls=calls)
            choice = ChatChoice(message=said, finish_reason="tool_calls")
        else:
            choice = ChatChoice(message=Said(content=output), finish_reason=self._finish)
        return ChatCompletionReply(
            id=f"chatcmpl-{self._run}",
            created=self._created,
            model=self._model,
            choices=[choice],
            usage=self._usage(),
            callboard=self._extension(),
        )

    def _usage(self) -> ChatUsage:
        prompt, completion = self._view.input_tokens, self._view.output_tokens
        return ChatUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)

    @property
    def _outcome(self) -> dict[str, Json]:
        return self._view.outcome or {}

    def _extension(self) -> dict[str, Json]:
        outcome = self._outcome
        told = {"run": self._run, "status": outcome["status"], "turns": outcome["turns"]}
        if self._view.priced:  # an unknown cost is omitted, because 0 would be wrong
            told["cost"] = self._view.cost
        return told | ({"state": outcome["state"]} if outcome["state"] else {})

    def _chunk(
        self, delta: dict[str, Json], *, finish: str | None = None, callboard: dict[str, Json] | None = None
    ) -> dict[str, Json]:
        chunk = {
            "id": f"chatcmpl-{self._run}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
        }
        return chunk if callboard is None else {**chunk, "callboard": callboard}


def call_as_openai(call: ToolCall) -> CallSaid:
    """Return a call in OpenAI's format."""
    arguments = call.malformed or msgspec.json.encode(call.arguments).decode()
    return CallSaid(id=call.id, function=CallWritten(name=call.name, arguments=arguments))


MOST_INPUTS = 2048


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/embeddings`. Other fields (`user`) are ignored.

    Attributes:
        model: `client:model`, or the name of the model that `rag_embedding_model` sets.
        input: one text, or several; lists of token numbers are refused.
        dimensions: numbers per vector, for models that can shorten theirs.
    """

    model: Annotated[Path, Meta(min_length=1)]
    input: Text | Annotated[list[Text], Meta(min_length=1, max_length=MOST_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Meta(ge=1, le=100_000)] | None = None

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        return [self.input] if isinstance(self.input, str) else self.input


class EmbeddingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Vector of a text: numbers, or the base64 of 32-bit little-endian numbers."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingsUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, as the provider counted them; 0 for models of this machine and vectors from the cache."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class EmbeddingsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors of length one, in the order of the texts."""

    data: list[EmbeddingEntry]
    model: str
    usage: EmbeddingsUsage
    object: Literal["list"] = "list"


def reply_of(rows: Sequence[Sequence[float]], request: EmbeddingsRequest, model: str, tokens: int) -> EmbeddingsReply:
    """Return the reply with these vectors, in the encoding that the request names; `tokens` is the usage."""
    as_text = request.encoding_format == "base64"
    data = [
        EmbeddingEntry(index=index, embedding=_packed(row) if as_text else list(row)) for index, row in enumerate(rows)
    ]
    return EmbeddingsReply(data=data, model=model, usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens))


def _packed(row: Sequence[float]) -> str:
    # OpenAI's vectors in base64 are 32-bit floats, little-endian, on every machine.
    numbers = array("f", row)
    if sys.byteorder != "little":
        numbers.byteswap()
    return base64.b64encode(numbers).decode()
