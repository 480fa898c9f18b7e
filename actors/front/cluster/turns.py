"""Turns of sessions that a worker plays, those of runs whose labels say that it has the session; and for whom it plays.

The session is in this worker's configuration directory, which may be on a disk that others with the same labels have,
too: its lock says who works with it. A worker that waits for that has room for one run less; the run is not over before
what was said is in the session's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from ....protocol.control.caller import LOCAL, Caller
from ....protocol.errors import ActorCancelled
from ...runs.loading import Hooks

if TYPE_CHECKING:
    from ....protocol.control.things import RunInfo
    from ....protocol.requests import RunRequest
    from ...runs.durable import Taken
    from ..control.hub import Hub
    from ..control.sessions import SessionTurn

SCOPES = frozenset({"read:runs", "write:runs", "run:agents", "read:sessions", "write:sessions"})
"""What the owner of such a run may do here: the gateway has let them begin it."""


class Turns:
    """See the module.

    Args:
        hub: of the worker; holds: see `Hooks`.
    """

    def __init__(self, hub: Hub, holds: Callable[[str, Callable[[], None]], None]) -> None:
        self._hub = hub
        self._hooks = Hooks(holds=holds)
        self._waiting: dict[str, trio.CancelScope] = {}

    def hooks(self, info: RunInfo) -> Hooks:
        """Those of a run that this worker plays, whether or not it is a turn."""
        return self._hub.hooks(_owner(info), self._hooks)

    async def begin(self, info: RunInfo, request: RunRequest, hooks: Hooks) -> SessionTurn:
        """Begin a turn when its session is free. Raises as `HubSessions.begin`, and `ActorCancelled`."""
        with self._until_free(info.run):
            return await self._hub.sessions.begin_queued(_owner(info), info, request, hooks)
        raise ActorCancelled(f"{info.run} was cancelled before it began")

    async def go_on(self, info: RunInfo, taken: Taken, hooks: Hooks) -> SessionTurn:
        """Go on with a turn of another worker. Raises as `HubSessions.go_on`, and `ActorCancelled`."""
        with self._until_free(info.run):
            return await self._hub.sessions.go_on(info, taken, hooks, wait=float("inf"))
        raise ActorCancelled(f"{info.run} was cancelled before it went on")

    def cancel(self, run: str) -> None:
        """Wait no longer for the session of this run."""
        if run in self._waiting:
            self._waiting[run].cancel()

    @contextmanager
    def _until_free(self, run: str) -> Iterator[None]:
        with trio.CancelScope() as scope:
            self._waiting[run] = scope
            try:
                yield
            finally:
                del self._waiting[run]


def _owner(info: RunInfo) -> Caller:
    return LOCAL if info.owner == LOCAL.subject else Caller(info.owner, SCOPES)
