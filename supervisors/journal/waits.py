"""Who waits for the thread that writes a journal, and for what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from ...protocol.kernel.errors import JournalError
from .row import RunRecord, Store

T = TypeVar("T")


class Wait:
    """Who waits for the rows of a run, or of all."""

    __slots__ = ("abandoned", "checked", "error", "over", "run")

    def __init__(self, run: RunRecord | None) -> None:
        self.run = run
        self.over = trio.Event()
        self.abandoned = False
        self.checked = 0.0
        self.error: JournalError | None = None


class Job(Generic[T]):
    """What the thread does beside."""

    def __init__(self, work: Callable[[Store], T]) -> None:
        self._work = work
        self.over = trio.Event()
        self.result: T
        self.error: Exception | None = None

    def run(self, store: Store) -> None:
        try:
            self.result = self._work(store)
        except Exception as error:  # noqa: BLE001 - it is raised where the job was asked for
            self.error = error
