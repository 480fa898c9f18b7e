"""What a hub may do with runs that other processes play: those of a cluster. `front.cluster` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ....protocol.control.things import ActorInfo, RunInfo
    from ....protocol.requests import RunRequest
    from ....supervisors.journal.row import Row
    from ...runs.rerun.changes import Changes
    from ...runs.rerun.fork import Fork, RunRead
    from .logs.runs import RunLogs


RELAYED = frozenset(
    {
        *("_actor/tree", "_actor/inspect", "_actor/send", "_actor/pause", "_actor/resume", "_actor/cancel"),
        *("_run/calls", "_run/call", "_run/changes", "_run/restore"),
    }
)
"""Methods that only the process which plays a run, or has played it, can answer."""


class Cluster(Protocol):
    """Runs of a cluster, as a hub sees them."""

    @property
    def logs(self) -> Callable[..., RunLogs]:
        """Makes the logs of the hub, from what `RunLogs` takes."""

    def takes(self, info: RunInfo, request: RunRequest) -> bool:
        """Whether a new run is for the cluster."""

    async def start(self, info: RunInfo, request: RunRequest) -> RunInfo:
        """Put a run into the queue. Raises as `Hub.start` does."""

    def has(self, run: str) -> bool:
        """Whether it is a run of the cluster that this process does not play."""

    async def begun(self, run: str) -> RunInfo:
        """How it stands when it has begun, or is over without that."""

    async def over(self, run: str) -> RunInfo:
        """How it stands when it is over."""

    async def cancel(self, run: str, by: str) -> None:
        """Have it cancelled."""

    async def resume(self, run: str, *, with_changes: bool) -> None:
        """Have it go on that no worker takes by itself. Raises `Conflict`, and `Unsupported` for changes."""

    async def rows(self, run: str, after: int, most: int) -> list[Row] | None:
        """So many rows of it behind a number; None if nothing is kept of it."""

    async def read(self, run: str, *, parts: bool) -> RunRead:
        """All of its rows, for steps and forks.

        Args:
            parts: with what its parts have done.

        Raises:
            NotFound: there is no such run.
            Conflict: it has not begun.
            Damaged, CannotGoOn: it is not as it was written, or of another version.
        """

    async def fork(self, info: RunInfo, fork: Fork, changes: Changes) -> RunInfo:
        """Put a fork of a run of the cluster into the queue, with the rows that it begins with; `info` has its title.

        Raises:
            UsageError, CannotGoOn: see `Fork.play`.
            NotFound: the run was removed meanwhile.
        """

    async def delete(self, run: str) -> None:
        """Remove it. Raises `Conflict`."""

    async def answer(self, question: str, value: str | list[str], by: str) -> bool:
        """Answer a question of such a run. Raises as `Hub.answer` does."""

    def shows_actors(self, run: str | None) -> bool:
        """Whether actors of this run, or of all, are elsewhere."""

    async def actors(self, run: str | None) -> list[ActorInfo]:
        """Those, as far as they can be reached."""

    async def watch_actors(
        self, run: str | None, interval: float, take: Callable[[list[ActorInfo], list[str]], Awaitable[None]]
    ) -> None:
        """Give them to `take`, and each change: who is otherwise, and the paths of those that are gone. Never ends."""

    async def ask(self, run: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """What the process that plays such a run answers to one of `RELAYED`. Raises what it refuses with."""


class NothingElsewhere:
    """A cluster of which this process knows its own runs alone."""

    def takes(self, info: RunInfo, request: RunRequest) -> bool:  # noqa: ARG002 - whatever it is
        """See `Cluster`."""
        return False

    def has(self, run: str) -> bool:  # noqa: ARG002 - whatever it is
        """See `Cluster`."""
        return False

    def shows_actors(self, run: str | None) -> bool:  # noqa: ARG002 - whatever it is
        """See `Cluster`."""
        return False

    async def actors(self, run: str | None) -> list[ActorInfo]:
        """See `start`."""
        raise NotImplementedError

    async def watch_actors(
        self, run: str | None, interval: float, take: Callable[[list[ActorInfo], list[str]], Awaitable[None]]
    ) -> None:
        """See `start`."""
        raise NotImplementedError

    async def start(self, info: RunInfo, request: RunRequest) -> RunInfo:
        """Never called, nor are those below: `takes` and `has` say no."""
        raise NotImplementedError

    async def begun(self, run: str) -> RunInfo:
        """See `start`."""
        raise NotImplementedError

    async def over(self, run: str) -> RunInfo:
        """See `start`."""
        raise NotImplementedError

    async def cancel(self, run: str, by: str) -> None:
        """See `start`."""
        raise NotImplementedError

    async def resume(self, run: str, *, with_changes: bool) -> None:
        """See `start`."""
        raise NotImplementedError

    async def rows(self, run: str, after: int, most: int) -> list[Row] | None:
        """See `start`."""
        raise NotImplementedError

    async def read(self, run: str, *, parts: bool) -> RunRead:
        """See `start`."""
        raise NotImplementedError

    async def fork(self, info: RunInfo, fork: Fork, changes: Changes) -> RunInfo:
        """See `start`."""
        raise NotImplementedError

    async def delete(self, run: str) -> None:
        """See `start`."""
        raise NotImplementedError

    async def answer(self, question: str, value: str | list[str], by: str) -> bool:
        """See `start`."""
        raise NotImplementedError

    async def ask(self, run: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """See `start`."""
        raise NotImplementedError
