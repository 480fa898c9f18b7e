"""Requests of a run to models and their replies, as stored next to its log.

`ModelCall` is an entry of a list; `ModelCallDetail` also has the request and the reply. Messages and tools are those
of `protocol.chat` as JSON, except for images and files, of which only the size is stored in `bytes`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .chat import TokenUsage, ToolCall

CallStatus = Literal["asked", "answered", "failed"]
"""State of a call. `asked`: there is no reply yet, or it was cut off because the call was cancelled or its process
ended.
"""


class FailedTry(msgspec.Struct, kw_only=True, frozen=True):
    """A try of a call that was made again: why, and after how many seconds."""

    error: str
    wait: float = 0.0


class ShownRequest(msgspec.Struct, kw_only=True):
    """Request to a model, independent of the provider.

    Attributes:
        messages: the conversation, oldest first.
        tools: offered to the model, each with its JSON Schema.
        parameters: what else was given: temperature, max_tokens, response_schema, ...
    """

    system: str = ""
    messages: list[Any] = []
    tools: list[Any] = []
    parameters: dict[str, Any] = {}


class ShownReply(msgspec.Struct, kw_only=True):
    """Reply of a model. `reasoning` is the reasoning that the provider returns, `stop` the reason of the end."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = []
    stop: str = ""
    usage: TokenUsage = TokenUsage()


class ModelCall(msgspec.Struct, kw_only=True):
    """Summary of a model request with all of its attempts.

    Attributes:
        number: its place among those of the run, from 1.
        id: of its events.
        started: when it went out first (RFC 3339).
        actor: the path of the actor that asked.
        model: `client:model`.
        messages, tools: how many went along.
        status: see `CallStatus`.
        calls: the names of the tools that the reply calls.
        seconds: from the first try to the reply.
        input_tokens, output_tokens, cost: of the reply; the cost is USD, None where the price is not known.
        error: what it failed with.
        tries: how many there were.
    """

    number: int
    id: str = ""
    started: str = ""
    actor: str = ""
    model: str = ""
    messages: int = 0
    tools: int = 0
    status: CallStatus = "asked"
    stop: str = ""
    calls: list[str] = []
    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    error: str = ""
    tries: int = 1


class ModelCallDetail(ModelCall, kw_only=True):
    """Model request with its reply; `failures` are the errors of its retried attempts."""

    request: ShownRequest
    reply: ShownReply | None = None
    failures: list[FailedTry] = []
