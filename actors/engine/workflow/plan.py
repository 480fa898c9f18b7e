"""A workflow made ready to run, and what a node's own code is given.

A `Plan` is made once per file and shared by all its runs. `WorkflowRun` is what all nodes of one run share, those of
subgraphs too. A node's `Code` gets a `Job` and returns what it has to say, or raises. It does not deliver,
retry, time itself or emit events: `play` and `perform` do that, once for all types of nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ....protocol.outcome import Message as Told
from ....protocol.outcome import NodeTime
from ....protocol.workflow.edges import FunctionCondition, FunctionProcessor
from ....protocol.workflow.model import CustomConfig, Graph, Node, SubgraphConfig, Workflow
from ....protocol.workflow_messages import Unit
from ..graph.decider import GraphResult
from .edges.files import Named, functions_in
from .machine.perform import Firing, Said
from .machine.result import Result
from .machine.structure import Structure
from .messages import Message
from .places import functions_directory
from .rules import RULES, Rules

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.record import Record
    from .agents.resources import GraphResources
    from .ran import Ran
    from .workspace import Workspace

Code: TypeAlias = Callable[["Actor", "Job"], Awaitable[Said]]
"""A node's own code, for one unit."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow, ready to run.

    Attributes:
        file: where it stands.
        structure: its graph; None if its edges name functions, which belong to a run.
        named: those functions.
    """

    name: str
    file: Path
    workflow: Workflow
    rules: Rules
    structure: Structure | None
    named: Named


def compile_workflow(workflow: Workflow, file: Path, environ: Mapping[str, str]) -> Plan:
    """A plan of a workflow that was read without errors.

    Raises:
        GraphMistake: an edge's pattern is none.
    """
    rules = RULES[workflow.compat or "standard"]
    named = _named(workflow.graph, file.parent, environ)
    return Plan(
        name=workflow.graph.id or file.stem,
        file=file,
        workflow=workflow,
        rules=rules,
        structure=None if named else Structure(workflow.graph, rules),
        named=named,
    )


def graphs_of(graph: Graph) -> list[Graph]:
    """A graph and all that it holds, each once."""
    found: dict[int, Graph] = {}
    todo = [graph]
    while todo:
        one = todo.pop()
        if id(one) not in found:
            found[id(one)] = one
            configs = (node.config for node in one.nodes)
            todo += [config.graph for config in configs if isinstance(config, SubgraphConfig) and config.graph]
    return list(found.values())


def _named(graph: Graph, directory: Path, environ: Mapping[str, str]) -> Named:
    edges = [edge for each in graphs_of(graph) for edge in each.edges]
    conditions = {edge.condition.name for edge in edges if isinstance(edge.condition, FunctionCondition)}
    processors = {edge.process.name for edge in edges if isinstance(edge.process, FunctionProcessor)}
    if conditions <= {"true", "always_false"} and not processors:
        return Named()
    in_files = functions_in(functions_directory(directory, "edge", environ)) if conditions else {}
    changing = functions_in(functions_directory(directory, "edge_processor", environ)) if processors else {}
    return Named(
        conditions={name: in_files[name] for name in conditions if name in in_files},
        processors={name: changing[name] for name in processors if name in changing},
        runs_code="code_save_and_run" in processors and "code_save_and_run" not in changing,
    )


class WorkflowResult(GraphResult, kw_only=True):
    """How a workflow ended; also of one that was ended early, then it is how far it has come.

    `output` is the result text, `order` holds the nodes of subgraphs as well.

    Attributes:
        final_messages, leftover: see `Result`.
        outputs: what each node has said; the nodes of a subgraph are called `Team/Writer`.
    """

    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)

    def told(self) -> tuple[list[Told], dict[str, list[Told]], dict[str, list[Told]]]:
        """The messages as an outcome has them: what the final node said, what was left over, what each node said."""
        left, said = (
            {node: [_told(message) for message in messages] for node, messages in each.items()}
            for each in (self.leftover, self.outputs)
        )
        return [_told(message) for message in self.final_messages], left, said

    def take(self, result: Result, timing: Mapping[str, tuple[int, float, float]], ran: Ran) -> None:
        """Take over how far the workflow has come; what a subgraph takes is its node's time."""
        self.output = result.final
        self.nodes = {id: NodeTime(visits=visits, seconds=seconds) for id, (visits, seconds, _) in timing.items()}
        self.final_messages = result.final_messages
        self.leftover = result.leftover
        ran.outputs = result.outputs
        self.order = list(ran.fired())
        for id, said in ran.said():
            self.outputs[id] = (*self.outputs.get(id, ()), *said)


def _told(message: Message) -> Told:
    return Told(role=message.role, content=message.text, source=message.source)


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes of one run share, those of subgraphs too.

    Attributes:
        depth: how many agents stand above it.
        record: where the models' texts are written down.
        workspace: the directory that python nodes work in.
    """

    plan: Plan
    context: RunContext
    depth: int
    record: Record
    workspace: Workspace


class Job(msgspec.Struct, frozen=True):
    """A node's own code is to run, for all of its inputs or for one unit of them.

    Attributes:
        shared_here: what the agents of this graph share; None in a graph that has none, and no memories.
    """

    firing: Firing
    unit: Unit
    shared: WorkflowRun
    shared_here: GraphResources | None = None

    @property
    def resources(self) -> GraphResources:
        """What the agents and people of a graph share that has any."""
        assert self.shared_here is not None
        return self.shared_here

    @property
    def node(self) -> Node:
        """The node as the file has it."""
        return self.firing.place.node

    @property
    def values(self) -> dict[str, Any]:
        """The `config` of a node whose type a plugin brings."""
        config = self.node.config
        assert isinstance(config, CustomConfig)
        return config.values

    @property
    def context(self) -> RunContext:
        """The run, for nodes whose type a plugin brings."""
        return self.shared.context

    @property
    def is_told_at_once(self) -> bool:
        """Whether what its code comes to is told to a decider as soon as that is known: nothing takes time after it."""
        return self.unit.index is not None or all(way.pure for way in self.firing.place.out)

    @property
    def inputs(self) -> tuple[Message, ...]:
        """What it sees."""
        return self.unit.inputs
