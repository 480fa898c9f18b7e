"""Turns of sessions on a worker, for runs whose labels require the worker that has the session.

The session is in this worker's configuration directory, which may be on a disk shared with other workers of the same
label. The session's lock decides which process works with it. A worker that waits for the lock has room for one run
less. The run is not over before its messages are in the session's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from ....protocol.control.caller import LOCAL, Caller
from ....protocol.errors import ActorCancelled
from ...runs.loading import RunCallbacks

if TYPE_CHECKING:
    from ....protocol.control.things import RunInfo
    from ....protocol.requests import RunRequest
    from ...runs.durable import TakenRun
    from ..control.hub import Hub
    from ..control.sessions import SessionTurn

SCOPES = frozenset({"read:runs", "write:runs", "run:agents", "read:sessions", "write:sessions"})
"""Scopes of the owner of such a run here; the gateway has already authorised its start."""


class Turns:
    """Starts and resumes turns, with a wait for the session's lock that can be cancelled.

    Args:
        hub: hub of the worker.
        holds: see `RunCallbacks`.
    """

    def __init__(self, hub: Hub, holds: Callable[[str, Callable[[], None]], None]) -> None:
        self._hub = hub
        self._hooks = RunCallbacks(holds=holds)
        self._waiting: dict[str, trio.CancelScope] = {}

    def hooks(self, info: RunInfo) -> RunCallbacks:
        """Return the callbacks of a run of this worker, whether or not it is a turn."""
        return self._hub.hooks(_owner(info), self._hooks)

    async def begin(self, info: RunInfo, request: RunRequest, hooks: RunCallbacks) -> SessionTurn:
        """Start a turn once its session is free. Raises as `HubSessions.begin`, and `ActorCancelled`."""
        with self._until_free(info.run):
            return await self._hub.sessions.begin_queued(_owner(info), info, request, hooks)
        raise ActorCancelled(f"{info.run} was cancelled before it began")

    async def resume(self, info: RunInfo, taken: TakenRun, hooks: RunCallbacks) -> SessionTurn:
        """Resume a turn of another worker. Raises as `HubSessions.resume`, and `ActorCancelled`."""
        with self._until_free(info.run):
            return await self._hub.sessions.resume(info, taken, hooks, wait=float("inf"))
        raise ActorCancelled(f"{info.run} was cancelled before it went on")

    def cancel(self, run: str) -> None:
        """Stop waiting for the session of this run."""
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
