"""Looking at the tree from outside, and making parts of it pause.

A census is a snapshot: every actor below one, as it stands at this moment. Actors are found by their paths.

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

import msgspec
import trio

from ..protocol.kernel.events import ActorPaused, ActorResumed

if TYPE_CHECKING:
    from .actor import Actor
    from .life import Life
    from .ref import End
    from .root import Root


class Seen(msgspec.Struct, frozen=True, gc=False):
    """One actor at the moment of a census.

    Attributes:
        path, parent, name: its place; the parent of one at the top is "".
        run: id of the run whose stream it reports to; "" for none.
        state: see `ref.State`.
        paused: itself, or an ancestor.
        mailbox: messages that wait.
        received: messages that it has taken so far.
        sent: messages that its task has told, asked and signalled since `count_sent`; 0 while that is not counted.
        children: how many actors are right below it.
    """

    path: str
    parent: str
    name: str
    run: str
    state: str
    paused: bool
    mailbox: int
    received: int
    sent: int
    children: int


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


def look_at(actor: Actor) -> Seen:
    """One actor."""
    pauses, parent = actor.root.pauses, actor.parent
    return Seen(
        path=actor.path,
        parent=parent.path if parent is not None and parent.parent is not None else "",
        name=actor.name,
        run=actor.stream.run,
        state=actor.state,
        paused=pauses is not None and pauses.holds(actor),
        mailbox=len(actor.mailbox),
        received=actor.mailbox.received,
        sent=actor.root.sent.get(actor, 0) if actor.root.sent is not None else 0,
        children=actor.child_count,
    )


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
    if actor.end is not None:
        return False
    root = actor.root
    if root.pauses is None:
        root.pauses = Pauses(root)
    return root.pauses.add(actor)


def resume(actor: Actor) -> bool:
    """Let it go on, unless an ancestor is paused as well. False if it was not paused itself."""
    pauses = actor.root.pauses
    return pauses is not None and pauses.remove(actor)


@final
class Pauses:
    """The paused actors under one root; exists while there are any (`root.pauses`)."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._paused: set[Life] = set()
        self._lot = trio.lowlevel.ParkingLot()

    def holds(self, actor: Life) -> bool:
        """Whether it is paused, itself or by an ancestor."""
        above: Life | None = actor
        while above is not None:
            if above in self._paused:
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

    def add(self, actor: Actor) -> bool:
        """See `pause`."""
        if actor in self._paused:
            return False
        self._paused.add(actor)
        actor.on_end(self._ended)
        actor.emit(ActorPaused())
        return True

    def remove(self, actor: Actor) -> bool:
        """See `resume`."""
        if actor not in self._paused:
            return False
        self._paused.discard(actor)
        actor.not_on_end(self._ended)
        self._let_go()
        actor.emit(ActorResumed())
        return True

    def _ended(self, _: End) -> None:
        self._paused = {actor for actor in self._paused if actor.end is None}
        self._let_go()

    def _let_go(self) -> None:
        """Those who wait look again whether they still have to."""
        self._lot.unpark_all()
        if not self._paused and self._root.pauses is self:
            self._root.pauses = None
