"""A run's events as a request follows them, and runs that end with the request that has started them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from starlette.types import Receive, Scope, Send

from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError
from ..control.logs.reading import LoggedEvent
from ..control.subscription import Lagged
from .call import Call
from .leaving import while_there

END_WITHIN = 2.0
"""Seconds that a run has to end in whose client has left."""

Take = Callable[[LoggedEvent], Awaitable[None]]


async def follow(call: Call, run: str, take: Take, after: int = 0) -> None:
    """Give every event after number `after` to `take`, up to the run's last; a slow reader goes on from the log."""
    while True:
        with call.hub.subscribe(call.caller, run, after) as events:
            try:
                async for event in events:
                    after = event.seq
                    await take(event)
            except Lagged:
                continue
        return


def check_after(call: Call, run: str, after: int) -> None:
    """Raise what `follow` would raise, as long as there is no reply yet that it could break off."""
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
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.kept:
            return
        with self._call.api.root.kernel.shield(END_WITHIN):
            self._call.api.end(self.info.run)
            await self._call.api.over(self.info.run)


class Failed(CallboardError):
    """A run that a request has started has failed: the request fails with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Performed:
    """A reply that is made by doing something, as long as the client is there to get it."""

    def __init__(self, perform: Callable[[Send], Awaitable[None]]) -> None:
        self._perform = perform

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        await while_there(receive, lambda: self._perform(send))
