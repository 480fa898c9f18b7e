"""The spans of a run that are open, in the tree of the actors they are about."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, final

from opentelemetry.trace import Span

Kind = Literal["workflow", "agent", "node", "chat", "tool"]


@final
class Open:
    """A span that has not ended, and what is remembered for its end.

    Attributes:
        key: what tells it from others of its kind and actor.
        labels: of what is measured.
        tokens: of the chats below: in, out, and those of the input that came from a cache.
        told: what the model has said so far, if that is wanted.
    """

    __slots__ = ("began", "chunk", "key", "kind", "labels", "length", "parent", "span", "tokens", "told")

    def __init__(
        self, kind: Kind, key: object, span: Span, parent: Open | None, began: datetime, labels: dict[str, str]
    ) -> None:
        self.kind = kind
        self.key = key
        self.span = span
        self.parent = parent
        self.began = began
        self.labels = labels
        self.tokens = [0, 0, 0]
        self.chunk: datetime | None = None
        self.told: list[str] = []
        self.length = 0

    def within(self, other: Open) -> bool:
        """Whether it is `other`, or below it."""
        above: Open | None = self
        while above is not None and above is not other:
            above = above.parent
        return above is not None


@final
class Tree:
    """What is open, by actor, in the order in which it began.

    Args:
        top: the run's own span, which is above all others and not among them.
    """

    def __init__(self, top: Open) -> None:
        self._top = top
        self._open: dict[str, list[Open]] = {}

    @property
    def actors(self) -> list[str]:
        """Those for which something is open, the youngest first."""
        return list(reversed(self._open))

    def put(self, actor: str, begun: Open) -> None:
        """This is open now."""
        self._open.setdefault(actor, []).append(begun)

    def above(self, actor: str, beside: Kind = "chat") -> Open:
        """What is open nearest to the actor, on the way up. What stands `beside` for the same actor is no parent."""
        path = actor
        while path:
            for open in reversed(self._open.get(path, ())):
                if open.kind != "chat" and not (open.kind == beside and path == actor):
                    return open
            path = path.rpartition("/")[0]
        return self._top

    def find(self, actor: str, kind: Kind, key: object = None) -> Open | None:
        """The youngest of this kind, and with this key."""
        for open in reversed(self._open.get(actor, ())):
            if open.kind == kind and (key is None or open.key == key):
                return open
        return None

    def taken(self, actor: str, within: Open | None = None) -> list[Open]:
        """Take out what is open for the actor (only `within` one), the youngest first."""
        stack = self._open.pop(actor, [])
        left = [open for open in stack if within is not None and not open.within(within)]
        if left:
            self._open[actor] = left
        return [open for open in reversed(stack) if within is None or open.within(within)]
