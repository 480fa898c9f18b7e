"""Looking at the tree from outside, and making parts of it pause.

A census names every actor below one, as the tree stands at this moment. Actors are found by their paths.

A paused actor, and all actors below it, ends the step it is in and begins nothing new. What a step is, those who take
them say: they call `passed` before each, which costs an attribute look-up as long as nothing is paused:

    if me.root.pauses is not None:
        await me.root.pauses.passed(me)

Time goes on for those who wait: the deadline of a paused step still holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import trio

from ..protocol.kernel.events import ActorPaused, ActorResumed

if TYPE_CHECKING:
    from .actor import Actor
    from .life import Life
    from .ref import End
    from .root import Root


def find(root: Root, path: str) -> Actor | None:
    """The living actor with this path; names may hold a slash themselves."""
    if path == "/":
        return root.actor
    return _below(root.actor, path[1:]) if path.startswith("/") else None


def _below(actor: Actor, rest: str) -> Actor | None:
    child = actor.child(rest)
    if child is not None:
        return child
    cut = rest.find("/")
    while cut != -1:
        child = actor.child(rest[:cut])
        found = None if child is None else _below(child, rest[cut + 1 :])
        if found is not None:
            return found
        cut = rest.find("/", cut + 1)
    return None


def census(root: Root, top: Actor | None = None) -> Iterator[Actor]:
    """All actors from `top` downwards (by default all but the root itself), parents before their children."""
    waiting = list(reversed(root.actor.below)) if top is None else [top]
    while waiting:
        actor = waiting.pop()
        yield actor
        waiting.extend(reversed(actor.below))


def is_paused(actor: Life) -> bool:
    """Whether it is paused, itself or by an ancestor."""
    pauses = actor.root.pauses
    return pauses is not None and pauses.holds(actor)


def sent_by(actor: Life) -> int:
    """How many messages its task has told, asked and signalled since `count_sent`; 0 while that is not counted."""
    sent = actor.root.sent
    return sent.get(actor, 0) if sent is not None else 0


@contextmanager
def count_sent(root: Root) -> Iterator[None]:
    """Count what each actor sends, as long as the block lasts, from 0 unless it is counted already.

    It is not counted all the time, since finding the sender costs a third of what telling does.
    """
    sent = root.sent
    if sent is None:
        sent = root.sent = Sent(root)
        for actor in census(root, root.actor):
            actor.mailbox.kind = None  # no message goes the short way, past the counting
    sent.readers += 1
    try:
        yield
    finally:
        sent.readers -= 1
        if not sent.readers:
            root.sent = None


@final
class Sent(dict["Life", int]):
    """How many messages each living actor has sent; see `count_sent`."""

    def __init__(self, root: Root) -> None:
        super().__init__()
        self._tasks = root.tasks
        self.readers = 0

    def count(self, sender: Life | None = None) -> None:
        """This actor sends a message, or the one whose task this is, if it is an actor's."""
        sender = sender or self._tasks.get(trio.lowlevel.current_task())
        if sender is not None:
            self[sender] = self.get(sender, 0) + 1


def pause(actor: Actor) -> bool:
    """Let it and all below it begin nothing new. False if it is paused itself already, or has ended."""
    root = actor.root
    if actor.end is not None or (root.pauses is not None and actor in root.pauses.paused):
        return False
    if root.pauses is None:
        root.pauses = Pauses(root)
    root.pauses.paused.add(actor)
    actor.on_end(root.pauses.ended)
    actor.emit(ActorPaused())
    return True


def resume(actor: Actor) -> bool:
    """Let it go on, unless an ancestor is paused as well. False if it was not paused itself."""
    pauses = actor.root.pauses
    if pauses is None or actor not in pauses.paused:
        return False
    pauses.paused.discard(actor)
    actor.not_on_end(pauses.ended)
    pauses.let_go()
    actor.emit(ActorResumed())
    return True


@final
class Pauses:
    """The paused actors under one root; exists while there are any (`root.pauses`)."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.paused: set[Life] = set()
        self._lot = trio.lowlevel.ParkingLot()

    def holds(self, actor: Life) -> bool:
        """Whether it is paused, itself or by an ancestor."""
        above: Life | None = actor
        while above is not None:
            if above in self.paused:
                return True
            above = above.parent
        return False

    async def passed(self, actor: Life) -> None:
        """Wait until the actor may begin something new. A checkpoint only if it has to wait."""
        while self.holds(actor):
            await self._lot.park()
        later = self._root.pauses
        if later is not None and later is not self:  # all were resumed, then an actor was paused again
            await later.passed(actor)

    def ended(self, _: End) -> None:
        """One of them has ended."""
        self.paused = {actor for actor in self.paused if actor.end is None}
        self.let_go()

    def let_go(self) -> None:
        """Those who wait look again whether they still have to."""
        self._lot.unpark_all()
        if not self.paused and self._root.pauses is self:
            self._root.pauses = None
