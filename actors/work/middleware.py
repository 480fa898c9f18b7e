"""Middleware around requests to models: filters, caches, routers, retries of the program's own.

    async def without_numbers(request, call_next):
        reply = await call_next(hide_numbers(request))
        return msgspec.structs.replace(reply, text=restore_numbers(reply.text))

    outcome = await root.run(clerk, "Call 555-1234", middleware=[without_numbers])

The first middleware is the outermost. It gets the request of the agent, and returns the reply that the agent gets.
`call_next` may be awaited never (a cache), once, or several times, one after the other. Each time is a request of its
own: it has its own tries, events, and costs. A reply without any request costs nothing, but counts as a turn, so that
`max_turns` ends an agent that only a cache answers.

Pieces of text are streamed as the model gives them, thus before the middleware sees the reply. A middleware that
changes replies passes on a request with `stream=False`: then the text is emitted as it is returned.

The chain runs in the event loop of the run's caller, as async tools do. Journals and cassettes record the reply that
comes out of it, so it is not called again when a run is resumed or replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, final

import msgspec
import trio

from ...protocol.chat import ChatReply, ChatRequest, Delta, Restarted, TokenUsage
from ...protocol.errors import CallboardError, ModelError, UsageError
from ...supervisors.event_loops import caller
from ...supervisors.user_code import user_code
from .models.codec import check_reply
from .playback import RecordedReply

if TYPE_CHECKING:
    from ...supervisors import Actor
    from .playback import Asking

CallNext: TypeAlias = Callable[[ChatRequest], Awaitable[ChatReply]]
"""Passes a request to the next middleware, or to the model, and returns the reply."""

Middleware: TypeAlias = Callable[[ChatRequest, CallNext], Awaitable[ChatReply]]
"""Async callable around requests to models; see the module `callboard.actors.work.middleware`."""

Send: TypeAlias = Callable[[ChatRequest, "Callable[[Delta], None] | None"], Awaitable[ChatReply]]
"""Sends a request to its model; the second argument is called with the pieces of the reply."""

_ids = count(1)

log = logging.getLogger("callboard.models")


def checked(middleware: Iterable[Middleware], what: str) -> tuple[Middleware, ...]:
    """Return middleware as a tuple, after checking that each of them can be called.

    Args:
        what: name of the argument, for errors.

    Raises:
        UsageError: the argument is neither a list nor a tuple, or an item is not callable.
    """
    given: Any = middleware
    if not isinstance(given, list | tuple):
        raise UsageError(f"{what}: expected a list of async functions `(request, call_next)`, got {given!r}")
    several: tuple[Middleware, ...] = tuple(given)
    for each in several:
        if not callable(each):
            raise UsageError(f"{what}: {each!r} is not an async function `(request, call_next)`")
    return several


async def through(
    middleware: Sequence[Middleware], me: Actor, request: ChatRequest, asking: Asking, send: Send
) -> ChatReply:
    """Return the reply that the middleware gives to a request of `me`.

    Raises:
        CallboardError: raised by the middleware or the request, or a limit of the run is already reached.
        ModelError: the middleware raised another exception, or returned no `ChatReply`.
    """
    return await _Passage(middleware, me, asking, send).reply(request)


@final
class _Passage:
    """Request passing through the middleware."""

    def __init__(self, middleware: Sequence[Middleware], me: Actor, asking: Asking, send: Send) -> None:
        self._middleware = middleware
        self._me = me
        self._asking = asking
        self._send = send
        self._sent = 0
        self._heard = False

    async def reply(self, request: ChatRequest) -> ChatReply:
        me, account = self._me, self._asking.account
        if account is not None:
            account.check(turn=True)
        host, chain = caller.get(), partial(self._call, 0, request)
        with user_code:
            reply = await (chain() if host is None else host.run(chain, me.cleanup))
        played = RecordedReply(
            me, f"mw-{next(_ids)}", reply.model or request.model or "middleware", request, self._asking
        )
        # No request was sent, so no code has emitted events or counted a turn for this reply yet.
        if not self._sent:
            played.asked()
            return played.answered(
                msgspec.structs.replace(reply, model=reply.model or "middleware", usage=TokenUsage(), cost=0.0)
            )
        # With `stream=False` no piece was emitted: emit the text that the middleware returned.
        if not self._heard:
            played.emit_text(reply.text, reply.reasoning)
        check_reply(reply)
        return reply

    async def _call(self, index: int, request: ChatRequest) -> ChatReply:
        """Call the middleware with this index, in the caller's event loop; after the last, the model."""
        if not isinstance(request, ChatRequest):
            raise ModelError(f"`call_next` takes a ChatRequest, not {type(request).__name__}")
        if index == len(self._middleware):
            return await self._in_root(partial(self._ask, request))
        middleware = self._middleware[index]
        name = getattr(middleware, "__qualname__", type(middleware).__name__)
        try:
            reply: Any = await middleware(request, partial(self._call, index + 1))
        except CallboardError:
            raise
        except Exception as error:  # a program's own code may raise anything
            log.exception("the middleware %s raised an exception (for %s)", name, self._me.path)
            raise ModelError(f"the middleware {name} raised {type(error).__name__}: {error}") from error
        if not isinstance(reply, ChatReply):
            raise ModelError(f"the middleware {name} returned {type(reply).__name__} instead of a ChatReply")
        return reply

    async def _in_root(self, function: Callable[[], Awaitable[ChatReply]]) -> ChatReply:
        # The model client belongs to the loop of the root; middleware may run in the caller's loop or thread.
        loop = self._me.root.loop
        if loop is None or (trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is loop.token):
            return await function()
        return await loop.call(function)

    async def _ask(self, request: ChatRequest) -> ChatReply:
        hears = self._asking.hears
        # A second request after pieces of a first: listeners must discard those pieces.
        if self._heard and hears is not None:
            hears(Restarted())
            self._heard = False
        self._sent += 1
        return await self._send(request, None if hears is None or request.stream is False else self._hear)

    def _hear(self, delta: Delta) -> None:
        self._heard = True
        if self._asking.hears is not None:
            self._asking.hears(delta)
