"""Inspect the actor tree, pause parts of it, count messages, and detect subtrees that only wait for users.

**Pausing.** A paused actor, and every actor below it, finishes its current step and begins nothing new. The code that
takes the steps defines what a step is: it calls `passed` before each one, which costs an attribute look-up while
nothing is paused:

    if me.root.pauses is not None:
        await me.root.pauses.passed(me)

Deadlines keep running meanwhile: that of a paused step still holds.

**Quiescence.** A subtree that only waits for answers of users, however long they take, can be unloaded and rebuilt from
its journal when an answer arrives. An actor without children is quiescent if it waits for an answer and for nothing
else. One with children is quiescent if they are, and no request and no call of its own is in flight; only a subscriber
to the run's events knows this. A time limit, a timer or a subprocess prevents quiescence: unloading would stop it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import trio

from ..protocol.kernel.events import ActorPaused, ActorResumed

if TYPE_CHECKING:
    from .actor import Actor
    from .ref import End
    from .root import Root


def find(root: Root, path: str) -> Actor | None:
    """Return the living actor with this path; None if there is none. Names may contain slashes themselves."""
    if path == "/":
        return root.actor
    return _find_below(root.actor, path[1:]) if path.startswith("/") else None


def _find_below(actor: Actor, path: str) -> Actor | None:
    child = actor.child(path)
    if child is not None:
        return child
    slash = path.find("/")
    while slash != -1:
        child = actor.child(path[:slash])
        found = None if child is None else _find_below(child, path[slash + 1 :])
        if found is not None:
            return found
        slash = path.find("/", slash + 1)
    return None


def census(root: Root, top: Actor | None = None) -> Iterator[Actor]:
    """Yield all actors from `top` downwards (default: all but the root itself), parents before their children."""
    waiting = list(reversed(root.actor.below)) if top is None else [top]
    while waiting:
        actor = waiting.pop()
        yield actor
        waiting.extend(reversed(actor.below))


# --- counting sent messages ---------------------------------------------------------------------------------


@contextmanager
def count_sent(root: Root) -> Iterator[None]:
    """Count the messages that each actor sends, while the block lasts. An inner block continues the outer count.

    Counting is off by default, since finding the sender costs a third of what `tell` does.
    """
    sent = root.sent
    if sent is None:
        sent = root.sent = SentCounts(root)
        for actor in census(root, root.actor):
            actor.mailbox.kind = None  # the fast path of `tell` does not count
    sent.readers += 1
    try:
        yield
    finally:
        sent.readers -= 1
        if not sent.readers:
            root.sent = None


def sent_by(actor: Actor) -> int:
    """Return how many messages the actor's task has sent since `count_sent`; 0 without counting."""
    sent = actor.root.sent
    return sent.get(actor, 0) if sent is not None else 0


@final
class SentCounts(dict["Actor", int]):
    """Number of messages that each living actor has sent; see `count_sent`."""

    def __init__(self, root: Root) -> None:
        super().__init__()
        self._tasks = root.tasks
        self.readers = 0

    def count(self, sender: Actor | None = None) -> None:
        """Count a message of `sender`, by default of the actor that runs in the current task, if any."""
        sender = sender or self._tasks.get(trio.lowlevel.current_task())
        if sender is not None:
            self[sender] = self.get(sender, 0) + 1


# --- pausing --------------------------------------------------------------------------------------------------


def pause(actor: Actor) -> bool:
    """Pause the actor and all below it. False if it is paused itself already, or has ended."""
    root = actor.root
    if actor.end is not None or (root.pauses is not None and actor in root.pauses.paused):
        return False
    if root.pauses is None:
        root.pauses = Pauses(root)
    root.pauses.paused.add(actor)
    # An actor that ends while paused would otherwise stay in the set, and keep the slow path of all actors on.
    actor.on_end(root.pauses.ended)
    actor.emit(ActorPaused())
    return True


def resume(actor: Actor) -> bool:
    """Undo `pause`; the actor stays paused while an ancestor is. False if it was not paused itself."""
    pauses = actor.root.pauses
    if pauses is None or actor not in pauses.paused:
        return False
    pauses.paused.discard(actor)
    actor.not_on_end(pauses.ended)
    pauses.recheck()
    actor.emit(ActorResumed())
    return True


def is_paused(actor: Actor) -> bool:
    """Return whether the actor or an ancestor is paused."""
    pauses = actor.root.pauses
    return pauses is not None and pauses.holds(actor)


@final
class Pauses:
    """The paused actors of one root. `root.pauses` holds it while there are any, else None."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.paused: set[Actor] = set()
        self._lot = trio.lowlevel.ParkingLot()

    def holds(self, actor: Actor) -> bool:
        """Return whether the actor or an ancestor is paused."""
        ancestor: Actor | None = actor
        while ancestor is not None:
            if ancestor in self.paused:
                return True
            ancestor = ancestor.parent
        return False

    async def passed(self, actor: Actor) -> None:
        """Wait until the actor may begin something new. A checkpoint only if it has to wait."""
        while self.holds(actor):
            await self._lot.park()
        later = self._root.pauses
        if later is not None and later is not self:  # all were resumed, then an actor was paused again
            await later.passed(actor)

    def ended(self, _: End) -> None:
        """Remove paused actors that have ended."""
        self.paused = {actor for actor in self.paused if actor.end is None}
        self.recheck()

    def recheck(self) -> None:
        """Wake all tasks in `passed`; if nothing is paused any more, detach this object from the root."""
        self._lot.unpark_all()
        if not self.paused and self._root.pauses is self:
            self._root.pauses = None


# --- quiescence -----------------------------------------------------------------------------------------------


def at_rest(top: Actor, questions: Collection[str]) -> bool:
    """Return whether this actor and all below it wait for users only.

    Args:
        questions: ids of the questions that these actors have asked and that are open.
    """
    root = top.root
    # Pauses are state in memory only: an unloaded run would come back running.
    if not questions or root.clocks[top.stream.run] or root.pauses:
        return False
    if not all(map(root.questions.waits_for_people, questions)):
        return False
    actors = [top]
    while actors:
        actor = actors.pop()
        below = actor.below
        if actor.timers or actor.stopping or root.pid_of(actor.path) or (not below and actor.state != "waiting"):
            return False
        actors += below
    return True
