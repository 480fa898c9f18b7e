"""The decider of a workflow: drives its machine by messages (see `engine/driver`).

It gets `Fired` for each firing, and answers with those that may begin now. What is done as soon as it has begun
(`Place.quick`) is done right here, some at a time: a timer of no seconds lets other actors have their turn.

A firing that was cancelled from outside fails, and with `on_error: continue` its edges are done like those of any
other that has failed.
"""

from __future__ import annotations

from collections import deque

import msgspec

from ....protocol.effects import Effect, Emit, Finish, SetTimer
from ....protocol.errors import code_of
from ....protocol.events import NodeEntered, NodeExited
from ....protocol.events import Warned as WarnedEvent
from ....protocol.failure import Failure
from ....protocol.kernel.messages import Message
from ....protocol.messages import Interrupted, TimerFired, WorkFailed
from ....protocol.workflow_messages import Fired, FireNode, NodeSaid, UnitsBegun, WorkflowBegun
from .machine.machine import StateMachine
from .machine.perform import Firing, performed
from .machine.result import Warned
from .machine.structure import Structure

TURN = 64
"""Firings without an actor in a row, before other actors get a look in."""


class WorkflowDecider:
    """One run of one graph.

    Args:
        warns: whether it emits warnings.
        order: see `StateMachine`.

    Attributes:
        timing: per node id, visits, seconds, and those of the longest.
    """

    def __init__(self, structure: Structure, *, warns: bool = True, order: list[str] | None = None) -> None:
        self.heard = True
        self.machine = StateMachine(structure, warn=self._warned if warns else None, order=order)
        self.timing: dict[str, tuple[int, float, float]] = {}
        self._structure = structure
        self._todo: deque[FireNode] = deque()
        self._rests = False
        self._effects: list[Effect] = []

    def begin(self, request: WorkflowBegun) -> list[Effect]:
        """Fire the start nodes."""
        self._todo.extend(self.machine.begin(request.task))
        return self._decided()

    def on(self, message: Message) -> list[Effect]:
        """A firing is over, or it is our turn again."""
        if isinstance(message, Fired):
            self._timed(message)
            self._todo.extend(self.machine.done(message))
        elif isinstance(message, WorkFailed):
            self._failed(message)
        elif isinstance(message, TimerFired):
            self._rests = False
        elif isinstance(message, Interrupted):
            self._timed(message)
            return []
        return self._decided()

    def remembers(self) -> tuple[object, ...]:
        """See `Decider`."""
        return self.machine.remembers()

    def _decided(self) -> list[Effect]:
        if not self._rests:
            self._fire()
        effects, self._effects = self._effects, []
        return effects

    def _fire(self) -> None:
        """Do what is done at once; for everything else, and for the end, there is an effect."""
        todo, machine, effects, by_id = self._todo, self.machine, self._effects, self._structure.by_id
        turn = TURN
        while todo:
            work = todo.popleft()
            place = by_id[work.node]
            if not place.quick:
                effects.append(work)
                continue
            if not turn:
                todo.appendleft(work)
                effects.append(SetTimer("turn", 0.0))
                self._rests = True
                return
            turn -= 1
            fired = performed(Firing(work, self._structure))
            if self.heard:
                effects.append(Emit(NodeEntered(node=place.id, type=place.node.type, visit=work.visit)))
                effects.append(Emit(exited(self._structure, work, fired)))
            self._timed(fired)
            todo.extend(machine.done(fired))
        if machine.finished:  # the order of a twin of ours would not hold the nodes of subgraphs
            effects.append(Finish(msgspec.structs.replace(machine.result(), order=[])))

    def _failed(self, message: WorkFailed) -> None:
        """A firing was cancelled: it goes on with that as its output, or fails."""
        work = self.machine.under_way[message.key]
        place = self._structure.by_id[work.node]
        error = message.failure.restore().at(place.id)
        if place.node.on_error == "continue" and work.failure is None:
            again = msgspec.structs.replace(work, failure=message.failure, lane=None)
            self.machine.under_way[work.key] = again
            self._effects.append(again)
            return
        fired = Fired(message.key, node=place.id, failure=Failure.of(error), seconds=message.seconds)
        if self.heard:
            self._effects.append(Emit(exited(self._structure, work, fired), about=message.key))
        self._timed(fired)
        self._todo.extend(self.machine.done(fired))

    def _timed(self, message: Fired | Interrupted) -> None:
        id = self.machine.under_way[message.key].node
        visits, total, longest = self.timing.get(id, (0, 0.0, 0.0))
        self.timing[id] = (visits + 1, total + message.seconds, max(longest, message.seconds))

    def _warned(self, warned: Warned) -> None:
        if self.heard:
            event = WarnedEvent(code=warned.code, message=warned.message, node=warned.node)
            self._effects.append(Emit(event))


def exited(structure: Structure, work: FireNode, fired: Fired) -> NodeExited:
    """The event of a firing that is over."""
    targets = dict.fromkeys(structure.ways[each.way].target.id for each in fired.crossings if each.fires)
    why = fired.failure or fired.tolerated
    told, code = (None, "") if why is None else (why.text, code_of(why.restore()))
    return NodeExited(node=work.node, seconds=fired.seconds, next=list(targets), error=told, code=code)


class UnitsDecider:
    """A batch of units of a map or tree: each once, what they have said in their order.

    Attributes:
        said: what each has come to so far, by its number.
    """

    def __init__(self) -> None:
        self.heard = True
        self.said: dict[int, NodeSaid] = {}
        self._count = 0

    def begin(self, request: UnitsBegun) -> list[Effect]:
        """Run them all."""
        self._count = len(request.units)
        return list(request.units)

    def on(self, message: Message) -> list[Effect]:
        """A unit is over."""
        if isinstance(message, WorkFailed):
            message = NodeSaid(message.key, failure=message.failure)
        if not isinstance(message, NodeSaid):
            return []
        self.said[message.key] = message
        return [Finish(self.in_order())] if len(self.said) == self._count else []

    def remembers(self) -> tuple[object, ...]:
        """See `Decider`."""
        return (self.said,)

    def in_order(self) -> list[NodeSaid]:
        """What has been said so far."""
        return [self.said[key] for key in sorted(self.said)]
