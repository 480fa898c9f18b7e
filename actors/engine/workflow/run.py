"""Execution of a workflow in an actor, and of every node that waits in a child actor; the result of a run.

    /run-7f3a01bc/writers-room                 the workflow: runs its decider
    /run-7f3a01bc/writers-room/Writer#2        a firing: the node's own code, its edges
    /run-7f3a01bc/writers-room/Review/Critic   a node of a subgraph, whose decider runs in the subgraph's firing
    /run-7f3a01bc/writers-room/Nurse/Nurse[3]  a unit of a map

A firing reports its result in a message (`decider`) and shares no state with the decider. Questions and failures
are passed up the tree; the end of an actor ends all actors below it. Nodes that never wait get no actor, but emit
the same events.

Human nodes of one graph ask one after another, in the order of the file. Python nodes run one at a time, because
they share a directory.

The outcome of a run lists the fired nodes of all its graphs and their outputs. Each graph that a firing runs has a
`RanGraph` below that of the outer graph. A later incarnation of a durable run rebuilds these (`recall`) from the
messages of the graphs' deciders.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.effects import Work
from ....protocol.errors import CallboardError, GraphMistake, NodeFailed, ToolFailed, code_of
from ....protocol.events import GraphStarted, NodeEntered, NodeExited
from ....protocol.kernel.errors import EndOfMail
from ....protocol.messages import Failure, WorkDone
from ....protocol.outcome import Message as RecordedMessage
from ....protocol.outcome import NodeTime
from ....protocol.workflow.model import AgentConfig, Graph, HumanConfig, LoopTimerConfig, SubgraphConfig
from ....protocol.workflow_messages import (
    CALL,
    Called,
    Fired,
    FireNode,
    NodeCodeDone,
    RunUnit,
    Unit,
    UnitsBegun,
    WorkflowBegun,
)
from ...io.imports import imported
from ...work.journal.actor_journal import JournalPlayer, played, scope_of
from ...work.journal.directory import place_of
from ...work.journal.unknown_outcome import once
from ...work.playback import PLAYED, OutsideEffect, playback, value, whole
from ...work.transcript import Record
from ..driver import Driver, EarlierWork, Performer, fold
from ..graph.result import NEVER_TOLERATED, GraphResult, run_error
from ..graph.run import emit_end, log_summary
from .decider import UnitsDecider, WorkflowDecider, exited
from .edge_functions import EdgeFunctions
from .job import GraphResources, Job
from .machine.machine import MachineResult
from .machine.perform import Firing, Kind, Said, message_of, multiplied, perform, restored, tolerated_of
from .machine.structure import ReadyEdge, Structure
from .messages import Message, signed
from .nodes import CODE
from .nodes.python import saves_and_runs
from .plan import WorkflowPlan, WorkflowRun
from .workspace import WorkflowWorkspace

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext


AT_ONCE = 1000
"""Most concurrent firings of one graph; more firings wait."""

log = logging.getLogger("callboard.graph")


async def run_workflow(
    me: Actor,
    plan: WorkflowPlan,
    task: Sequence[Message],
    context: RunContext,
    depth: int = 0,
    result: WorkflowResult | None = None,
    record: Record | None = None,
    workspace: Path | None = None,
    attachments: Sequence[Path] = (),
) -> WorkflowResult:
    """Run a workflow in the actor `me`, and return its result.

    Args:
        task: messages for the start nodes.
        depth: number of agents above it.
        result: filled when this actor ends, also with the intermediate result if it is cancelled.
        record: transcript of its models' texts.
        workspace: directory of python nodes; by default a directory that is removed at the end.
        attachments: files that are copied into it.
    """
    result = result if result is not None else WorkflowResult()
    async with WorkflowWorkspace(me, workspace, attachments) as place:
        shared = WorkflowRun(plan=plan, context=context, depth=depth, record=record or Record(), workspace=place)
        functions = None if plan.structure is not None else EdgeFunctions(me, shared)
        try:
            structure = _structure(me, shared, functions)
        except CallboardError as error:  # an edge names an unknown function
            result.error = error
            return result
        ran = RanGraph()
        run = GraphRun(me, structure, shared, functions, plan.name, ran)
        decider = run.decider
        try:
            result.error = (await run.to_the_end(task)).error
        # The actor was asked to stop, which is not a failure of the workflow.
        except EndOfMail:
            raise
        except CallboardError as error:
            result.error = error
        finally:
            # Also after a failure or cancellation: the outcome reports how far the run has come.
            ended = decider.machine.result()
            result.take(ended, decider.timing, ran)
            shared.record.failures += ended.unaccepted
        if is_logged(logging.INFO, plan.workflow.graph):
            log_summary(plan.name, decider.timing)
        return result


def _structure(me: Actor, shared: WorkflowRun, functions: EdgeFunctions | None) -> Structure:
    """Return the graph with callable edges; functions that need a process belong to this run."""
    plan = shared.plan
    if plan.structure is not None:
        return plan.structure
    assert functions is not None
    changes = {"code_save_and_run": saves_and_runs(me, shared)} if plan.named.runs_code else {}
    return Structure(plan.workflow.graph, plan.rules, functions.functions(changes))


def is_logged(level: int, graph: Graph) -> bool:
    """Return True if a workflow's `log_level` includes this level."""
    return graph.log_level is None or level >= logging.getLevelNamesMapping()[graph.log_level]


class GraphRun:
    """Run of one graph: its decider and its performers.

    Args:
        me: parent of the firings.
        functions: functions of the run's edges; None if they name none.
        ran: receives the results of this graph for the outcome.
        depth: number of subgraphs around this graph.
    """

    def __init__(
        self,
        me: Actor,
        structure: Structure,
        shared: WorkflowRun,
        functions: EdgeFunctions | None,
        name: str,
        ran: RanGraph,
        depth: int = 0,
    ) -> None:
        self._on_unknown = shared.context.settles(None)
        self._warns = is_logged(logging.WARNING, shared.plan.workflow.graph)
        self.decider = WorkflowDecider(structure, warns=self._warns, order=ran.order)
        self._me = me
        self._structure = structure
        self._shared = shared
        self._functions = functions
        self._name = name
        self._ran = ran
        self._depth = depth
        self._resources: GraphResources | None = None

    async def to_the_end(self, task: Sequence[Message]) -> MachineResult:
        """Execute firings until the decider finishes.

        Raises:
            ShuttingDown: no new work is admitted.
        """
        me, structure, decider = self._me, self._structure, self.decider
        depth = self._shared.depth + self._depth
        began = trio.current_time()
        if me.stream.heard:
            me.emit(GraphStarted(graph=self._name, start=", ".join(structure.graph.start), depth=depth))
        with contextlib.ExitStack() as stack:
            configs = [node.config for node in structure.graph.nodes]
            remembering = any(isinstance(each, HumanConfig) and each.memories for each in configs)
            if remembering or any(isinstance(each, AgentConfig) for each in configs):
                await imported(".actors.engine.workflow.memory.memories", ".actors.engine.workflow.nodes.agent")
                resources = GraphResources(self._shared, structure.graph, place_of(me, "memory"))
                self._resources = stack.enter_context(contextlib.closing(resources))
                await resources.memories.choose_paths(me)
            fresh = partial(WorkflowDecider, structure, warns=self._warns)
            restore = partial(recall, structure, self._ran)
            driver = Driver(me, decider, {FireNode: self._fire}, limit=AT_ONCE, fresh=fresh, restore=restore)
            result: MachineResult = await driver.run(WorkflowBegun(task=tuple(task)))
        emit_end(me, self._name, depth, began, decider.timing, run_error(result.unaccepted, result.error))
        return result

    async def _fire(self, me: Actor, work: FireNode) -> Fired:
        began = trio.current_time()
        is_timer = isinstance(self._structure.by_id[work.node].node.config, LoopTimerConfig)
        # Only durable and recorded runs need to store the results of edge functions.
        is_told = self._functions is not None and (scope_of(me) is not None or playback.get() is not None)
        call = partial(self._called, me) if is_told else None
        # Timers measure execution time across incarnations, and a replayed run needs the recorded value.
        now = value(me, PLAYED, float, partial(played, me)) if is_timer else 0.0
        firing = Firing(work, self._structure, now, call)
        heard, node = me.stream.heard, firing.node
        if heard and work.failure is None:
            me.emit(NodeEntered(node=node.id, type=node.type, visit=work.visit))
        units = _Units()
        fired: Fired | None = None
        try:
            fired = await perform(firing, partial(self._code, me, firing, units))
        finally:
            # The firing itself has no output then, so store the output of the units that have ended.
            if units.said and (fired is None or (fired.failure is not None and not fired.outputs)):
                self._ran.keep_part(node.id, units.said)
        fired = msgspec.structs.replace(fired, seconds=trio.current_time() - began)
        if heard:
            me.emit(exited(self._structure, work, fired))
        return fired

    async def _called(
        self, me: Actor, firing: Firing, kind: Kind, way: ReadyEdge, text: str, work: Callable[[], Awaitable[Called]]
    ) -> Called:
        """Call an edge function with side effects: journal or record its result, and never repeat it without asking."""
        functions = self._functions
        assert functions is not None

        async def ended() -> Called:
            try:
                called = await work()
            # Not stored as the function's result, because these errors end the run.
            except NEVER_TOLERATED:
                raise
            except CallboardError as error:
                called = Called(failure=Failure.of(error))
            return functions.keeping(called)

        left_out = Failure.of(ToolFailed("the call was running when the program ended, and was skipped"))
        skipped = Called(failure=left_out)
        node, wanted = firing.node.id, self._on_unknown
        call = partial(whole, me, OutsideEffect(kind, str(way), text), Called, ended)
        called = await once(me, node, f"the {kind} of {way}", Called, call, wanted=wanted, skipped=skipped, name=CALL)
        if called.failure is not None:
            raise called.failure.restore()
        return called

    async def _code(self, me: Actor, firing: Firing, before: _Units, units: Sequence[Unit], limit: int) -> list[Said]:
        """Return the results of a batch of units; `before` has the results of earlier batches."""
        if units[0].index is None:
            return [await self._one(me, firing, units[0])]
        name, decider, layer = firing.work.name, UnitsDecider(), before.layers
        if isinstance(firing.node.config, HumanConfig) and self._shared.context.has_answers:
            limit = 1  # Concurrent units ask in any order, but prepared answers are in the order of the units.
        before.layers += 1
        batch = tuple(RunUnit(key=i, name=f"{name}[{i}]", unit=unit) for i, unit in enumerate(units))
        performers: dict[type[Work], Performer] = {RunUnit: partial(self._unit, firing, layer)}

        async def restore(player: JournalPlayer, gone: list[EarlierWork]) -> None:
            await recall_units(firing, self._ran, player, gone, layer, units)

        driver = Driver(me, decider, performers, limit=limit, fresh=UnitsDecider, restore=restore)
        try:
            results: list[NodeCodeDone] = await driver.run(UnitsBegun(units=batch))
        finally:
            before.said += [message for each in decider.in_order() for message in each.outputs]
        return [restored(each) for each in results]

    async def _unit(self, firing: Firing, layer: int, me: Actor, work: RunUnit) -> NodeCodeDone:
        node, index = firing.node, work.key
        heard, began = me.stream.heard, trio.current_time()
        if heard:
            me.emit(NodeEntered(node=node.id, type=node.type, visit=1, item=index))
        said = await self._one(me, firing, work.unit, layer)
        if heard:
            why, code = (None, "") if said.error is None else (str(said.error), code_of(said.error))
            seconds = trio.current_time() - began
            me.emit(NodeExited(node=node.id, seconds=seconds, item=index, error=why, code=code))
        return message_of(index, said)

    async def _one(self, me: Actor, firing: Firing, unit: Unit, layer: int = 0) -> Said:
        try:
            if isinstance(firing.node.config, SubgraphConfig):
                return await self._subgraph(me, firing, unit, layer)
            job = Job(firing, unit, self._shared, self._resources)
            return await CODE[type(firing.node.config)](me, job)
        except CallboardError as error:
            return Said(error=error)
        except Exception as error:  # a bug in a node's code must end only that node; the log has the traceback
            log.exception("node '%s' crashed", firing.node.id)
            return Said(error=NodeFailed(f"{type(error).__name__}: {error}").at(firing.node.id))

    async def _subgraph(self, me: Actor, firing: Firing, unit: Unit, layer: int) -> Said:
        structure, name = self._structure.within(firing.place), firing.place.id
        ran = self._ran.of(firing.work.key, layer, unit.index)
        inner = GraphRun(me, structure, self._shared, self._functions, structure.graph.id or name, ran, self._depth + 1)
        try:
            return (await inner.to_the_end(unit.inputs)).as_output()
        finally:
            ran.outputs = inner.decider.machine.result().outputs


class _Units(msgspec.Struct):
    """Outputs of a firing's units so far, and the number of layers."""

    said: list[Message] = []
    layers: int = 0


# --- results ----------------------------------------------------------------------------------------------


class WorkflowResult(GraphResult, kw_only=True):
    """Result of a workflow; the intermediate result if it was ended early.

    `output` is the text of the result; `order` includes the nodes of subgraphs.

    Attributes:
        final_messages, leftover: see `MachineResult`.
        outputs: output of each node; a subgraph's node has a name such as `Team/Writer`.
    """

    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)

    def recorded_messages(
        self,
    ) -> tuple[list[RecordedMessage], dict[str, list[RecordedMessage]], dict[str, list[RecordedMessage]]]:
        """Return the messages for an outcome: final messages, leftover messages by node, outputs by node."""
        left, said = (
            {node: [_recorded_message(message) for message in messages] for node, messages in each.items()}
            for each in (self.leftover, self.outputs)
        )
        return [_recorded_message(message) for message in self.final_messages], left, said

    def take(self, result: MachineResult, timing: Mapping[str, tuple[int, float, float]], ran: RanGraph) -> None:
        """Copy the state of a machine into this result; the time of a subgraph is its node's time."""
        self.output = result.final
        self.nodes = {id: NodeTime(visits=visits, seconds=seconds) for id, (visits, seconds, _) in timing.items()}
        self.final_messages = result.final_messages
        self.leftover = result.leftover
        ran.outputs = result.outputs
        self.order = list(ran.fired())
        for id, said in ran.node_outputs():
            self.outputs[id] = (*self.outputs.get(id, ()), *said)


def _recorded_message(message: Message) -> RecordedMessage:
    return RecordedMessage(role=message.role, content=message.text, source=message.source)


class RanGraph(msgspec.Struct, eq=False):
    """Results of one run of a graph.

    Attributes:
        order: the fired nodes; index 0 has the firing with key 1.
        outputs: output of each node.
        parts: outputs of some units of firings that failed or were cancelled, by node.
        below: graphs of subgraph firings, by the firing's key; then by layer and index of the unit.
    """

    order: list[str] = []
    outputs: dict[str, tuple[Message, ...]] = {}
    parts: dict[str, list[Message]] = {}
    below: dict[int, dict[tuple[int, int], RanGraph]] = {}

    def of(self, key: int, layer: int = 0, unit: int | None = None) -> RanGraph:
        """Return the results of the graph of a firing, or of one of its units."""
        return self.below.setdefault(key, {}).setdefault((layer, unit or 0), RanGraph())

    def fired(self) -> Iterator[str]:
        """Yield all fired nodes; the nodes of a subgraph follow its node."""
        for key, id in enumerate(self.order, 1):
            yield id
            for ran in self._of_firing(key):
                yield from ran.fired()

    def node_outputs(self, prefix: str = "") -> Iterator[tuple[str, tuple[Message, ...]]]:
        """Yield the outputs of nodes; a subgraph's nodes have names such as `Team/Writer`, and can occur more than
        once.
        """
        for each in self.outputs.items():
            yield prefix + each[0], each[1]
        for id, parts in self.parts.items():
            yield prefix + id, tuple(parts)
        for key in sorted(self.below):
            for ran in self._of_firing(key):
                yield from ran.node_outputs(f"{prefix}{self.order[key - 1]}/")

    def keep_part(self, node: str, said: Sequence[Message]) -> None:
        """Store the outputs of some units of a firing that will not end normally."""
        self.parts.setdefault(node, []).extend(signed(message, node) for message in said)

    def _of_firing(self, key: int) -> list[RanGraph]:
        return [ran for _, ran in sorted(self.below.get(key, {}).items(), key=lambda each: each[0])]


async def recall(structure: Structure, ran: RanGraph, player: JournalPlayer, gone: Iterable[EarlierWork]) -> None:
    """Rebuild the results of firings that began in earlier incarnations.

    Raises:
        CannotGoOn: the journal is from another graph.
    """
    for each in gone:
        work, end = each.work, each.end
        assert isinstance(work, FireNode)
        place = structure.by_id[work.node]
        runs_graph = isinstance(place.node.config, SubgraphConfig)
        if work.failure is not None:  # only its edges were executed
            continue
        if place.dynamic is None:
            if runs_graph:
                await _recall_graph(structure.within(place), ran.of(work.key), player.of(each.path), work.inputs)
        # A plain firing that ended has its outputs in the machine; only partial ones must be rebuilt.
        elif runs_graph or _stays_behind(end):
            with suppress(GraphMistake, NodeFailed):  # the firing stopped in the middle of its layers
                await _recall_layers(Firing(work, structure), ran, player, each)


async def recall_units(
    firing: Firing, ran: RanGraph, player: JournalPlayer, gone: Iterable[EarlierWork], layer: int, units: Sequence[Unit]
) -> None:
    """Rebuild the results of a firing's units; see `recall`."""
    if isinstance(firing.node.config, SubgraphConfig):
        within = firing.structure.within(firing.place)
        for each in gone:
            below = ran.of(firing.work.key, layer, each.work.key)
            await _recall_graph(within, below, player.of(each.path), units[each.work.key].inputs)


async def _recall_graph(structure: Structure, ran: RanGraph, player: JournalPlayer, task: Sequence[Message]) -> None:
    # The process died before the first row of the subgraph: it starts from its beginning.
    if not player.past:
        return
    decider, gone = WorkflowDecider(structure, warns=False, order=ran.order), list[EarlierWork]()
    left = fold(decider, player, WorkflowBegun(task=tuple(task)), gone=gone)
    ran.outputs = decider.machine.result().outputs
    await recall(structure, ran, player, [*gone, *left.under_way(player)])


async def _recall_layers(firing: Firing, ran: RanGraph, player: JournalPlayer, gone: EarlierWork) -> None:
    """Rebuild the layers of units: one for a map, one or more for a tree."""
    dynamic = firing.place.dynamic
    assert dynamic is not None
    layer, said = 0, list[Message]()

    async def run(units: Sequence[Unit], _limit: int) -> list[tuple[Message, ...]]:
        nonlocal layer
        if units[0].index is None:  # no units
            if isinstance(firing.node.config, SubgraphConfig):
                within, below = firing.structure.within(firing.place), ran.of(firing.work.key)
                await _recall_graph(within, below, player.of(gone.path), units[0].inputs)
            return [()]
        # Each layer has its own decider, and so its own path in the journal (`JournalScope.player`).
        inner = player.of(gone.path if layer == 0 else f"{gone.path}:{layer + 1}")
        if not inner.past:
            raise NodeFailed("it did not come this far")
        decider, ended = UnitsDecider(), list[EarlierWork]()
        batch = tuple(RunUnit(key=i, unit=unit, name="") for i, unit in enumerate(units))
        left = fold(decider, inner, UnitsBegun(units=batch), gone=ended)
        await recall_units(firing, ran, inner, [*ended, *left.under_way(inner)], layer, units)
        results = decider.in_order()
        said.extend(message for each in results for message in each.outputs)
        if len(results) < len(units):
            raise NodeFailed("it did not come to the end of this")
        layer += 1
        return tolerated_of(firing, units, [restored(each) for each in results])

    try:
        await multiplied(dynamic, firing.work.inputs, run, firing.structure.rules)
    finally:
        if said and _stays_behind(gone.end):
            ran.keep_part(firing.node.id, said)


def _stays_behind(end: WorkDone | None) -> bool:
    """Return True if a firing's result lacks the outputs of its units."""
    return not isinstance(end, Fired) or (end.failure is not None and not end.outputs)
