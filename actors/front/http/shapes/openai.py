"""Maps a run to a chat completion of OpenAI's; `chat_input` is what a request holds.

What OpenAI has no field for stands under `callboard`: the run's id, its status, tokens' cost, the nodes it passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from .....protocol import events as ev
from .....protocol.chat import ToolCall
from .....protocol.events import Event
from .....protocol.events.decode import decode
from ....views.run_view import RunView
from ...control.logs.reading import LoggedEvent
from .chat_input import CallSaid, CallWritten

Json = Any


Finish = Literal["stop", "length", "tool_calls", "content_filter"]

_FINISH: dict[str, Finish] = {"length": "length", "refused": "content_filter"}
"""By why the model has stopped."""


class ChatUsage(msgspec.Struct, kw_only=True):
    """Tokens as OpenAI counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The message that answers."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None
    tool_calls: list[CallSaid] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer."""

    message: Said
    index: int = 0
    finish_reason: Finish = "stop"
    logprobs: None = None


class ChatCompletionReply(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    callboard: dict[str, Json]
    object: Literal["chat.completion"] = "chat.completion"


class Chat:
    """Tells a run as a chat completion.

    Args:
        usage: tell a stream's usage at its end.
        calls: those that the run has left to its client; asked for when it is done.

    Attributes:
        error: what the run failed with, once it has: `code` and `message`.
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
        """The chunks for an event."""
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
                self._finish = _FINISH.get(stop, "stop")
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
        calls = [_call_told(call) for call in self._calls()]
        if calls:
            told = [{"index": number, **msgspec.to_builtins(call)} for number, call in enumerate(calls)]
            chunks.append(self._chunk({"tool_calls": told}))
        chunks.append(self._chunk({}, finish="tool_calls" if calls else self._finish, callboard=self._beside()))
        if self._wants_usage:
            last = self._chunk({})
            chunks.append({**last, "choices": [], "usage": msgspec.to_builtins(self._usage())})
        return chunks

    def reply(self) -> ChatCompletionReply:
        """The whole, of a run that is done."""
        output, calls = self._outcome["output"], [_call_told(call) for call in self._calls()]
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
            callboard=self._beside(),
        )

    def _usage(self) -> ChatUsage:
        prompt, completion = self._view.input_tokens, self._view.output_tokens
        return ChatUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)

    @property
    def _outcome(self) -> dict[str, Json]:
        return self._view.outcome or {}

    def _beside(self) -> dict[str, Json]:
        outcome = self._outcome
        told = {"run": self._run, "status": outcome["status"], "turns": outcome["turns"], "cost": self._view.cost}
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


def _call_told(call: ToolCall) -> CallSaid:
    arguments = call.malformed or msgspec.json.encode(call.arguments).decode()
    return CallSaid(id=call.id, function=CallWritten(name=call.name, arguments=arguments))
