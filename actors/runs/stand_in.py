"""Test models: Python objects that answer in place of models, without a network, a key or a configuration.

    model = ScriptedModel(["Let me see.", call("look_up", key="a"), "It is 7."])
    outcome = await root.run(clerk, "What is a?", model=model)
    assert model.requests[1].messages[-1].content == "7"

Except for the replies, the whole run is real: events, limits, permissions, tools, journal, cassettes.
`callboard.testing` exports this module's names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, final

import msgspec
import trio

from ...protocol.chat import ChatReply, ChatRequest, TokenUsage, ToolCall, ToolTurn, UserTurn, text_of
from ...protocol.deferred_types import defer
from ...protocol.errors import CallboardError, ModelError
from ...protocol.json_values import to_json
from ...supervisors.event_loops import caller
from ...supervisors.user_code import user_code
from ..work.models.call import about_tokens
from ..work.playback import RecordedReply
from .loading import stand_ins

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ..work.playback import Asking
else:
    defer(globals(), {"...supervisors": "Actor", "..work.playback": "Asking"})

Said: TypeAlias = Any
"""Reply of a test model. It is one of:

- a text
- a `ToolCall` (see `call`)
- a list of texts and calls, which is one reply
- a `ChatReply`
- an exception, which the request fails with
- any other value, which is returned as JSON (the result of a typed run)
"""

_ids = count(1)


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Return a call of a tool, as a reply of a test model."""
    return ToolCall(id=f"call_{next(_ids)}", name=name, arguments=arguments)


class FunctionModel:
    """Model implemented by a Python function.

    As the `model` of a run it answers in place of all models of the run. As the model of an agent, or by its name, it
    is a `callboard.Model` like any other.

    Args:
        function: called with each request; returns a reply, see `Said`. An async function runs in the event loop of the
            run's caller.
        name: name of the model, in events and in `usage`.

    Attributes:
        requests: the requests that it received, in order.
    """

    def __init__(self, function: Callable[[ChatRequest], Said], *, name: str = "test:function") -> None:
        self.name = name
        self.requests: list[ChatRequest] = []
        self._function = function

    @property
    def prompts(self) -> list[str]:
        """The text of the last user message of each request."""
        return [_last_text(request) for request in self.requests]

    @property
    def results(self) -> list[str]:
        """The results of tools in the last request, as text, oldest first."""
        if not self.requests:
            return []
        return [text_of(turn.content) for turn in self.requests[-1].messages if isinstance(turn, ToolTurn)]

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Answer all runs of this process that begin within the block, whatever models they name.

        For tests of programs that start their runs themselves.
        """
        stand_ins.append(self.answer)
        try:
            yield
        finally:
            stand_ins.remove(self.answer)

    async def request(self, request: ChatRequest) -> ChatReply:
        """Return the reply to a request, as any `callboard.Model`: `Agent(model=...)`, `Root(models=[...])`."""
        self.requests.append(request)
        said = self._function(request)
        return reply_of(await said if inspect.isawaitable(said) else said, request)

    async def answer(self, me: Actor, request: ChatRequest, asking: Asking) -> ChatReply:
        """Return the reply to a request of `me`; it is counted and emits events like that of any model."""
        if asking.account is not None:
            asking.account.check(turn=True)
        self.requests.append(request)
        model = request.model or self.name
        played = RecordedReply(me, f"llm-{next(_ids)}", model, request, asking)
        played.asked()
        try:
            said = await self._reply(me, request)
            # The function may be sync and return at once; a run that only asks test models must still be cancellable.
            await trio.lowlevel.checkpoint()
            reply = reply_of(said, request)
        except CallboardError as error:
            raise played.failed(error) from error.__cause__
        return played.answered(msgspec.structs.replace(reply, model=reply.model or model))

    async def _reply(self, me: Actor, request: ChatRequest) -> Said:
        try:
            with user_code:
                said = self._function(request)
                if inspect.isawaitable(said):
                    host = caller.get()
                    said = await (said if host is None else host.run(lambda: said, me.cleanup))
        except CallboardError:
            raise
        # A program's function may raise anything; the run fails with the name of the exception.
        except Exception as error:
            raise ModelError(f"the function of {self.name} raised {type(error).__name__}: {error}") from error
        return said


@final
class ScriptedModel(FunctionModel):
    """Model that returns a list of replies in order.

    Args:
        replies: the replies; see `Said`. A function among them is called with the request and returns the reply.
        name: see `FunctionModel`.

    Attributes:
        remaining: replies that were not used yet.
    """

    def __init__(self, replies: Iterable[Said], *, name: str = "test:scripted") -> None:
        super().__init__(self._next, name=name)
        self.remaining: list[Said] = list(replies)

    def assert_done(self) -> None:
        """Check that all replies were used.

        Raises:
            AssertionError: some were not.
        """
        if self.remaining:
            raise AssertionError(
                f"{self.name} was not asked for {len(self.remaining)} of its replies: {self.remaining}"
            )

    def _next(self, request: ChatRequest) -> Said:
        if not self.remaining:
            asked = f"request {len(self.requests)}, whose last words are {_last_text(request)[:200]!r}"
            raise ModelError(f"{self.name} has no reply left for {asked}")
        said = self.remaining.pop(0)
        return said(request) if callable(said) and not isinstance(said, type) else said


def reply_of(said: Said, request: ChatRequest) -> ChatReply:
    """Convert the value that a test model returned to a reply.

    Raises:
        CallboardError: the value is such an error.
        ModelError: the value is another exception, or cannot be converted to JSON.
    """
    match said:
        case ChatReply():
            return said
        case CallboardError():
            raise said
        case BaseException():
            raise ModelError(f"{type(said).__name__}: {said}") from said
        case str() | ToolCall():
            parts: Sequence[Any] = (said,)
        case list() | tuple() if any(isinstance(each, ToolCall) for each in said):
            parts = said
        case _:
            parts = (said,)
    calls = tuple(each for each in parts if isinstance(each, ToolCall))
    text = "\n".join(_text(each) for each in parts if not isinstance(each, ToolCall))
    usage = TokenUsage(input_tokens=about_tokens(request), output_tokens=-(-len(text) // 4) + 10 * len(calls))
    return ChatReply(text=text, tool_calls=calls, stop="tools" if calls else "end", usage=usage)


def _text(said: Said) -> str:
    if isinstance(said, str):
        return said
    try:
        return msgspec.json.encode(to_json(said)).decode()
    except TypeError as error:
        raise ModelError(f"{said!r} can't be the reply of a model: {error}") from error


def _last_text(request: ChatRequest) -> str:
    said = [text_of(turn.content) for turn in request.messages if isinstance(turn, UserTurn)]
    return said[-1] if said else ""
