"""Interface between a hub and runs of a cluster that other processes execute; `front.cluster` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ....protocol.control.resources import ActorInfo, RunInfo
    from ....protocol.requests import RunRequest
    from ....supervisors.journal.row import StoredRow
    from ...runs.rerun.fork import Fork, ForkChanges, RunRead
    from .logs.run_logs import RunLogs


RELAYED = frozenset(
    {
        *("_actor/tree", "_actor/inspect", "_actor/send", "_actor/pause", "_actor/resume", "_actor/cancel"),
        *("_run/calls", "_run/call", "_run/changes", "_run/restore"),
    }
)
"""Methods that only the process that executes a run, or executed it, can answer."""


class Cluster(Protocol):
    """Interface of a hub to the runs of a cluster that other processes execute."""

    @property
    def logs(self) -> Callable[..., RunLogs]:
        """Factory for the hub's logs; it takes the arguments of `RunLogs`."""

    def takes(self, info: RunInfo, request: RunRequest) -> bool:
        """Return True if the cluster must execute this new run."""

    async def start(self, info: RunInfo, request: RunRequest) -> RunInfo:
        """Put a run into the queue. Raises as `Hub.start` does."""

    def has(self, run: str) -> bool:
        """Return True if the run belongs to the cluster and this process does not execute it."""

    async def begun(self, run: str) -> RunInfo:
        """Wait until the run has begun, or has ended without beginning, and return its summary."""

    async def over(self, run: str) -> RunInfo:
        """Wait until a run of another process has ended, and return its summary."""

    async def cancel(self, run: str, by: str) -> None:
        """Request cancellation of the run."""

    async def resume(self, run: str, *, with_changes: bool) -> None:
        """Request a resume of a run that no worker resumes by itself.

        Raises:
            Conflict: the run cannot be resumed now.
            Unsupported: `with_changes` is set, and the cluster does not support it.
        """

    async def rows(self, run: str, after: int, most: int) -> list[StoredRow] | None:
        """Return at most `most` journal rows after number `after`; None if the run has no stored rows."""

    async def read(self, run: str, *, parts: bool) -> RunRead:
        """Return all journal rows of a run, which steps and forks are computed from.

        Args:
            parts: include the results of remote children.

        Raises:
            NotFound: there is no such run.
            Conflict: the run has not begun.
            Damaged, CannotGoOn: the rows are corrupt, or were written by an incompatible version.
        """

    async def fork(self, info: RunInfo, fork: Fork, changes: ForkChanges) -> RunInfo:
        """Put a fork of a run into the queue, together with its initial rows; `info` has the fork's title.

        Raises:
            UsageError, CannotGoOn: see `Fork.play`.
            NotFound: the run was removed meanwhile.
        """

    async def delete(self, run: str) -> None:
        """Delete a run of the cluster. Raises `Conflict` while it is active."""

    async def answer(self, question: str, value: str | list[str], by: str) -> bool:
        """Answer a question of a run that another process executes; returns False if it is no longer open.

        Raises as `Hub.answer` does.
        """

    def shows_actors(self, run: str | None) -> bool:
        """Return True if other processes have actors of this run; with None, of any run."""

    async def actors(self, run: str | None) -> list[ActorInfo]:
        """Return the actors of the run (None: of all runs) in other processes. Unreachable processes are left out."""

    async def watch_actors(
        self, run: str | None, interval: float, take: Callable[[list[ActorInfo], list[str]], Awaitable[None]]
    ) -> None:
        """Pass all actors, then each change, to `take`: changed actors and the paths of ended ones. Never returns."""

    async def ask(self, run: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """Forward one of the `RELAYED` methods to the process that executes the run and return its answer.

        Raises the error with which that process refuses.
        """


class NoWorkers:
    """Base for a cluster in which this process sees only its own runs, such as a worker's.

    `takes`, `has` and `shows_actors` return False, so a hub never calls the methods that raise.
    """

    def takes(self, info: RunInfo, request: RunRequest) -> bool:  # noqa: ARG002 - same for every run
        return False

    def has(self, run: str) -> bool:  # noqa: ARG002 - same for every run
        return False

    def shows_actors(self, run: str | None) -> bool:  # noqa: ARG002 - same for every run
        return False

    async def actors(self, run: str | None) -> list[ActorInfo]:
        raise NotImplementedError

    async def watch_actors(
        self, run: str | None, interval: float, take: Callable[[list[ActorInfo], list[str]], Awaitable[None]]
    ) -> None:
        raise NotImplementedError

    async def start(self, info: RunInfo, request: RunRequest) -> RunInfo:
        raise NotImplementedError

    async def begun(self, run: str) -> RunInfo:
        raise NotImplementedError

    async def over(self, run: str) -> RunInfo:
        raise NotImplementedError

    async def cancel(self, run: str, by: str) -> None:
        raise NotImplementedError

    async def resume(self, run: str, *, with_changes: bool) -> None:
        raise NotImplementedError

    async def rows(self, run: str, after: int, most: int) -> list[StoredRow] | None:
        raise NotImplementedError

    async def read(self, run: str, *, parts: bool) -> RunRead:
        raise NotImplementedError

    async def fork(self, info: RunInfo, fork: Fork, changes: ForkChanges) -> RunInfo:
        raise NotImplementedError

    async def delete(self, run: str) -> None:
        raise NotImplementedError

    async def answer(self, question: str, value: str | list[str], by: str) -> bool:
        raise NotImplementedError

    async def ask(self, run: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
        raise NotImplementedError
