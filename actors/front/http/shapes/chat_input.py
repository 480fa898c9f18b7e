"""What a request for a chat completion may hold, as OpenAI's clients write it.

Fields that are listed are honoured or refused. What is not listed (`seed`, `user`, `metadata`, `store`, penalties ...)
is taken and left alone: it changes nothing that a client would miss.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .....protocol.control.bounds import MOST, Json, Name, Object, Objects, Path, Text, Value, Variables
from .....protocol.errors import UsageError

MOST_TOOLS = 128


class CallWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Which function a call means; `arguments` is the text of a JSON object, as the model wrote it."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    arguments: Text = "{}"


class CallSaid(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an assistant message has made."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    function: CallWritten
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message: `content` is text, or parts of the types `text` and `image_url`.

    Attributes:
        tool_calls: of an assistant message.
        tool_call_id: of a `tool` message: the call whose result it is.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Objects | None = None
    tool_calls: Annotated[list[CallSaid], Meta(max_length=MOST)] | None = None
    tool_call_id: Name | None = None


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream has beside its text."""

    include_usage: bool | None = False


class FunctionOffered(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the client plays. `parameters` is a JSON Schema of type object."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    description: Value | None = None
    parameters: Object | None = None


class ToolOffered(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the client's."""

    type: Literal["function"]
    function: FunctionOffered


class SchemaWanted(msgspec.Struct, frozen=True, kw_only=True):
    """A schema that the answer has to fit."""

    schema: Object
    name: Name = ""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer has to look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaWanted | None = None


class CallboardOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What OpenAI has no word for.

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
    """As OpenAI's; see the module. Sampling is that of an agent, or of a model by itself: graphs have their own."""

    model: Annotated[Path, Meta(min_length=1, description="`agent/NAME`, `graph/NAME`, `workflow/NAME`, or a model.")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    stop: Value | Words | None = None
    response_format: Format | None = None
    n: Annotated[int, Meta(ge=1, le=1, description="One answer is what there is.")] | None = None
    tools: Annotated[list[ToolOffered], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: (
        Annotated[Literal["auto", "none"], Meta(description="Whether a tool is called is for the agent to say.")] | None
    ) = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[list[Json], Meta(max_length=0, description="Of an older API: `tools` is in its place.")] | (
        None
    ) = None
    logprobs: NeverTrue | None = None
    callboard: CallboardOptions = CallboardOptions()

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields of a `ChatRequest` that are asked for.

        Raises:
            UsageError: a schema is announced, and there is none.
        """
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        wanted = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "stop": stop or None,
            "response_schema": _schema_of(self.response_format),
        }
        return {name: value for name, value in wanted.items() if value is not None}


def _schema_of(wanted: Format | None) -> dict[str, Json] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    if wanted.json_schema is None:
        raise UsageError("response_format: the type json_schema needs a `json_schema` with a `schema`")
    return wanted.json_schema.schema
