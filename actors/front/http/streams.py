"""Replies that are made while the client waits, such as streams of events, and runs that end with their request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

import msgspec
import trio
from starlette.types import Receive, Scope, Send

from ....protocol.control.caller import LOCAL
from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError
from ...io.http.sse import HEADERS, PING, PING_EVERY, event
from .call import Call, reply

END_WITHIN = 2.0
"""Seconds that a run has to end in whose client has left."""

T = TypeVar("T")
Say = Callable[[bytes], Awaitable[None]]

_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}.items()
]


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T | None:
    """Do the work; None if the client left before it was done, and the work was cancelled.

    The request's body must have been read before. What the work raises is raised as it is.
    """
    error: Exception | None = None
    value: T | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
        try:
            value = await work()
        except Exception as raised:  # noqa: BLE001 - raised again outside of the nursery, which would wrap it
            error = raised
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
    return value


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class Performed:
    """A reply that is made by doing something, as long as the client is there to get it."""

    def __init__(self, perform: Callable[[Send], Awaitable[None]]) -> None:
        self._perform = perform

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        await while_there(receive, lambda: self._perform(send))


class EventStream:
    """A reply that is a stream of events.

    Args:
        tell: says all there is to say; it is cancelled when the client leaves.
    """

    def __init__(self, tell: Callable[[Say], Awaitable[object]]) -> None:
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application; a HEAD does not wait for what there would be to tell."""
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await while_there(receive, lambda: self.run(send))

    async def run(self, send: Send) -> None:
        """Begin the reply, stream it, end it. The caller handles a client that leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        line = _Line(send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.ping)
            await self._tell(line.say)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Line:
    """What was said last, and when."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = trio.Lock()
        self._said = trio.current_time()

    async def say(self, text: bytes) -> None:
        async with self._lock:
            self._said = trio.current_time()
            await self._send({"type": "http.response.body", "body": text, "more_body": True})

    async def ping(self) -> None:
        await self.say(PING)
        while True:
            await trio.sleep_until(self._said + PING_EVERY)
            if trio.current_time() >= self._said + PING_EVERY:
                await self.say(PING)


def check_after(call: Call, run: str, after: int) -> None:
    """Raise what `Hub.follow` would raise, as long as there is no reply yet that it could break off."""
    call.hub.subscribe(call.caller, run, after)


class Running:
    """A block for a run, which is over when the block is.

    Attributes:
        info: the run.
        kept: set it, and the run outlives the block.
    """

    def __init__(self, call: Call, start: Callable[[], Awaitable[RunInfo]]) -> None:
        self.info: RunInfo
        self.kept = False
        self._call = call
        self._start = start

    async def __aenter__(self) -> Self:
        self.info = await self._start()
        try:
            await self._begin()
        except BaseException:  # cancelled, too: the client has gone, and its run goes with it
            await self.__aexit__()
            raise
        return self

    async def _begin(self) -> None:
        """Wait for a worker of a cluster to begin it. One that can't fails the request, as if it could not start."""
        cluster = self._call.hub.cluster
        if cluster is None or not cluster.has(self.info.run):
            return
        self.info = info = await cluster.begun(self.info.run)
        if info.seq == 0 and info.error is not None:
            raise Failed(info.error.code, info.error.message)
        if info.seq == 0:
            raise Failed("cancelled", f"{info.run} was over before it began")

    async def __aexit__(self, *_: object) -> None:
        if self.kept:
            return
        with self._call.api.root.kernel.shield(END_WITHIN):
            self._call.hub.cancel(LOCAL, self.info.run)  # whatever its caller may do to runs
            await self._call.hub.wait(LOCAL, self.info.run)


class Failed(CallboardError):
    """A run that a request has started has failed: the request fails with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Told(Protocol):
    """What has become of a run: the reply, or what it failed with, `code` and `message`."""

    error: tuple[str, str] | None

    @property
    def reply(self) -> Any: ...


def run_and_reply(
    call: Call,
    start: Callable[[], Awaitable[RunInfo]],
    tell: Callable[[RunInfo, Say], Awaitable[Told]],
    *,
    streams: bool,
) -> Performed:
    """A reply that is a run: as a stream of what `tell` says of it, or as the reply that this comes to."""

    async def unsaid(_: bytes) -> None:
        pass

    async def perform(send: Send) -> None:
        async with Running(call, start) as running:
            if streams:
                await EventStream(lambda say: tell(running.info, say)).run(send)
                return
            told = await tell(running.info, unsaid)
        if told.error is not None:
            raise Failed(*told.error)
        await reply(told.reply)(call.request.scope, call.request.receive, send)

    return Performed(perform)


async def say_all(say: Say, seq: int, told: Sequence[tuple[str, Any] | dict[str, Any]]) -> None:
    """What there is to tell of one event, some of it by a name; the last has the event's number."""
    for number, each in enumerate(told, 1):
        name, data = each if isinstance(each, tuple) else ("", each)
        await say(event(msgspec.json.encode(data), name=name, id=seq if number == len(told) else None))
