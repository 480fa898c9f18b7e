"""What was told in a chat, for those who come later: each by its number, the newest, as far as there is room.

The answer to `_chat/watch` with `after` has what came before, and notifications bring the rest as it comes. What
the output of a command needs to be seen is what its command needs to be played: who may not play it is not told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ....protocol.control import chat as frames

MOST = 1000
MOST_TEXT = 256 * 1024
"""Characters of all that is kept."""


class _Kept(NamedTuple):
    told: frames.Began | frames.Said
    scopes: tuple[str, ...]
    size: int


class ToldBefore:
    """See the module. Attributes: `last`, the number of what was told last."""

    def __init__(self) -> None:
        self.last = 0
        self._kept: deque[_Kept] = deque()
        self._size = 0

    def keep(self, told: frames.Began | frames.Said, scopes: tuple[str, ...]) -> None:
        """Give it its number, and keep it."""
        self.last += 1
        told.seq = self.last
        size = len(told.prompt if isinstance(told, frames.Began) else told.text)
        self._kept.append(_Kept(told, scopes, size))
        self._size += size
        while len(self._kept) > MOST or (self._size > MOST_TEXT and len(self._kept) > 1):
            self._size -= self._kept.popleft().size

    def after(self, seq: int, has: Callable[[str], bool]) -> list[frames.Told]:
        """What is kept behind this number, for who `has` those scopes, oldest first."""
        return [
            frames.Told(began=each.told) if isinstance(each.told, frames.Began) else frames.Told(said=each.told)
            for each in self._kept
            if each.told.seq > seq and all(has(scope) for scope in each.scopes)
        ]
