"""Batch decider: chooses the next task, and decides when the batch ends.

A failed run is a failure of its task only. An interrupted run has no result, so its task is not done. Two conditions
end the batch early: an error that all tasks would share, such as a missing key or an unknown model, at the first task
that meets it; and `max_failures`, if the caller has set it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ....protocol.effects import Effect, Finish, RunTask
from ....protocol.errors import ConfigError
from ....protocol.kernel.messages import Message
from ....protocol.messages import BatchBegun, Failure, TaskEnded, WorkDone, WorkFailed
from ....protocol.outcome import ErrorReport
from .journal import ResultsLost

ALIKE = 5
"""Tasks with their own `vars` that must fail with a configuration error before it is treated as shared by all."""


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why a batch has not begun all of its tasks.

    Attributes:
        error: the failure that ended the batch.
        shared: True if every task would fail with it.
    """

    error: ErrorReport
    shared: bool


class BatchDecider:
    """Decider of one batch; it finishes with a `GivenUp`, or with None if every task was begun.

    Args:
        at_once: maximum of concurrent tasks.
        max_failures: number of failures after which the batch gives up.
    """

    def __init__(self, at_once: int, max_failures: int | None) -> None:
        self.heard = False
        self._at_once = max(1, at_once)
        self._max_failures = max_failures
        self._left: Iterator[int] = iter(())
        self._with_vars: frozenset[int] = frozenset()
        self._under_way = 0
        self._done = 0
        self._failed = 0
        self._given_up: GivenUp | None = None

    def begin(self, request: BatchBegun) -> list[Effect]:
        """Return the work of the first `at_once` tasks; without tasks, the end of the batch."""
        self._left = iter(range(request.tasks))
        self._with_vars = request.with_vars
        return self._next(self._at_once)

    def on(self, message: Message) -> list[Effect]:
        """Return the next task after the end of one, or the end of the batch if no task is left or it gives up.

        A result that cannot be stored, or a crash, ends the batch at once with that failure.
        """
        if isinstance(message, TaskEnded):
            if message.lost is not None:
                return [Finish(failure=Failure.of(ResultsLost(message.lost)))]
            self._judge(message)
        elif isinstance(message, WorkFailed):
            if message.crashed:  # a bug, which would fail every task
                return [Finish(failure=message.failure)]
        elif not isinstance(message, WorkDone):
            return []
        self._under_way -= 1
        return self._next(1)

    def remembers(self) -> tuple[object, ...]:
        """Return nothing: a batch is resumed from its file of results."""
        return ()

    def _next(self, number: int) -> list[Effect]:
        effects: list[Effect] = []
        while len(effects) < number and self._given_up is None:
            index = next(self._left, None)
            if index is None:
                break
            effects.append(RunTask(key=index, name=f"task{index + 1}"))
        self._under_way += len(effects)
        return effects if self._under_way else [Finish(self._given_up)]

    def _judge(self, ended: TaskEnded) -> None:
        if ended.status == "cancelled":
            return
        if ended.error is None:
            self._done += 1
            return
        self._failed += 1
        # One task with its own vars may be the only one with the error; `ALIKE` of them are no coincidence.
        enough = ALIKE if ended.key in self._with_vars else 1
        shared = ended.exit_code == ConfigError.exit_code and not self._done and self._failed >= enough
        if self._given_up is None and (shared or self._failed == self._max_failures):
            self._given_up = GivenUp(error=ended.error, shared=shared)
