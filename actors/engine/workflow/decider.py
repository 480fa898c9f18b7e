"""Decider of a workflow: drives its state machine by messages (see `engine/driver`).

It receives `Fired` for each firing and returns the firings that may begin. Firings without waiting
(`NodeEdges.quick`) are executed in the decider, at most `TURN` in a row. A timer of zero seconds then lets other
actors run.

A firing that was cancelled from outside counts as failed. With `on_error: continue` its edges still run, as after
any other failure.
"""

from __future__ import annotations

from collections import deque

import msgspec

from ....protocol.effects import Effect, Emit, Finish, SetTimer
from ....protocol.errors import code_of
from ....protocol.events import NodeEntered, NodeExited
from ....protocol.events import Warned as WarnedEvent
from ....protocol.kernel.messages import Message
from ....protocol.messages import Failure, Interrupted, TimerFired, WorkFailed
from ....protocol.workflow_messages import Fired, FireNode, NodeCodeDone, UnitsBegun, WorkflowBegun
from .machine.machine import StateMachine, WorkflowWarning
from .machine.perform import Firing, performed
from .machine.structure import Structure

TURN = 64
"""Most firings in a row that the decider executes before it lets other actors run."""


class WorkflowDecider:
    """Decider of one run of a workflow's graph.

    Args:
        warns: emit warnings.
        order: see `StateMachine`.

    Attributes:
        timing: visits, seconds, and seconds of the longest visit, by node id.
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
        """Return the firings of the start nodes, or what follows if these never wait."""
        self._todo.extend(self.machine.begin(request.task))
        return self._decided()

    def on(self, message: Message) -> list[Effect]:
        """Return the firings that may begin after the end of a firing, or after the pause that `TURN` causes."""
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
        return self.machine.remembers()

    def _decided(self) -> list[Effect]:
        if not self._rests:
            self._fire()
        effects, self._effects = self._effects, []
        return effects

    def _fire(self) -> None:
        """Execute quick firings; add effects for the other firings and for the end."""
        todo, machine, effects, by_id = self._todo, self.machine, self._effects, self._structure.by_id
        turn = TURN
        while todo:
            work = todo.popleft()
            place = by_id[work.node]
            if not place.quick:
                effects.append(work)
                continue
            if not turn:
                # At the front, so that firings keep their order.
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
        if machine.finished:
            machine.warn_without_result()
            # Without the order: a second decider of the same run would lack the nodes of subgraphs.
            effects.append(Finish(msgspec.structs.replace(machine.result(), order=[])))

    def _failed(self, message: WorkFailed) -> None:
        """Treat a cancelled firing as failed; with `on_error: continue`, run its edges with the failure as output."""
        work = self.machine.under_way[message.key]
        place = self._structure.by_id[work.node]
        error = message.failure.restore().at(place.id)
        # The repetition has `failure` set, so a firing is repeated only once.
        if place.node.on_error == "continue" and work.failure is None:
            # Only the edges run again, so the firing need not wait for its lane.
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

    def _warned(self, warned: WorkflowWarning) -> None:
        if self.heard:
            event = WarnedEvent(code=warned.code, message=warned.message, node=warned.node)
            self._effects.append(Emit(event))


def exited(structure: Structure, work: FireNode, fired: Fired) -> NodeExited:
    """Return the event about the end of a firing."""
    targets = dict.fromkeys(structure.ways[each.way].target.id for each in fired.crossings if each.fires)
    why = fired.failure or fired.tolerated
    told, code = (None, "") if why is None else (why.text, code_of(why.restore()))
    return NodeExited(node=work.node, seconds=fired.seconds, next=list(targets), error=told, code=code)


class UnitsDecider:
    """Decider of a batch of units of a map or tree: runs each once, and returns the results in the order of the units.

    A unit that fails does not end the batch: its result holds the failure.

    Attributes:
        said: results so far, by index of the unit.
    """

    def __init__(self) -> None:
        self.heard = True
        self.said: dict[int, NodeCodeDone] = {}
        self._count = 0

    def begin(self, request: UnitsBegun) -> list[Effect]:
        self._count = len(request.units)
        return list(request.units)

    def on(self, message: Message) -> list[Effect]:
        if isinstance(message, WorkFailed):
            message = NodeCodeDone(message.key, failure=message.failure)
        if not isinstance(message, NodeCodeDone):
            return []
        self.said[message.key] = message
        return [Finish(self.in_order())] if len(self.said) == self._count else []

    def remembers(self) -> tuple[object, ...]:
        return (self.said,)

    def in_order(self) -> list[NodeCodeDone]:
        """Return the results so far, in the order of the units."""
        return [self.said[key] for key in sorted(self.said)]
