"""The structs of a DevAll workflow: the file, its graph, and one config per node type.

This module is the table of the language, as `protocol.graph.model` is for graph agents. The field types drive the
reader (`read`) and the JSON Schema (`schema`); the defaults are DevAll's. A block with a `type` and a `config` in the
file is a tagged struct here (`edges`, `agents`). A subgraph, inline or in a file, is a `Graph` inside of the node
that runs it. Structs are frozen: a workflow is read once and shared by all its runs.

Fields marked *ours* do not exist in DevAll.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from ..chat import Models, Role
from ..schema import by_tag
from ..tree import Path
from ..yaml_tree import Source
from .agents import Loose, MemoryUse, Reflection, Retry, Skills, Store, Tooling
from .dialect import STANDARD, Dialect, Mode
from .edges import AtLeastOne, Edge, Id, Texts

Json = Any
LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a node has in its queue, or has said, before anything runs."""

    role: Role
    content: str


# --- what nodes do ----------------------------------------------------------------------------------------


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The `config` of a node; which one, its node's `type` says."""


class AgentConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="agent"):
    """Asks a model, with tools and memories."""

    provider: Annotated[
        Id, Meta(description="openai, gemini or a client of yours; *ours*: callboard, and `name` is an agent of yours.")
    ]
    name: Annotated[Id, Meta(description="The model.")]
    role: Annotated[str | None, Meta(description="The system message.")] = None
    base_url: str | None = None
    api_key: str | None = None
    fallback_models: Annotated[
        Models, Meta(description="*Ours.* `client:model`, or a list: asked in turn if the model does not answer.")
    ] = None
    params: Annotated[dict[str, Json], Meta(description="Handed to the model with every call.")] = {}
    input_mode: Annotated[
        Literal["messages", "prompt"], Meta(description="As a conversation, or as one message with headings.")
    ] = "messages"
    tooling: tuple[Tooling, ...] = ()
    thinking: Reflection | None = None
    memories: tuple[MemoryUse, ...] = ()
    skills: Skills | None = None
    retry: Retry = Retry()


class HumanConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="human"):
    """Asks a person."""

    description: Annotated[str | None, Meta(description="What the person is to do.")] = None
    memories: tuple[MemoryUse, ...] = ()


class LiteralConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="literal"):
    """Says the same every time."""

    content: Id
    role: Literal["user", "assistant", "system"] = "user"


class PassthroughConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="passthrough"):
    """Passthrough node: its output is its input."""

    only_last_message: bool = True


class PythonConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="python"):
    """Python node: runs its own code, or the code in the last message, in a process."""

    code: Annotated[
        str | None, Meta(description="*Ours.* Code of its own; the last message is not looked at then.")
    ] = None
    interpreter: Annotated[str | None, Meta(description="A Python; our own if left out.")] = None
    args: Annotated[tuple[Loose, ...], Meta(description="Put before the script: arguments of the interpreter.")] = ()
    env: Annotated[dict[str, Loose], Meta(description="Variables the process has beside those it inherits.")] = {}
    timeout_seconds: Annotated[int, Meta(ge=1)] = 60
    encoding: str = "utf-8"


class LoopCounterConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="loop_counter"):
    """Says nothing until its last visit."""

    max_iterations: AtLeastOne = 10
    reset_on_emit: Annotated[bool, Meta(description="Begin to count again once it has spoken.")] = True
    message: str | None = None


class LoopTimerConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="loop_timer"):
    """Loop timer node: no output until its time is over; a `passthrough` timer repeats its input."""

    max_duration: Annotated[float, Meta(gt=0, extra={"loose": True}, extra_json_schema={"x-loose": True})] = 60.0
    duration_unit: Literal["seconds", "minutes", "hours"] = "seconds"
    reset_on_emit: bool = True
    message: str | None = None
    passthrough: bool = False


class SubgraphConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="subgraph"):
    """Runs another graph.

    Attributes:
        file: path in the node; empty for an inline graph.
        graph: the graph; None if the file was not loaded, because the caller passed no `load`.
    """

    file: str = ""
    graph: Graph | None = None


class CustomConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="custom"):
    """Values for a node type of a plugin; the plugin reads them."""

    values: dict[str, Json] = {}


NodeConfig: TypeAlias = (
    AgentConfig
    | HumanConfig
    | SubgraphConfig
    | PythonConfig
    | PassthroughConfig
    | LiteralConfig
    | LoopCounterConfig
    | LoopTimerConfig
    | CustomConfig
)

# Without the last member, `CustomConfig`: the name of its type comes from a plugin, and its tag is never in a file.
NODE_TYPES: dict[str, type[NodeConfig]] = by_tag(*get_args(NodeConfig)[:-1])
"""Every value of a node's `type`, plugins aside, and the struct of its `config`."""

GATES = (LoopCounterConfig, LoopTimerConfig)
"""Nodes that delay the exit of a loop."""


class NodeFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that all nodes have."""

    id: Id
    type: Id
    description: str | None = None
    context_window: Annotated[
        int,
        Meta(
            description="What stays queued after a run: 0 kept messages only, N the newest N, -1 everything.",
            extra={"loose": True},
            extra_json_schema={"x-loose": True},
        ),
    ] = 0
    log_output: Annotated[bool, Meta(description="false: the log does not show what the node said.")] = True
    on_error: Annotated[
        Literal["fail", "continue"] | None,
        Meta(description="*Ours.* What a failure means: the end of the run, or its text as the node's output."),
    ] = None


class Node(NodeFields, frozen=True, kw_only=True):
    """A node after reading; `path` is its position in the file.

    `by_dialect` is True if `on_error: continue` comes from the dialect and not from the author.
    """

    input: tuple[Seed, ...] = ()
    output: tuple[Seed, ...] = ()
    config: NodeConfig
    path: Path = ()
    by_dialect: bool = False


# --- the graph and the file -------------------------------------------------------------------------------


class GraphFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a graph, without its nodes and edges."""

    id: str | None = None
    description: str | None = None
    organization: str | None = None
    initial_instruction: Annotated[str | None, Meta(description="What a user reads before the first run.")] = None
    log_level: LogLevel | None = None
    is_majority_voting: Annotated[
        bool, Meta(description="Every node runs on the task, and what most of them say is the result.")
    ] = False
    # 100 is the fixed limit of DevAll, which then goes on behind the cycle with a warning only.
    max_iterations: Annotated[AtLeastOne, Meta(description="*Ours.* How often a cycle may go round.")] = 100
    args: Annotated[tuple[Json, ...], Meta(description="For front ends; nothing here uses it.")] = ()


class Graph(GraphFields, frozen=True, kw_only=True):
    """A graph after reading.

    Attributes:
        start: nodes that receive the task; inferred if the file names none.
        end: nodes with the result, in order of preference; empty means the first node without successors.
        source, path: text and position of the graph, also if it has a file of its own.
    """

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    memory: tuple[Store, ...] = ()
    start: Texts = ()
    end: Texts = ()
    source: Source = Source()
    path: Path = ()


class WorkflowFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The top level of a workflow file."""

    version: Annotated[str, Meta(description="For people; nothing depends on it.")] = "0.0.0"
    vars: Annotated[dict[str, Json], Meta(description="What `${NAME}` stands for, before the environment.")] = {}
    compat: Annotated[
        Mode | None, Meta(description="*Ours.* `devall` is DevAll's program of May 2026 to the letter.")
    ] = None


class Workflow(WorkflowFields, frozen=True, kw_only=True):
    """A workflow after reading, with the references in `vars` resolved and the `dialect` used for it."""

    graph: Graph
    dialect: Dialect = STANDARD
