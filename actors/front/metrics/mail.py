"""Measures how long mail waits in mailboxes, only where metrics are on.

The kernel makes an actor's lane of mail at its first message, of the type that the root's `mailbox` names. With metrics
that is a deque which stamps each message that comes and reads the stamp of each that goes; without them the kernel's
hottest path costs not a nanosecond more.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any

from ....supervisors.mailbox import Mailbox
from ....supervisors.tally import Tally


def timed_by(waits: Tally) -> type[Mailbox]:
    """Mailboxes whose mail adds to `waits` how long it waited in its lane."""

    class Lane(deque[Any]):
        __slots__ = ("_since",)

        def __init__(self) -> None:
            super().__init__()
            self._since: deque[float] = deque()

        def append(self, item: Any, /) -> None:
            self._since.append(monotonic())
            super().append(item)

        def popleft(self) -> Any:
            waits.add(monotonic() - self._since.popleft())
            return super().popleft()

    class Timed(Mailbox):
        __slots__ = ()
        lane = Lane

    return Timed
