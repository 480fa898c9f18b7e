"""Models implemented in Python: a custom provider, a model in the same process, a router.

    class Echo:
        name = "lab:echo"

        async def request(self, request):
            yield "You said: "
            yield callboard.chat.text_of(request.messages[-1].content)

    outcome = await root.run(clerk, "Hello", model=Echo())

The gateway treats such a model like any other. It waits for the limiter, retries transient errors, counts tokens and
costs, charges the limits of the run, emits the events, and records the reply in journals and cassettes.

`request` runs in the event loop of the run's caller, as async tools do. Cancelling the run closes the iterator.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import msgspec
import trio

from ....protocol.chat import (
    ChatReply,
    ChatRequest,
    Delta,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCall,
    ToolCallDelta,
)
from ....protocol.decoding import convert
from ....protocol.errors import CallboardError, ModelError, UsageError
from ....protocol.settings import ModelSettings
from ....supervisors.event_loops import caller
from ....supervisors.user_code import user_code
from .codec import ReplyBuilder, arguments_text

ModelPiece: TypeAlias = str | TextDelta | ReasoningDelta | ToolCallDelta | ToolCall | TokenUsage | ChatReply
"""Piece of a reply: text, reasoning, a call of a tool or a part of one, the tokens used. A `ChatReply` is the whole
reply, and ends the iteration; what was yielded before it has been streamed, and is not part of it."""

CLEANUP = 1.0
"""Seconds that a cancelled request may take to end in the caller's asyncio loop."""

log = logging.getLogger("callboard.models")


@runtime_checkable
class Model(Protocol):
    """A model made in Python.

    An optional attribute `settings` is a mapping with keys of a model in `config.yaml`: `input_price`, `output_price`,
    `max_input_tokens`, `supports_vision`, `max_concurrency`, and others.

    Attributes:
        name: `client:model`, in events, in `usage`, and in agents and graphs that name it.
    """

    @property
    def name(self) -> str:
        """Id of the model, `client:model`."""
        ...

    def request(self, request: ChatRequest) -> AsyncIterator[ModelPiece] | Awaitable[ChatReply]:
        """Return the reply: an async generator of its pieces, or a coroutine for the whole.

        Raises:
            UpstreamError: the request may succeed if it is repeated; the gateway repeats it.
            ModelError: a repetition would not help. Any other exception counts as a ModelError, and is logged with its
                traceback.
        """
        ...


def is_model(value: object) -> bool:
    """Return True for an object with a method `request`; False for a string or a class."""
    return not isinstance(value, str | type) and callable(getattr(value, "request", None))


def by_name(models: Iterable[Model], what: str) -> dict[str, Model]:
    """Return models by their names. The same object may occur several times.

    Args:
        what: the argument that has them, for errors.

    Raises:
        UsageError: an object is no model, or two have the same name.
    """
    found: dict[str, Model] = {}
    for model in models:
        name = name_of(model, what)
        if found.setdefault(name, model) is not model:
            raise UsageError(f"{what}: two models have the name '{name}'")
    return found


def name_of(model: Model, what: str) -> str:
    """Return the name of a model.

    Raises:
        UsageError: the object is no model, or its name or its settings can't be used.
    """
    name: Any = getattr(model, "name", None)
    if not is_model(model):
        raise UsageError(f"{what}: {model!r} is not a callboard.Model: it has no method `request(request)`")
    client, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not client or not rest or "," in name or name != name.strip():
        raise UsageError(f"{what}: the `name` of {type(model).__name__} must be 'client:model', not {name!r}")
    settings_of(model, what)
    return str(name)


def settings_of(model: Model, what: str = "models") -> ModelSettings:
    """Return the settings of a model.

    Raises:
        UsageError: they have a wrong key or value.
    """
    given: Any = getattr(model, "settings", None) or {}
    try:
        if not isinstance(given, Mapping):
            raise TypeError(f"expected a mapping, got {type(given).__name__}")
        if unknown := given.keys() - set(ModelSettings.__struct_fields__):
            raise ValueError(f"unknown key '{min(unknown, key=str)}'")
        return convert({**given, "name": model.name.partition(":")[2]}, ModelSettings)
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{what}: `settings` of the model '{model.name}': {error}") from error


@final
class PythonReplies:
    """Replies of a Python model, in the form that the gateway uses (`ModelTarget.prepared`)."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def reply(self, path: str, request: ChatRequest, hears: Callable[[Delta], object]) -> ChatReply:
        """Return the reply to a request.

        Args:
            path: of the actor that asks.
            hears: called with each piece, in the root's event loop.

        Raises:
            CallboardError: as the model raised it.
            ModelError: the model raised another exception, or its reply or one of the pieces has a wrong type.
        """
        model, host = self._model, caller.get()
        try:
            with user_code:
                # Without a host, the run's caller is in the root's own event loop.
                if host is None:
                    return await _replied(model, request, hears)
                replied = partial(_replied, model, request, host.into_root(hears))
                return await host.run(replied, partial(trio.move_on_after, CLEANUP, shield=True))
        except CallboardError:
            raise
        except Exception as error:  # a program's own code may raise anything
            log.exception("the model %s raised an exception (for %s)", model.name, path)
            raise ModelError(f"the model {model.name} raised {type(error).__name__}: {error}") from error


async def _replied(model: Model, request: ChatRequest, hears: Callable[[Delta], object]) -> ChatReply:
    made: Any = model.request(request)
    if inspect.isawaitable(made):
        return _whole(model, await made, hears)
    if not hasattr(made, "__aiter__"):
        return _whole(model, made, hears)
    build = ReplyBuilder()
    if not isinstance(made, AsyncGenerator):
        return await _joined(model, made, build, hears)
    # Without `aclosing`, a cancelled generator would run its cleanup later, in the garbage collector.
    async with aclosing(made):
        return await _joined(model, made, build, hears)


async def _joined(
    model: Model, pieces: AsyncIterator[ModelPiece], build: ReplyBuilder, hears: Callable[[Delta], object]
) -> ChatReply:
    heard = False
    async for piece in pieces:
        match piece:
            case ChatReply():
                if not heard:
                    _send_deltas(piece, hears)
                return piece
            case str():
                deltas = build.text(piece)
            case TextDelta():
                deltas = build.text(piece.text)
            case ReasoningDelta():
                deltas = build.reasoning(piece.text)
            case ToolCallDelta():
                deltas = build.fragment(piece.index, id=piece.id, name=piece.name, arguments=piece.arguments)
            case ToolCall():
                arguments = arguments_text(piece.arguments)
                deltas = build.call(
                    build.calls, id=piece.id, name=piece.name, arguments=arguments, signature=piece.signature
                )
            case TokenUsage():
                build.usage = piece
                continue
            case _:
                raise ModelError(
                    f"the model {model.name} yielded {type(piece).__name__}, which is not a piece of a reply"
                )
        for delta in deltas:
            heard = True
            hears(delta)
    return build.build()


def _whole(model: Model, reply: Any, hears: Callable[[Delta], object]) -> ChatReply:
    if isinstance(reply, str):
        reply = ChatReply(text=reply)
    if not isinstance(reply, ChatReply):
        raise ModelError(f"the model {model.name} returned {type(reply).__name__} instead of a ChatReply")
    _send_deltas(reply, hears)
    return reply


def _send_deltas(reply: ChatReply, hears: Callable[[Delta], object]) -> None:
    if reply.reasoning:
        hears(ReasoningDelta(reply.reasoning))
    if reply.text:
        hears(TextDelta(reply.text))
