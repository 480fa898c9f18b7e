"""A workflow on the kernel: its board is driven, and every node that takes its time is an actor.

    /run-7f3a01bc/writers-room                 the workflow: owns the board
    /run-7f3a01bc/writers-room/Writer#2        a firing: the node's own code, its edges
    /run-7f3a01bc/writers-room/Review/Critic   a node of a subgraph, whose board belongs to the subgraph's firing
    /run-7f3a01bc/writers-room/Nurse/Nurse[3]  a unit of a map

Board and readiness are the workflow's, everything else is what graph agents have: `graph.once` tells and times each
firing, questions and failures travel up the tree, whatever ends an actor ends all below it. Nodes that are done as soon
as they have begun get no actor; they are told all the same.

Human nodes of one graph ask one after another, in the order of the file, and python nodes run one at a time: they work
in the same directory.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ....protocol.errors import CallboardError, NodeFailed
from ....protocol.events import GraphFinished, GraphStarted
from ....protocol.events import Warned as WarnedEvent
from ....protocol.outcome import NodeTime
from ....protocol.workflow.edges import FunctionCondition, FunctionProcessor
from ....protocol.workflow.model import AgentConfig, Graph, HumanConfig, PythonConfig, SubgraphConfig
from ...work.record import Record
from ..graph.failures import ended_with
from ..graph.logs import log_summary
from ..graph.once import once
from ..graph.together import run_together
from .board.board import Board
from .board.perform import Fired, Firing, Said, instant, perform
from .board.result import Notice, Result, Warned
from .board.structure import Place, Structure
from .crew import Crew
from .edges.files import EdgeFunctions
from .messages import Message
from .nodes import CODE
from .nodes.code import saves_and_runs
from .outcome import WorkflowResult
from .plan import Backstage, Job, Plan
from .workspace import Workspace

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.ref import End
    from ...work.context import RunContext
    from .agents.company import Company
    from .board.dynamic import Unit

AT_ONCE = 1000
"""Firings of one graph that are under way together; more of them wait their turn."""

TURN = 64
"""Firings without an actor in a row, before others get a look in."""

LANES = {HumanConfig: "human", PythonConfig: "python"}
"""Nodes of which one runs at a time in a graph."""


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
        backstage = Backstage(
            plan=plan, context=context, depth=depth, record=record or Record(), workspace=place, result=result
        )
        try:
            structure = _structure(me, backstage)
        except CallboardError as error:  # an edge names what is not there
            result.error = error
            return result
        board = Board(structure, clock=trio.current_time, tell=partial(_tell, me, plan.workflow.graph))
        playing = Playing(me, board, backstage, plan.name)
        try:
            result.error = (await playing.to_the_end(task)).error
        except CallboardError as error:
            result.error = error
        finally:
            ended = board.result()
            result.take(ended)
            backstage.record.failures += ended.unaccepted
        if is_logged(logging.INFO, plan.workflow.graph):
            log_summary(plan.name, playing.timing)
        return result


def _structure(me: Actor, backstage: Backstage) -> Structure:
    """The graph with its edges made callable; functions that run in a process belong to this run."""
    plan = backstage.plan
    if plan.structure is not None:
        return plan.structure
    named = EdgeFunctions(
        me,
        plan.named,
        backstage.context.environ,
        workspace=backstage.workspace,
        variables=plan.workflow.vars,
    )
    changes = {"code_save_and_run": saves_and_runs(me, backstage)} if plan.named.runs_code else {}
    return Structure(plan.workflow.graph, plan.rules, named.functions(changes))


def is_logged(level: int, graph: Graph) -> bool:
    """Whether a workflow's `log_level` lets this through."""
    return graph.log_level is None or level >= logging.getLevelNamesMapping()[graph.log_level]


def _tell(me: Actor, graph: Graph, notice: Notice) -> None:
    if isinstance(notice, Warned) and me.stream.heard and is_logged(logging.WARNING, graph):
        me.emit(WarnedEvent(code=notice.code, message=notice.message, node=notice.node))


class Playing:
    """One run of one graph: its board, and whoever works for it.

    Args:
        me: whose children the firings are.
        above: the nodes of subgraphs in which it stands.
    """

    def __init__(self, me: Actor, board: Board, backstage: Backstage, name: str, above: tuple[str, ...] = ()) -> None:
        self.timing: dict[str, tuple[int, float, float]] = {}
        self._me = me
        self._board = board
        self._backstage = backstage
        self._name = name
        self._above = above
        self._company: Company | None = None
        self._quick: dict[int, bool] = {}

    async def to_the_end(self, task: Sequence[Message]) -> Result:
        """Fire whoever the board hands out until it is finished.

        Raises:
            ShuttingDown: no new work is admitted.
        """
        me, graph = self._me, self._board.structure.graph
        depth = self._backstage.depth + len(self._above)
        began = trio.current_time()
        if me.stream.heard:
            me.emit(GraphStarted(graph=self._name, start=", ".join(graph.start), depth=depth))
        async with self._employed(graph):
            await self._fire_all(task)
        result = self._board.result()
        if me.stream.heard:
            seconds, error = trio.current_time() - began, ended_with(result.unaccepted, result.error)
            me.emit(
                GraphFinished(
                    graph=self._name,
                    seconds=seconds,
                    depth=depth,
                    timing=dict(self.timing),
                    error=None if error is None else str(error),
                    code="" if error is None else error.code,
                )
            )
        return result

    async def _fire_all(self, task: Sequence[Message]) -> None:
        board = self._board
        todo = deque(board.begin(task))
        turn = TURN
        async with Crew[Firing](self._me, AT_ONCE) as crew:
            while todo or crew:
                if not todo:
                    firing, end = await crew.ended()
                    todo.extend(board.done(firing, _fired(firing, end)))
                    continue
                firing = todo.popleft()
                place = firing.place
                if not self._is_quick(place):
                    crew.hire(firing, _name(firing), self._fire, (firing,), lane=LANES.get(type(place.node.config)))
                    continue
                turn -= 1
                if turn == 0:
                    turn = TURN
                    await trio.lowlevel.checkpoint()
                todo.extend(board.done(firing, await self._fire(self._me, firing)))

    @contextlib.asynccontextmanager
    async def _employed(self, graph: Graph) -> AsyncIterator[None]:
        """What its agents and memories need is there for this block, if the graph has any."""
        if not any(
            isinstance(node.config, AgentConfig) or (isinstance(node.config, HumanConfig) and node.config.memories)
            for node in graph.nodes
        ):
            yield
            return
        from .agents.company import Company

        behind = self._backstage
        async with Company(
            behind.context,
            graph,
            directory=behind.plan.directory,
            workflow=behind.plan.file,
            rules=behind.plan.rules,
            record=behind.record,
            depth=behind.depth,
            workspace=behind.workspace,
            variables=behind.plan.workflow.vars,
        ) as self._company:
            yield

    def _is_quick(self, place: Place) -> bool:
        """Whether a firing is done at once: the node's own code, and no function that has to be waited for."""
        quick = self._quick.get(place.index)
        if quick is None:
            quick = self._quick[place.index] = place.instant and not any(
                isinstance(way.edge.condition, FunctionCondition) or isinstance(way.edge.process, FunctionProcessor)
                for way in place.out
            )
        return quick

    # --- one firing ---------------------------------------------------------------------------------------

    async def _fire(self, me: Actor, firing: Firing) -> Fired:
        """Body of a firing's actor; `me` is the graph's own where the firing is quick."""
        place = firing.place
        return await once(
            me,
            place.id,
            place.node.type,
            lambda: perform(firing, partial(self._work, me, firing)),
            lambda error: Fired(error=error.at(place.id)),
            _leads,
            visit=firing.visit,
            timed=self._timed,
        )

    async def _work(self, me: Actor, firing: Firing, units: Sequence[Unit], limit: int) -> list[Said]:
        """The node's own code, for each unit."""
        if firing.place.instant:
            return [said for unit in units if (said := instant(firing, unit)) is not None]
        if units[0].index is None:
            return [await self._one(me, firing, units[0])]
        name, part = _name(firing), self._board.part(firing)
        launches = [(f"{name}[{unit.index}]", self._unit, (firing, unit, part)) for unit in units]
        return [_said(end) for end in await run_together(me, launches, limit)]

    async def _unit(self, me: Actor, firing: Firing, unit: Unit, part: dict[int, tuple[Message, ...]]) -> Said:
        """Body of a unit's actor."""
        assert unit.index is not None
        node = firing.node
        work = partial(self._one, me, firing, unit)
        failed = partial(_failed, node.id)
        said = await once(me, node.id, node.type, work, failed, lambda said: ((), said.error), item=unit.index)
        if said.outputs:
            part[unit.index] = said.outputs
        return said

    async def _one(self, me: Actor, firing: Firing, unit: Unit) -> Said:
        try:
            if isinstance(firing.node.config, SubgraphConfig):
                return await self._subgraph(me, firing, unit)
            job = Job(firing, unit, self._backstage, self._company)
            return await CODE[type(firing.node.config)](me, job)
        except CallboardError as error:
            return Said(error=error)

    async def _subgraph(self, me: Actor, firing: Firing, unit: Unit) -> Said:
        board = self._board.within(firing)
        name = board.structure.graph.id or firing.place.id
        above = (*self._above, firing.place.id)
        inner = Playing(me, board, self._backstage, name, above)
        try:
            return (await inner.to_the_end(unit.inputs)).said()
        finally:
            self._backstage.result.keep("".join(f"{id}/" for id in above), board.result().outputs)

    def _timed(self, id: str, seconds: float) -> None:
        visits, total, longest = self.timing.get(id, (0, 0.0, 0.0))
        self.timing[id] = (visits + 1, total + seconds, max(longest, seconds))
        if self._above:  # what a subgraph takes is its node's time
            return
        time = self._backstage.result.nodes.setdefault(id, NodeTime())
        time.visits += 1
        time.seconds += seconds


def _name(firing: Firing) -> str:
    """Of a firing's actor."""
    name = firing.place.id.replace("/", "_")
    return name if firing.visit == 1 else f"{name}#{firing.visit}"


def _leads(fired: Fired) -> tuple[Iterable[str], CallboardError | None]:
    targets = dict.fromkeys(effect.way.target.id for effect in fired.effects if effect.fires)
    return targets, fired.error or fired.tolerated


def _fired(firing: Firing, end: End) -> Fired:
    if end.reason == "normal":
        fired: Fired = end.value
        return fired
    return Fired(error=NodeFailed(f"it was {end.reason}").at(firing.place.id))


def _said(end: End) -> Said:
    if end.reason == "normal":
        said: Said = end.value
        return said
    return Said(error=NodeFailed(f"it was {end.reason}"))


def _failed(id: str, error: CallboardError) -> Said:
    return Said(error=error.at(id))
