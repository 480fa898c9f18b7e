"""Executable form of a workflow, and the input of a node's own code.

A `WorkflowPlan` is made once per file and shared by all its runs. `WorkflowRun` has the values that all nodes of
one run share, also the nodes of subgraphs. A node's `Code` receives a `Job` and returns its output, or raises. It
does not deliver messages, retry, measure time or emit events: `GraphRun` and `perform` do that for all types of
nodes.
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
from ..graph.result import GraphResult
from .edges.files import Named, functions_in
from .machine.perform import Firing, Said
from .machine.result import MachineResult
from .machine.structure import Structure
from .messages import Message
from .places import functions_directory
from .rules import RULES, WorkflowRules

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.transcript import Record
    from .agents.resources import GraphResources
    from .ran import RanGraph
    from .workspace import WorkflowWorkspace

Code: TypeAlias = Callable[["Actor", "Job"], Awaitable[Said]]
"""Node's own code, for one unit."""


class WorkflowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Executable form of a workflow.

    Attributes:
        file: path of the workflow.
        structure: its graph; None if its edges name functions, because these belong to a run.
        named: these functions.
    """

    name: str
    file: Path
    workflow: Workflow
    rules: WorkflowRules
    structure: Structure | None
    named: Named


def compile_workflow(workflow: Workflow, file: Path, environ: Mapping[str, str]) -> WorkflowPlan:
    """Return the plan of a valid workflow.

    Raises:
        GraphMistake: an edge has an invalid pattern.
    """
    rules = RULES[workflow.compat or "standard"]
    named = _named(workflow.graph, file.parent, environ)
    return WorkflowPlan(
        name=workflow.graph.id or file.stem,
        file=file,
        workflow=workflow,
        rules=rules,
        # Functions are bound to the process of a run, so a structure with functions cannot be shared.
        structure=None if named else Structure(workflow.graph, rules),
        named=named,
    )


def graphs_of(graph: Graph) -> list[Graph]:
    """Return a graph and all graphs of its subgraphs, without duplicates."""
    found: dict[int, Graph] = {}
    todo = [graph]
    while todo:
        one = todo.pop()
        # By identity: nodes that share a subgraph's file share its graph.
        if id(one) not in found:
            found[id(one)] = one
            configs = (node.config for node in one.nodes)
            todo += [config.graph for config in configs if isinstance(config, SubgraphConfig) and config.graph]
    return list(found.values())


def _named(graph: Graph, directory: Path, environ: Mapping[str, str]) -> Named:
    edges = [edge for each in graphs_of(graph) for edge in each.edges]
    conditions = {edge.condition.name for edge in edges if isinstance(edge.condition, FunctionCondition)}
    processors = {edge.process.name for edge in edges if isinstance(edge.process, FunctionProcessor)}
    # Common built-in conditions need no functions, so do not read the directories.
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
    """Result of a workflow; the intermediate result if it was ended early.

    `output` is the text of the result; `order` includes the nodes of subgraphs.

    Attributes:
        final_messages, leftover: see `MachineResult`.
        outputs: output of each node; a subgraph's node has a name such as `Team/Writer`.
    """

    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)

    def told(self) -> tuple[list[Told], dict[str, list[Told]], dict[str, list[Told]]]:
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
        for id, said in ran.said():
            self.outputs[id] = (*self.outputs.get(id, ()), *said)


def _recorded_message(message: Message) -> Told:
    return Told(role=message.role, content=message.text, source=message.source)


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """Values that all nodes of one run share, also the nodes of subgraphs.

    Attributes:
        depth: number of agents above it.
        record: transcript of the models' texts.
        workspace: the directory of python nodes.
    """

    plan: WorkflowPlan
    context: RunContext
    depth: int
    record: Record
    workspace: WorkflowWorkspace


class Job(msgspec.Struct, frozen=True):
    """Execution of a node's own code, for all of its inputs or for one unit of them.

    Attributes:
        shared_here: resources of this graph's agents; None in a graph without agents and memories.
    """

    firing: Firing
    unit: Unit
    shared: WorkflowRun
    shared_here: GraphResources | None = None

    @property
    def resources(self) -> GraphResources:
        """Resources of the graph's agents and human nodes; only in graphs that have some."""
        assert self.shared_here is not None
        return self.shared_here

    @property
    def node(self) -> Node:
        return self.firing.place.node

    @property
    def values(self) -> dict[str, Any]:
        """`config` of a node whose type is from a plugin."""
        config = self.node.config
        assert isinstance(config, CustomConfig)
        return config.values

    @property
    def context(self) -> RunContext:
        """Context of the run, for plugins."""
        return self.shared.context

    @property
    def is_reported_at_once(self) -> bool:
        """True if the result reaches a decider immediately after the code, because no edge waits in between."""
        return self.unit.index is not None or all(way.pure for way in self.firing.place.out)

    @property
    def inputs(self) -> tuple[Message, ...]:
        return self.unit.inputs
