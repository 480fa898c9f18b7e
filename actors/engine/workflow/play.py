"""A workflow as an actor: its decider is played, and every node that takes its time is an actor below it.

    /run-7f3a01bc/writers-room                 the workflow: plays its decider
    /run-7f3a01bc/writers-room/Writer#2        a firing: the node's own code, its edges
    /run-7f3a01bc/writers-room/Review/Critic   a node of a subgraph, whose decider the subgraph's firing plays
    /run-7f3a01bc/writers-room/Nurse/Nurse[3]  a unit of a map

What firings come to, they say in messages (`decider`); they share nothing with it. Questions and failures travel up the
tree, whatever ends an actor ends all below it. Nodes that are done as soon as they have begun get no actor; they are
told all the same.

Human nodes of one graph ask one after another, in the order of the file, and python nodes run one at a time: they work
in the same directory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.effects import Work
from ....protocol.errors import CallboardError, NodeFailed, ToolFailed, code_of
from ....protocol.events import GraphStarted, NodeEntered, NodeExited
from ....protocol.failure import Failure
from ....protocol.kernel.errors import EndOfMail
from ....protocol.workflow.model import AgentConfig, Graph, HumanConfig, LoopTimerConfig, SubgraphConfig
from ....protocol.workflow_messages import (
    CALL,
    Called,
    Fired,
    FireNode,
    Message,
    NodeSaid,
    RunUnit,
    Unit,
    UnitsBegun,
    WorkflowBegun,
)
from ...io.imports import imported
from ...work.journal.directory import place_of
from ...work.journal.scope import Player, here, played
from ...work.journal.unknown import once
from ...work.playback.playback import PLAYED, Effect, playback, value, whole
from ...work.record import Record
from ..driver import Driver, Performer
from ..graph.failures import NEVER_TOLERATED, ended_with
from ..graph.run import log_summary, tell_end
from ..past import Gone
from .decider import UnitsDecider, WorkflowDecider, exited
from .edges.files import EdgeFunctions
from .machine.perform import Firing, Kind, Said, perform, restored, told
from .machine.result import Result
from .machine.structure import Structure, Way
from .nodes import CODE
from .nodes.python import saves_and_runs
from .plan import Job, Plan, WorkflowResult, WorkflowRun
from .ran import Ran, recall, recall_units
from .workspace import Workspace

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from .agents.resources import GraphResources

AT_ONCE = 1000
"""Firings of one graph that are under way together; more of them wait their turn."""

log = logging.getLogger("callboard.graph")


async def run_workflow(
    me: Actor,
    plan: Plan,
    task: Sequence[Message],
    context: RunContext,
    depth: int = 0,
    result: WorkflowResult | None = None,
    record: Record | None = None,
    workspace: Path | None = None,
    attachments: Sequence[Path] = (),
) -> WorkflowResult:
    """Body of a workflow's actor.

    Args:
        task: what the start nodes are given.
        depth: how many agents stand above it.
        result: filled when this actor ends, also if it is cancelled, with how far it has come.
        record: where its models' texts are written down.
        workspace: where python nodes work; by default a directory that is removed at the end.
        attachments: files that are put there.
    """
    result = result if result is not None else WorkflowResult()
    async with Workspace(me, workspace, attachments) as place:
        shared = WorkflowRun(plan=plan, context=context, depth=depth, record=record or Record(), workspace=place)
        functions = None if plan.structure is not None else EdgeFunctions(me, shared)
        try:
            structure = _structure(me, shared, functions)
        except CallboardError as error:  # an edge names what is not there
            result.error = error
            return result
        ran = Ran()
        run = GraphRun(me, structure, shared, functions, plan.name, ran)
        decider = run.decider
        try:
            result.error = (await run.to_the_end(task)).error
        except EndOfMail:
            raise
        except CallboardError as error:
            result.error = error
        finally:
            ended = decider.machine.result()
            result.take(ended, decider.timing, ran)
            shared.record.failures += ended.unaccepted
        if is_logged(logging.INFO, plan.workflow.graph):
            log_summary(plan.name, decider.timing)
        return result


def _structure(me: Actor, shared: WorkflowRun, functions: EdgeFunctions | None) -> Structure:
    """The graph with its edges made callable; functions that run in a process belong to this run."""
    plan = shared.plan
    if plan.structure is not None:
        return plan.structure
    assert functions is not None
    changes = {"code_save_and_run": saves_and_runs(me, shared)} if plan.named.runs_code else {}
    return Structure(plan.workflow.graph, plan.rules, functions.functions(changes))


def is_logged(level: int, graph: Graph) -> bool:
    """Whether a workflow's `log_level` lets this through."""
    return graph.log_level is None or level >= logging.getLevelNamesMapping()[graph.log_level]


class GraphRun:
    """One run of one graph: its decider, and what works for it.

    Args:
        me: whose children the firings are.
        functions: those of the run's edges; None if these name none.
        ran: where it writes down what it leaves.
        depth: how many subgraphs it stands in.
    """

    def __init__(
        self,
        me: Actor,
        structure: Structure,
        shared: WorkflowRun,
        functions: EdgeFunctions | None,
        name: str,
        ran: Ran,
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

    async def to_the_end(self, task: Sequence[Message]) -> Result:
        """Fire all that the decider says, until it has finished.

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
                await imported(".actors.engine.workflow.agents.resources", ".actors.engine.workflow.nodes.agent")
                from .agents.resources import GraphResources

                resources = GraphResources(self._shared, structure.graph, place_of(me, "memory"))
                self._resources = stack.enter_context(contextlib.closing(resources))
                await resources.memories.settle(me)
            afresh = partial(WorkflowDecider, structure, warns=self._warns)
            recalls = partial(recall, structure, self._ran)
            driver = Driver(me, decider, {FireNode: self._fire}, at_once=AT_ONCE, afresh=afresh, recalls=recalls)
            result: Result = await driver.play(WorkflowBegun(task=tuple(task)))
        tell_end(me, self._name, depth, began, decider.timing, ended_with(result.unaccepted, result.error))
        return result

    async def _fire(self, me: Actor, work: FireNode) -> Fired:
        began = trio.current_time()
        is_timer = isinstance(self._structure.by_id[work.node].node.config, LoopTimerConfig)
        is_told = self._functions is not None and (here(me) is not None or playback.get() is not None)
        call = partial(self._called, me) if is_told else None
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
            if units.said and (fired is None or (fired.failure is not None and not fired.outputs)):
                self._ran.keep_part(node.id, units.said)
        fired = msgspec.structs.replace(fired, seconds=trio.current_time() - began)
        if heard:
            me.emit(exited(self._structure, work, fired))
        return fired

    async def _called(
        self, me: Actor, firing: Firing, kind: Kind, way: Way, text: str, work: Callable[[], Awaitable[Called]]
    ) -> Called:
        """A function of an edge, which may change the world, where it is kept or recorded what that comes to."""
        functions = self._functions
        assert functions is not None

        async def ended() -> Called:
            try:
                called = await work()
            except NEVER_TOLERATED:
                raise
            except CallboardError as error:
                called = Called(failure=Failure.of(error))
            return functions.keeping(called)

        left_out = Failure.of(ToolFailed("it was under way when the program ended, and was left out"))
        skipped = Called(failure=left_out)
        node, wanted = firing.node.id, self._on_unknown
        call = partial(whole, me, Effect(kind, str(way), text), Called, ended)
        called = await once(me, node, f"the {kind} of {way}", Called, call, wanted=wanted, skipped=skipped, name=CALL)
        if called.failure is not None:
            raise called.failure.restore()
        return called

    async def _code(self, me: Actor, firing: Firing, before: _Units, units: Sequence[Unit], limit: int) -> list[Said]:
        """What each unit of a batch says; `before` knows those of earlier batches."""
        if units[0].index is None:
            return [await self._one(me, firing, units[0])]
        name, decider, layer = firing.work.name, UnitsDecider(), before.layers
        before.layers += 1
        batch = tuple(RunUnit(key=i, name=f"{name}[{i}]", unit=unit) for i, unit in enumerate(units))
        performers: dict[type[Work], Performer] = {RunUnit: partial(self._unit, firing, layer)}

        async def recalls(player: Player, gone: list[Gone]) -> None:
            await recall_units(firing, self._ran, player, gone, layer, units)

        driver = Driver(me, decider, performers, at_once=limit, afresh=UnitsDecider, recalls=recalls)
        try:
            results: list[NodeSaid] = await driver.play(UnitsBegun(units=batch))
        finally:
            before.said += [message for each in decider.in_order() for message in each.outputs]
        return [restored(each) for each in results]

    async def _unit(self, firing: Firing, layer: int, me: Actor, work: RunUnit) -> NodeSaid:
        node, index = firing.node, work.key
        heard, began = me.stream.heard, trio.current_time()
        if heard:
            me.emit(NodeEntered(node=node.id, type=node.type, visit=1, item=index))
        said = await self._one(me, firing, work.unit, layer)
        if heard:
            why, code = (None, "") if said.error is None else (str(said.error), code_of(said.error))
            seconds = trio.current_time() - began
            me.emit(NodeExited(node=node.id, seconds=seconds, item=index, error=why, code=code))
        return told(index, said)

    async def _one(self, me: Actor, firing: Firing, unit: Unit, layer: int = 0) -> Said:
        try:
            if isinstance(firing.node.config, SubgraphConfig):
                return await self._subgraph(me, firing, unit, layer)
            job = Job(firing, unit, self._shared, self._resources)
            return await CODE[type(firing.node.config)](me, job)
        except CallboardError as error:
            return Said(error=error)
        except Exception as error:  # a bug in a node's code must cost that node, with its traceback in the log
            log.exception("node '%s' crashed", firing.node.id)
            return Said(error=NodeFailed(f"{type(error).__name__}: {error}").at(firing.node.id))

    async def _subgraph(self, me: Actor, firing: Firing, unit: Unit, layer: int) -> Said:
        structure, name = self._structure.within(firing.place), firing.place.id
        ran = self._ran.of(firing.work.key, layer, unit.index)
        inner = GraphRun(me, structure, self._shared, self._functions, structure.graph.id or name, ran, self._depth + 1)
        try:
            return (await inner.to_the_end(unit.inputs)).said()
        finally:
            ran.outputs = inner.decider.machine.result().outputs


class _Units(msgspec.Struct):
    """What units of a firing have said, in so many layers."""

    said: list[Message] = []
    layers: int = 0
