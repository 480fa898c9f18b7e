"""Replies produced while the client waits, such as event streams, and runs that end with their request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

import msgspec
import trio
from starlette.types import Receive, Scope, Send

from ....protocol.control.caller import LOCAL
from ....protocol.control.resources import RunInfo
from ....protocol.errors import CallboardError
from ...io.http.sse import HEADERS, PING, PING_EVERY, event
from .call import HttpCall, reply

END_WITHIN = 2.0
"""Seconds that a run gets to end after its client has disconnected."""

T = TypeVar("T")
Say = Callable[[bytes], Awaitable[None]]

_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}.items()
]


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T | None:
    """Await the work and return its result; None if the client disconnected first, which cancels the work.

    The request's body must have been read before. Exceptions of the work are raised unchanged.
    """
    error: Exception | None = None
    value: T | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_disconnect, receive, nursery.cancel_scope)
        try:
            value = await work()
        except Exception as raised:  # noqa: BLE001 - re-raised outside the nursery, which would wrap it
            error = raised
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
    return value


async def _cancel_on_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class Performed:
    """Reply that an async function produces; a disconnect of the client cancels the function."""

    def __init__(self, perform: Callable[[Send], Awaitable[None]]) -> None:
        self._perform = perform

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as an ASGI application."""
        await while_there(receive, lambda: self._perform(send))


class EventStream:
    """Reply with an event stream.

    Args:
        send_events: sends all events; it is cancelled when the client disconnects.
    """

    def __init__(self, send_events: Callable[[Say], Awaitable[object]]) -> None:
        self._send_events = send_events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as an ASGI application; a HEAD does not wait for events."""
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await while_there(receive, lambda: self.run(send))

    async def run(self, send: Send) -> None:
        """Send the whole reply, with pings during silence. The caller handles a disconnect."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        line = _Line(send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.ping)
            await self._send_events(line.say)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Line:
    """Sender that pings after silence."""

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
            # An event may have been sent during the sleep.
            if trio.current_time() >= self._said + PING_EVERY:
                await self.say(PING)


def check_after(call: HttpCall, run: str, after: int) -> None:
    """Raise the errors of `Hub.follow` before the reply begins."""
    call.hub.subscribe(call.caller, run, after)


class RunBlock:
    """Context manager that starts a run and cancels it at the end of the block, unless `kept` is set.

    The exit waits at most `END_WITHIN` seconds for the end of the run.

    Attributes:
        info: the run.
        kept: set it to let the run outlive the block.
    """

    def __init__(self, call: HttpCall, start: Callable[[], Awaitable[RunInfo]]) -> None:
        self.info: RunInfo
        self.kept = False
        self._call = call
        self._start = start

    async def __aenter__(self) -> Self:
        self.info = await self._start()
        try:
            await self._begin()
        except BaseException:  # cancelled too: the client has disconnected, and its run ends
            await self.__aexit__()
            raise
        return self

    async def _begin(self) -> None:
        """Wait until a worker of the cluster starts the run. A failure there fails the request."""
        cluster = self._call.hub.cluster
        if cluster is None or not cluster.has(self.info.run):
            return
        self.info = info = await cluster.begun(self.info.run)
        # Without an event the run has not begun: the request fails with the status that it has on one machine.
        if info.seq == 0 and info.error is not None:
            raise StartedRunFailed(info.error.code, info.error.message)
        if info.seq == 0:
            raise StartedRunFailed("cancelled", f"{info.run} ended before it began")

    async def __aexit__(self, *_: object) -> None:
        if self.kept:
            return
        with self._call.api.root.kernel.shield(END_WITHIN):
            self._call.hub.cancel(LOCAL, self.info.run)  # LOCAL, whatever the caller may do to runs
            await self._call.hub.wait(LOCAL, self.info.run)


class StartedRunFailed(CallboardError):
    """Error of a request whose run has failed, was cancelled or did not begin; it has the code of the run's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RunEnding(Protocol):
    """Result of a run for its reply: the body, or the code and message of its error."""

    error: tuple[str, str] | None

    @property
    def reply(self) -> Any: ...


def run_and_reply(
    call: HttpCall,
    start: Callable[[], Awaitable[RunInfo]],
    send_events: Callable[[RunInfo, Say], Awaitable[RunEnding]],
    *,
    streams: bool,
) -> Performed:
    """Return a reply that starts a run and sends its events as a stream, or only its result at the end.

    If the client disconnects, the run is cancelled.

    Args:
        send_events: sends the run's events until it is over, and returns its result.
        streams: send the events. If false, a failed run raises `StartedRunFailed`.
    """

    async def unsaid(_: bytes) -> None:
        pass

    async def perform(send: Send) -> None:
        async with RunBlock(call, start) as running:
            if streams:
                await EventStream(lambda say: send_events(running.info, say)).run(send)
                return
            told = await send_events(running.info, unsaid)
        if told.error is not None:
            raise StartedRunFailed(*told.error)
        await reply(told.reply)(call.request.scope, call.request.receive, send)

    return Performed(perform)


async def say_all(say: Say, seq: int, told: Sequence[tuple[str, Any] | dict[str, Any]]) -> None:
    """Send the events for one run event, some of them named; the last has the run event's number."""
    for number, each in enumerate(told, 1):
        name, data = each if isinstance(each, tuple) else ("", each)
        await say(event(msgspec.json.encode(data), name=name, id=seq if number == len(told) else None))
