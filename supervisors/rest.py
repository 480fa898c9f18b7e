"""Whether a part of the tree is at rest: all that it waits for is answers of people, however long they take.

Nothing is lost then if its actors end and are made again from what they were told (durable runs). An actor without
children is at rest if it has asked and waits for nothing else; one with children, if they are, and no request and no
call of its own is under way: of those only who hears its events knows. Nor is one at rest that has a time limit, a
timer or a process.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actor import Actor


def at_rest(top: Actor, questions: Collection[str]) -> bool:
    """Whether this actor and all below it are; `questions` are the ids of those that they have asked."""
    root = top.root
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
