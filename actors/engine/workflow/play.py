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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.effects import Work
from ....protocol.errors import CallboardError, NodeFailed, code_of
from ....protocol.events import GraphStarted, NodeEntered, NodeExited
from ....protocol.failure import Failure
from ....protocol.kernel.errors import EndOfMail
from ....protocol.workflow.messages import (
    Fired,
    FireNode,
    Message,
    NodeSaid,
    RunUnit,
    Unit,
    UnitsBegun,
    WorkflowBegun,
)
from ....protocol.workflow.model import AgentConfig, Graph, HumanConfig, SubgraphConfig
from ...io.imports import imported
from ...work.record import Record
from ..driver import Driver, Performer
from ..graph.failures import ended_with
from ..graph.run import log_summary, tell_end
from .decider import UnitsDecider, WorkflowDecider, exited
from .edges.files import EdgeFunctions
from .machine.perform import Firing, Said, perform
from .machine.result import Result
from .machine.structure import Structure
from .messages import signed
from .nodes import CODE
from .nodes.python import saves_and_runs
from .plan import Job, Plan, WorkflowResult, WorkflowRun
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
        shared = WorkflowRun(
            plan=plan, context=context, depth=depth, record=record or Record(), workspace=place, result=result
        )
        try:
            structure = _structure(me, shared)
        except CallboardError as error:  # an edge names what is not there
            result.error = error
            return result
        run = GraphRun(me, structure, shared, plan.name)
        decider = run.decider
        try:
            result.error = (await run.to_the_end(task)).error
        except EndOfMail:
            raise
        except CallboardError as error:
            result.error = error
        finally:
            ended = decider.machine.result()
            result.take(ended, decider.timing)
            for path, said in shared.parts.items():
                result.keep("", {path: tuple(said)})
            shared.record.failures += ended.unaccepted
        if is_logged(logging.INFO, plan.workflow.graph):
            log_summary(plan.name, decider.timing)
        return result


def _structure(me: Actor, shared: WorkflowRun) -> Structure:
    """The graph with its edges made callable; functions that run in a process belong to this run."""
    plan = shared.plan
    if plan.structure is not None:
        return plan.structure
    changes = {"code_save_and_run": saves_and_runs(me, shared)} if plan.named.runs_code else {}
    return Structure(plan.workflow.graph, plan.rules, EdgeFunctions(me, shared).functions(changes))


def is_logged(level: int, graph: Graph) -> bool:
    """Whether a workflow's `log_level` lets this through."""
    return graph.log_level is None or level >= logging.getLevelNamesMapping()[graph.log_level]


class GraphRun:
    """One run of one graph: its decider, and what works for it.

    Args:
        me: whose children the firings are.
        above: the nodes of subgraphs in which it stands.
    """

    def __init__(
        self, me: Actor, structure: Structure, shared: WorkflowRun, name: str, above: tuple[str, ...] = ()
    ) -> None:
        self._warns = is_logged(logging.WARNING, shared.plan.workflow.graph)
        self.decider = WorkflowDecider(structure, warns=self._warns, order=shared.result.order)
        self._me = me
        self._structure = structure
        self._shared = shared
        self._name = name
        self._above = above
        self._resources: GraphResources | None = None

    async def to_the_end(self, task: Sequence[Message]) -> Result:
        """Fire all that the decider says, until it has finished.

        Raises:
            ShuttingDown: no new work is admitted.
        """
        me, structure, decider = self._me, self._structure, self.decider
        depth = self._shared.depth + len(self._above)
        began = trio.current_time()
        if me.stream.heard:
            me.emit(GraphStarted(graph=self._name, start=", ".join(structure.graph.start), depth=depth))
        with contextlib.ExitStack() as stack:
            configs = [node.config for node in structure.graph.nodes]
            remembering = any(isinstance(each, HumanConfig) and each.memories for each in configs)
            if remembering or any(isinstance(each, AgentConfig) for each in configs):
                await imported(".actors.engine.workflow.agents.resources", ".actors.engine.workflow.nodes.agent")
                from .agents.resources import GraphResources

                resources = GraphResources(self._shared, structure.graph)
                self._resources = stack.enter_context(contextlib.closing(resources))
            afresh = partial(WorkflowDecider, structure, warns=self._warns)
            driver = Driver(me, decider, {FireNode: self._fire}, at_once=AT_ONCE, afresh=afresh)
            result: Result = await driver.play(WorkflowBegun(task=tuple(task)))
        tell_end(me, self._name, depth, began, decider.timing, ended_with(result.unaccepted, result.error))
        return result

    async def _fire(self, me: Actor, work: FireNode) -> Fired:
        began = trio.current_time()
        firing = Firing(work, self._structure, began)
        heard, node = me.stream.heard, firing.node
        if heard and work.failure is None:
            me.emit(NodeEntered(node=node.id, type=node.type, visit=work.visit))
        said: list[Message] = []
        fired: Fired | None = None
        try:
            fired = await perform(firing, partial(self._code, me, firing, said))
        finally:
            if said and (fired is None or (fired.failure is not None and not fired.outputs)):
                path = "/".join((*self._above, node.id))
                self._shared.parts.setdefault(path, []).extend(signed(message, node.id) for message in said)
        fired = msgspec.structs.replace(fired, seconds=trio.current_time() - began)
        if heard:
            me.emit(exited(self._structure, work, fired))
        return fired

    async def _code(
        self, me: Actor, firing: Firing, said: list[Message], units: Sequence[Unit], limit: int
    ) -> list[Said]:
        if units[0].index is None:
            return [await self._one(me, firing, units[0])]
        name, decider = firing.work.name, UnitsDecider()
        batch = tuple(RunUnit(key=i, name=f"{name}[{i}]", unit=unit) for i, unit in enumerate(units))
        performers: dict[type[Work], Performer] = {RunUnit: partial(self._unit, firing)}
        driver = Driver(me, decider, performers, at_once=limit, afresh=UnitsDecider)
        try:
            results: list[NodeSaid] = await driver.play(UnitsBegun(units=batch))
        finally:
            said += [message for each in decider.in_order() for message in each.outputs]
        return [_restored(each) for each in results]

    async def _unit(self, firing: Firing, me: Actor, work: RunUnit) -> NodeSaid:
        node, index = firing.node, work.key
        heard, began = me.stream.heard, trio.current_time()
        if heard:
            me.emit(NodeEntered(node=node.id, type=node.type, visit=1, item=index))
        said = await self._one(me, firing, work.unit)
        if heard:
            told, code = (None, "") if said.error is None else (str(said.error), code_of(said.error))
            seconds = trio.current_time() - began
            me.emit(NodeExited(node=node.id, seconds=seconds, item=index, error=told, code=code))
        return NodeSaid(
            index,
            outputs=said.outputs,
            trace=said.trace,
            failure=None if said.error is None else Failure.of(said.error),
            unaccepted=tuple(map(Failure.of, said.unaccepted)),
        )

    async def _one(self, me: Actor, firing: Firing, unit: Unit) -> Said:
        try:
            if isinstance(firing.node.config, SubgraphConfig):
                return await self._subgraph(me, firing, unit)
            job = Job(firing, unit, self._shared, self._resources)
            return await CODE[type(firing.node.config)](me, job)
        except CallboardError as error:
            return Said(error=error)
        except Exception as error:  # a bug in a node's code must cost that node, with its traceback in the log
            log.exception("node '%s' crashed", firing.node.id)
            return Said(error=NodeFailed(f"{type(error).__name__}: {error}").at(firing.node.id))

    async def _subgraph(self, me: Actor, firing: Firing, unit: Unit) -> Said:
        structure = self._structure.within(firing.place)
        above = (*self._above, firing.place.id)
        inner = GraphRun(me, structure, self._shared, structure.graph.id or firing.place.id, above)
        try:
            return (await inner.to_the_end(unit.inputs)).said()
        finally:
            self._shared.result.keep("".join(f"{id}/" for id in above), inner.decider.machine.result().outputs)


def _restored(said: NodeSaid) -> Said:
    return Said(
        outputs=said.outputs,
        trace=said.trace,
        error=None if said.failure is None else said.failure.restore(),
        unaccepted=tuple(failure.restore() for failure in said.unaccepted),
    )
