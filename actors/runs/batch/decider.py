"""Decides which task of a batch begins next, and when the batch ends.

A run that fails is a failure of its task and of no other. An interrupted one has no result: it is not done.
An error that all tasks would share, such as a missing key or an unknown model, ends the batch at the first task that
meets it; so does a number of failures, if the caller has set one.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ....protocol.effects import Effect, Finish, RunTask
from ....protocol.errors import ConfigError
from ....protocol.failure import Failure
from ....protocol.kernel.messages import Message
from ....protocol.messages import BatchBegun, TaskEnded, WorkDone, WorkFailed
from ....protocol.outcome import ErrorReport
from .journal import ResultsLost

ALIKE = 5
"""Tasks with vars of their own that lack a key or a setting, before it is taken for what all of them lack."""


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch has not begun all of its tasks.

    Attributes:
        error: the failure that was one too many.
        shared: it would be every task's.
    """

    error: ErrorReport
    shared: bool


class BatchDecider:
    """One batch; it finishes with why it has given up, or None.

    Args:
        at_once: tasks under way together.
        max_failures: it gives up after so many.
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
        """The first tasks."""
        self._left = iter(range(request.tasks))
        self._with_vars = request.with_vars
        return self._next(self._at_once)

    def on(self, message: Message) -> list[Effect]:
        """A task has ended: judge it, and begin the next one."""
        if isinstance(message, TaskEnded):
            if message.lost is not None:
                return [Finish(failure=Failure.of(ResultsLost(message.lost)))]
            self._judge(message)
        elif isinstance(message, WorkFailed):
            if message.crashed:  # a bug, which would be every task's
                return [Finish(failure=message.failure)]
        elif not isinstance(message, WorkDone):
            return []
        self._under_way -= 1
        return self._next(1)

    def remembers(self) -> tuple[object, ...]:
        """See `Decider`."""
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
        # A task with vars of its own may be the only one; so many are no chance.
        enough = ALIKE if ended.key in self._with_vars else 1
        shared = ended.exit_code == ConfigError.exit_code and not self._done and self._failed >= enough
        if self._given_up is None and (shared or self._failed == self._max_failures):
            self._given_up = GivenUp(error=ended.error, shared=shared)
