"""Work that splits and joins, without tasks: generators that say what they wait for.

A coroutine here is a plain generator. It yields a list of what it waits for: jobs carried out elsewhere, and coroutines
below it. It goes on with a list of what came of them, in the same order, once all are there, so what a coroutine does
does not depend on who is quick. Nothing is waited for here; `done` says which jobs may begin next.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from .....protocol.workflow.messages import FireNode

Coroutine: TypeAlias = Generator[list[Any], list[Any], Any]
"""Yields jobs and coroutines, is sent their results, returns its own."""


class _Waiting:
    __slots__ = ("answers", "coroutine", "open", "parent", "slot")

    def __init__(self, coroutine: Coroutine, parent: _Waiting | None, slot: int) -> None:
        self.coroutine = coroutine
        self.parent = parent
        self.slot = slot
        self.answers: list[Any] = []
        self.open = 0


class Scheduler:
    """One coroutine and all below it.

    Attributes:
        result: what it returned; None until then.
        finished: whether it has.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self.finished = False
        self._open: dict[int, tuple[_Waiting, int]] = {}

    def begin(self, coroutine: Coroutine) -> list[FireNode]:
        """Start; returns the jobs to begin with."""
        return self._go_on(_Waiting(coroutine, None, 0))

    def done(self, key: int, answer: Any) -> list[FireNode]:
        """A job is done; returns those that may begin now."""
        waiting, slot = self._open.pop(key)
        waiting.answers[slot] = answer
        waiting.open -= 1
        return [] if waiting.open else self._go_on(waiting)

    def _go_on(self, waiting: _Waiting) -> list[FireNode]:
        jobs: list[FireNode] = []
        todo = [waiting]
        while todo:
            current = todo.pop()
            try:
                wanted = current.coroutine.send(current.answers) if current.answers else next(current.coroutine)
            except StopIteration as stop:
                parent = current.parent
                if parent is None:
                    self.result, self.finished = stop.value, True
                    continue
                parent.answers[current.slot] = stop.value
                parent.open -= 1
                if not parent.open:
                    todo.append(parent)
                continue
            current.answers = [None] * len(wanted)
            current.open = len(wanted)
            below: list[_Waiting] = []
            for slot, each in enumerate(wanted):
                if isinstance(each, Generator):
                    below.append(_Waiting(each, current, slot))
                else:
                    self._open[each.key] = (current, slot)
                    jobs.append(each)
            todo.extend(reversed(below))
        return jobs
