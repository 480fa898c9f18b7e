"""Backlog of a chat: numbered output for late subscribers, the newest within a limit.

The answer to `_chat/watch` with `after` replays the output before it; notifications continue from there. A watcher sees
the output of a command only with the scopes that the command itself requires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ....protocol.control import chat as frames

MOST = 1000
MOST_TEXT = 256 * 1024
"""Characters of all stored output."""


class _Kept(NamedTuple):
    told: frames.Began | frames.Said
    scopes: tuple[str, ...]
    size: int


class NotificationBacklog:
    """Bounded buffer of a chat's output.

    Attributes:
        last: number of the newest output.
    """

    def __init__(self) -> None:
        self.last = 0
        self._kept: deque[_Kept] = deque()
        self._size = 0

    def keep(self, told: frames.Began | frames.Said, scopes: tuple[str, ...]) -> None:
        """Number an output and store it."""
        self.last += 1
        told.seq = self.last
        size = len(told.prompt if isinstance(told, frames.Began) else told.text)
        self._kept.append(_Kept(told, scopes, size))
        self._size += size
        while len(self._kept) > MOST or (self._size > MOST_TEXT and len(self._kept) > 1):
            self._size -= self._kept.popleft().size

    def after(self, seq: int, has: Callable[[str], bool]) -> list[frames.Told]:
        """Return the output after this number that a caller with these scopes may see, oldest first."""
        return [
            frames.Told(began=each.told) if isinstance(each.told, frames.Began) else frames.Told(said=each.told)
            for each in self._kept
            if each.told.seq > seq and all(has(scope) for scope in each.scopes)
        ]
