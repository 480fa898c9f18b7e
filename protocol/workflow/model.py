"""Structs of a DevAll workflow: the file, its graph, its edges, one config per node type, and the options of agents.

This module is the table of the language, as `protocol.graph` is for graph agents. The field types drive the reader
(`read`) and the JSON Schema (`schema`); the defaults are DevAll's. A block with a `type` and a `config` in the file is
a tagged struct here. The shorthands of the files are resolved: a condition is always one of five structs, whether the
file writes it as `true`, as the name of a function or as a mapping. A subgraph, inline or in a file, is a `Graph`
inside of the node that runs it. Structs are frozen: a workflow is read once and shared by all its runs.

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
from .dialect import STANDARD, Dialect, Mode

Json = Any
Id: TypeAlias = Annotated[str, Meta(min_length=1)]
Texts: TypeAlias = Annotated[
    tuple[str, ...], Meta(extra={"one_or_many": True}, extra_json_schema={"x-one-or-many": True})
]
"""`any: DONE` and `any: [DONE]` both read as a tuple."""

# For fields that DevAll converts by `int()` or `float()`, which also accept text.
_LOOSE: dict[str, Any] = {"extra": {"loose": True}, "extra_json_schema": {"x-loose": True}}
Count: TypeAlias = Annotated[int, Meta(ge=1)]
"""A whole number from 1 on, without quotes."""

AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1, **_LOOSE)]
"""A whole number from 1 on; `"3"` in quotes is taken, too."""

Group: TypeAlias = Annotated[
    int | str | None, Meta(description="Number or name of the pattern's group; the whole match if left out.")
]
Pattern: TypeAlias = Annotated[str, Meta(min_length=1, description="A regular expression of Python.")]
Flag: TypeAlias = Literal["IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE", "ASCII", "I", "M", "S", "X", "A"]


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of blocks that `type` distinguishes."""


# --- conditions -------------------------------------------------------------------------------------------


class Always(_Tagged, frozen=True, kw_only=True, tag="always"):
    """`condition: "true"`, and an edge without a condition."""


class Never(_Tagged, frozen=True, kw_only=True, tag="never"):
    """`condition: false`."""


class FunctionCondition(_Tagged, frozen=True, kw_only=True, tag="function"):
    """A function of `functions/edge/`, or one of the built-in ones: text in, true or false out."""

    name: Id


class KeywordCondition(_Tagged, frozen=True, kw_only=True, tag="keyword"):
    """Words in the source's output. `none` is looked at first, then `all`, then `any` and `regex`."""

    any: Annotated[Texts, Meta(description="Met if the output contains one of these.")] = ()
    none: Annotated[Texts, Meta(description="Not met if the output contains one of these.")] = ()
    all: Annotated[Texts, Meta(description="Met only if the output contains all of these.")] = ()
    regex: Annotated[Texts, Meta(description="Met if one of these patterns is found.")] = ()
    case_sensitive: bool = True
    default: Annotated[bool, Meta(description="Accepted, without effect, as in DevAll.")] = False


class RegexCondition(_Tagged, frozen=True, kw_only=True, tag="regex"):
    """A pattern that is searched for in the source's output."""

    pattern: Pattern
    flags: Annotated[tuple[Flag, ...], Meta(description="As Python's `re` calls them.")] = ()


Condition: TypeAlias = Always | Never | FunctionCondition | KeywordCondition | RegexCondition

CONDITIONS: dict[str, type[Condition]] = by_tag(FunctionCondition, KeywordCondition, RegexCondition)
"""Every value of a condition's `type`."""

CONDITION_FUNCTIONS = frozenset(
    {
        "true",
        "always_false",
        "contains_keyword",
        "not_contains_keyword",
        "length_greater_than_5",
        "code_pass",
        "code_fail",
        "need_reflection_loop",
        "should_stop_loop",
    }
)
"""Conditions that need no file."""


# --- processors -------------------------------------------------------------------------------------------


class RegexExtract(_Tagged, frozen=True, kw_only=True, tag="regex_extract"):
    """Edge processor that carries the match of a pattern instead of the whole text."""

    pattern: Pattern
    group: Group = None
    case_sensitive: bool = True
    multiline: bool = False
    dotall: bool = False
    multiple: Annotated[bool, Meta(description="All matches, a line each.")] = False
    template: Annotated[str | None, Meta(description="`{match}` is replaced by the match.")] = None
    on_no_match: Literal["pass", "default", "drop"] = "pass"
    default_value: str | None = None


class Template(_Tagged, frozen=True, kw_only=True, tag="template"):
    """Edge processor that carries a template; `{{content}}` is replaced by the source's output."""

    template: Annotated[str, Meta(min_length=1)]


class FunctionProcessor(_Tagged, frozen=True, kw_only=True, tag="function"):
    """A function of `functions/edge_processor/`, or one of the built-in ones."""

    name: Id


Processor: TypeAlias = RegexExtract | Template | FunctionProcessor

PROCESSORS: dict[str, type[Processor]] = by_tag(RegexExtract, FunctionProcessor, Template)
"""Every value of a processor's `type`."""

PROCESSOR_FUNCTIONS = frozenset({"uppercase_payload", "code_save_and_run"})
"""Processors that need no file."""


# --- map and tree -----------------------------------------------------------------------------------------


class ByMessage(_Tagged, frozen=True, kw_only=True, tag="message"):
    """Split into one unit per message."""


class ByMatch(_Tagged, frozen=True, kw_only=True, tag="regex"):
    """Split into one unit per match of a pattern; text between matches is dropped."""

    pattern: Pattern
    group: Group = None
    case_sensitive: bool = True
    multiline: bool = False
    dotall: bool = False
    on_no_match: Literal["pass", "empty"] = "pass"


class ByPath(_Tagged, frozen=True, kw_only=True, tag="json_path"):
    """Split into one unit per item of the list at a dotted path into JSON: `data.items`, or "" for the whole."""

    json_path: str


class ByArray(_Tagged, frozen=True, kw_only=True, tag="json_array"):
    """Split into one unit per item of a JSON array. The guide's `split_type: json_array`."""


class ByLines(_Tagged, frozen=True, kw_only=True, tag="lines"):
    """Split into one unit per line that is not blank. The guide's `split_type: lines`."""


class ByDelimiter(_Tagged, frozen=True, kw_only=True, tag="delimiter"):
    """Split at the matches of a pattern, with one unit per piece. The guide's `split_type: regex`."""

    pattern: Pattern


Split: TypeAlias = ByMessage | ByMatch | ByPath | ByArray | ByLines | ByDelimiter

# Without `ByDelimiter`: `regex` under `split` means the matches, and only under the guide's `split_type` what is
# between.
SPLITS: dict[str, type[Split]] = by_tag(ByMessage, ByMatch, ByPath, ByArray, ByLines)
"""Every value of a split's `type`."""

GUIDE_SPLITS: dict[str, type[ByArray | ByDelimiter | ByLines]] = {
    "json_array": ByArray,
    "regex": ByDelimiter,
    "lines": ByLines,
}
"""Every value of the guide's `split_type`."""


class MapFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of `dynamic: {type: map}`."""

    # DevAll does not check it, and its thread pool raises an error for 0.
    max_parallel: Annotated[AtLeastOne, Meta(description="Units at once.")] = 10
    split_type: Annotated[
        Literal["json_array", "regex", "lines"] | None, Meta(description="`split` in the spelling of DevAll's guide.")
    ] = None
    pattern: Annotated[str | None, Meta(description="Separator of units (a pattern), for `split_type: regex`.")] = None
    item_name: Annotated[Id, Meta(description="`{{item}}` in the target's role is the unit; under this name.")] = "item"


class TreeFields(MapFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of `dynamic: {type: tree}`."""

    group_size: Annotated[int, Meta(ge=2, description="Units that are made one at a time.", **_LOOSE)] = 3


class Dynamic(msgspec.Struct, frozen=True, kw_only=True):
    """Fan-out of an edge: the target runs once per unit of its message; a tree then reduces the results to one."""

    type: Literal["map", "tree"]
    split: Split = ByMessage()
    max_parallel: int = 10
    group_size: int = 3
    item_name: str = "item"


# --- the edge ---------------------------------------------------------------------------------------------


class EdgeFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An edge as the file has it."""

    source: Annotated[Id, Meta(description="The node it leaves.")] = msgspec.field(name="from")
    target: Annotated[Id, Meta(description="The node it leads to.")] = msgspec.field(name="to")
    description: Annotated[str | None, Meta(description="For people.")] = None
    trigger: Annotated[bool, Meta(description="Whether the edge makes the target run.")] = True
    carry_data: Annotated[bool, Meta(description="Whether the target gets the source's output.")] = True
    keep_message: Annotated[bool, Meta(description="Messages of this edge survive a `clear_context`.")] = False
    clear_context: Annotated[bool, Meta(description="Drop what the target has queued, except kept messages.")] = False
    clear_kept_context: Annotated[bool, Meta(description="Drop the kept messages that the target has queued.")] = False


class Edge(EdgeFields, frozen=True, kw_only=True):
    """An edge after reading; `path` is its position in the file."""

    condition: Condition = Always()
    process: Processor | None = None
    dynamic: Dynamic | None = None
    path: Path = ()


Loose: TypeAlias = Annotated[str, Meta(extra={"as_text": True}, extra_json_schema={"x-as-text": True})]
"""A text; a number or a boolean is taken as it is written."""

NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Positive: TypeAlias = Annotated[float, Meta(gt=0)]


class _Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file with a fixed set of keys."""


# --- tools ------------------------------------------------------------------------------------------------


class ToolEntry(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function of `functions/function_calling/`, or with `module:All` every function of a file."""

    name: Id
    description: Annotated[str | None, Meta(description="Description in place of the function's own.")] = None
    parameters: Annotated[dict[str, Json] | None, Meta(description="JSON Schema, instead of the function's own.")] = (
        None
    )
    auto_fill: Annotated[bool, Meta(description="Take values that are not set here from the function.")] = True


class FunctionTools(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """Python functions."""

    tools: Annotated[tuple[ToolEntry, ...], Meta(min_length=1)]
    auto_load: bool = True
    timeout: Annotated[Positive | None, Meta(description="Seconds for one call.")] = None


class McpRemoteTools(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mcp_remote"):
    """The tools of an MCP server that is reached by HTTP."""

    server: Annotated[Id, Meta(description="The server's URL.")]
    headers: dict[str, Loose] = {}
    timeout: Annotated[Positive | None, Meta(description="Seconds for one call.")] = None
    cache_ttl: NotNegative = 0.0
    tool_sources: Texts | None = None


class McpLocalTools(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mcp_local"):
    """The tools of an MCP server that is started as a process."""

    command: Id
    args: Texts = ()
    cwd: str | None = None
    env: dict[str, Loose] = {}
    inherit_env: bool = True
    startup_timeout: Annotated[Positive, Meta(description="Seconds within which it must be ready.")] = 10.0
    wait_for_log: str | None = None
    cache_ttl: NotNegative = 0.0


ToolSource: TypeAlias = FunctionTools | McpRemoteTools | McpLocalTools

TOOL_SOURCES: dict[str, type[ToolSource]] = by_tag(FunctionTools, McpRemoteTools, McpLocalTools)
"""Every value of `type` in an entry of `tooling`."""


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of `tooling`; with a prefix its tools are called `prefix_name`."""

    config: ToolSource
    prefix: str | None = None
    path: Path = ()


# --- thinking, skills, retries ----------------------------------------------------------------------------


class Reflection(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="reflection"):
    """Reflection: the model reviews its output, and the review is the output of the node."""

    reflection_prompt: Id


class Skills(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Skills of `.agents/skills/`; an empty `allow` permits all of them."""

    enabled: bool = False
    allow: tuple[str, ...] = ()


class Retry(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retry policy for requests to the model. Omitted lists have the defaults of the model gateway."""

    enabled: bool = True
    # These three defaults are those of DevAll's program.
    max_attempts: Count = 5
    min_wait_seconds: NotNegative = 1.0
    max_wait_seconds: NotNegative = 6.0
    retry_on_status_codes: tuple[int, ...] | None = None
    retry_on_exception_types: tuple[str, ...] | None = None
    non_retry_exception_types: tuple[str, ...] = ()
    retry_on_error_substrings: tuple[str, ...] | None = None


# --- memories ---------------------------------------------------------------------------------------------

Stage: TypeAlias = Literal["pre_gen_thinking", "gen", "post_gen_thinking", "finished"]


class MemoryUse(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entry of a node's `memories`: a store, and when it is read and written.

    The defaults are those of the guide; with `compat: devall` they are 3, -1.0, true and true.
    """

    name: Annotated[Id, Meta(description="A store of the graph's `memory`.")]
    retrieve_stage: Annotated[
        tuple[Stage, ...] | None,
        Meta(
            description="Stages at which it is read; by default every stage for an agent, `gen` for a human node.",
            extra={"one_or_many": True},
            extra_json_schema={"x-one-or-many": True},
        ),
    ] = None
    top_k: Count = 10
    similarity_threshold: float = 0.5
    read: bool = False
    write: bool = False
    path: Path = ()


class Embedding(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that makes vectors of texts."""

    provider: Id
    model: Id
    api_key: str | None = None
    base_url: str | None = None
    params: dict[str, Json] = {}


class FileSource(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file or directory of a file store."""

    path: Id
    file_types: Texts | None = None
    recursive: bool = True
    encoding: str = "utf-8"


class SimpleStore(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="simple"):
    """Inputs and outputs of nodes, retrieved by similarity."""

    memory_path: Annotated[str | None, Meta(description="A file; `auto` or nothing for one of the run's.")] = None
    embedding: Embedding | None = None


class FileStore(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="file"):
    """Documents, never written to. `memory_path` is another name of `index_path`."""

    file_sources: Annotated[tuple[FileSource, ...], Meta(min_length=1)]
    index_path: str | None = None
    memory_path: str | None = None
    embedding: Embedding | None = None


class Blackboard(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="blackboard"):
    """Remembers outputs in order; reading gives the latest."""

    memory_path: str | None = None
    max_items: Count = 1000


class Mem0Store(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mem0"):
    """The mem0 service."""

    api_key: Id
    org_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None


StoreConfig: TypeAlias = SimpleStore | FileStore | Blackboard | Mem0Store

STORES: dict[str, type[StoreConfig]] = by_tag(SimpleStore, FileStore, Blackboard, Mem0Store)
"""Every value of a store's `type`."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the graph's `memory`."""

    name: str
    config: StoreConfig
    path: Path = ()


# --- the file, its graph and its nodes -----------------------------------------------------------------------

LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """Message in the queue or among the outputs of a node before the workflow starts."""

    role: Role
    content: str


# --- what nodes do ----------------------------------------------------------------------------------------


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of the configs of nodes; the node's `type` selects one."""


class AgentConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="agent"):
    """Asks a model, with tools and memories."""

    provider: Annotated[
        Id,
        Meta(
            description="openai, gemini or a client of yours; *ours*: callboard, with the name of an agent in `name`."
        ),
    ]
    name: Annotated[Id, Meta(description="The model.")]
    role: Annotated[str | None, Meta(description="The system message.")] = None
    base_url: str | None = None
    api_key: str | None = None
    fallback_models: Annotated[
        Models,
        Meta(
            description="`client:model`, or a list: asked in turn if the model does not answer. Callboard only; DevAll "
            "ignores this key."
        ),
    ] = None
    params: Annotated[dict[str, Json], Meta(description="Parameters of every request to the model.")] = {}
    input_mode: Annotated[
        Literal["messages", "prompt"],
        Meta(description="Send the input as a conversation, or as one message with headings."),
    ] = "messages"
    tooling: tuple[Tooling, ...] = ()
    thinking: Reflection | None = None
    memories: tuple[MemoryUse, ...] = ()
    skills: Skills | None = None
    retry: Retry = Retry()


class HumanConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="human"):
    """Asks a user."""

    description: Annotated[str | None, Meta(description="Instructions for the user.")] = None
    memories: tuple[MemoryUse, ...] = ()


class LiteralConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="literal"):
    """Emits the same message every time."""

    content: Id
    role: Literal["user", "assistant", "system"] = "user"


class PassthroughConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="passthrough"):
    """Passthrough node: its output is its input."""

    only_last_message: bool = True


class PythonConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="python"):
    """Python node: runs its own code, or the code in the last message, in a process."""

    code: Annotated[
        str | None,
        Meta(
            description="Code of the node; without it, the last message is the code. DevAll's guide has this key; its "
            "program ignores it."
        ),
    ] = None
    interpreter: Annotated[str | None, Meta(description="Python interpreter; by default that of Callboard.")] = None
    args: Annotated[tuple[Loose, ...], Meta(description="Arguments of the interpreter, before the script.")] = ()
    env: Annotated[dict[str, Loose], Meta(description="Environment variables in addition to the inherited ones.")] = {}
    timeout_seconds: Annotated[int, Meta(ge=1)] = 60
    encoding: str = "utf-8"


class LoopCounterConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="loop_counter"):
    """Loop counter node: no output before visit `max_iterations`. Then it emits, and counts from 0 again.

    Without `reset_on_emit` it emits at every later visit, too.
    """

    max_iterations: AtLeastOne = 10
    reset_on_emit: Annotated[bool, Meta(description="Restart the count after it has emitted.")] = True
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
            description="Messages that stay queued after a run: 0 kept ones only, N the newest N, -1 all.",
            extra={"loose": True},
            extra_json_schema={"x-loose": True},
        ),
    ] = 0
    log_output: Annotated[bool, Meta(description="false: the log does not show the node's output.")] = True
    on_error: Annotated[
        Literal["fail", "continue"] | None,
        Meta(
            description="On failure: `fail` (default) ends the run, `continue` outputs the error text. Callboard only; "
            "DevAll ignores this key."
        ),
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
    initial_instruction: Annotated[str | None, Meta(description="Text shown to the user before the first run.")] = None
    log_level: LogLevel | None = None
    is_majority_voting: Annotated[
        bool, Meta(description="Every node runs on the task; the most frequent output is the result.")
    ] = False
    # 100 is the fixed limit of DevAll, which then continues behind the cycle with a mere warning.
    max_iterations: Annotated[
        AtLeastOne,
        Meta(
            description="Maximum number of iterations of a cycle. Callboard only; DevAll ignores this key and stops "
            "after 100."
        ),
    ] = 100
    args: Annotated[tuple[Json, ...], Meta(description="For front ends; Callboard does not use it.")] = ()


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

    version: Annotated[str, Meta(description="For readers; it has no effect.")] = "0.0.0"
    vars: Annotated[
        dict[str, Json], Meta(description="Values of `${NAME}`; they take precedence over the environment.")
    ] = {}
    compat: Annotated[
        Mode | None,
        Meta(
            description="`standard` (default) follows DevAll's guide; `devall` behaves exactly as DevAll's program of "
            "May 2026. Callboard only; DevAll ignores this key."
        ),
    ] = None


class Workflow(WorkflowFields, frozen=True, kw_only=True):
    """A workflow after reading, with the references in `vars` resolved and the `dialect` used for it."""

    graph: Graph
    dialect: Dialect = STANDARD
