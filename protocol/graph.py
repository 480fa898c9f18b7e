"""Language of `graph.yaml`, schema "1.0": structs of a graph agent, and their reader.

There is one struct per node type. The structs are the only table of the language: the field types drive the reader and
the JSON Schema (`graph_schema`), the defaults are Loki's, and editors show the descriptions. Structs are frozen: a
graph is read once and shared by all its runs. Fields marked *ours* do not exist in Loki and change nothing if they are
omitted. docs/graphs.md lists fields that a release accepts without using them yet.

`read_graph` is for execution: it returns no graph if there is an error. `draft_graph` is for checks: it returns the
readable part of the graph. The checks of its meaning (`actors.engine.graph.validate`) can then report their problems
together with missing fields and misspelt keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from .chat import Models, ReasoningEffort, ThinkingBudget
from .interrupted_calls import OfScript, OnUnknown
from .languages import Language
from .mcp.config import ToolMode
from .permissions import Permissions
from .placement import PLACE, Place
from .problems import Problem, did_you_mean, errors_in
from .reading import YAML_ERROR, Cursor, Reading, in_file_order
from .sandbox import OWN, Own
from .schema import by_tag, by_type, no_effect, schema_of
from .tree import Mapping, Path, Scalar, describe
from .yaml_tree import Source, parse_mapping

_SEVERAL_STARTS = "name a single node; to run several at once, list them in its `next: [a, b]`."
"""Hint for a list in place of one node."""

Id: TypeAlias = Annotated[str, Meta(min_length=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
# Bounded, so that sums of limits and reservations stay finite numbers.
Usd: TypeAlias = Annotated[float, Meta(gt=0, le=1e12)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]

Json = Any
"""A JSON value: str, int, float, bool, None, or lists and string-keyed dicts of them."""

INJECT_SKILLS = Meta(description="List the skills in the system prompt; false: only the tool `skill` is offered.")
SKILL_INSTRUCTIONS = Meta(
    description="Text above the list of skills in the system prompt, in place of the built-in one."
)
NO_JOBS = no_effect("background jobs are not supported yet")
NO_SPAWNING = no_effect("llm nodes can't spawn agents")
NO_ENTITIES = no_effect("graphs of entities are not supported")

Reducer: TypeAlias = Literal["append", "extend", "concat", "sum", "max", "min", "merge", "overwrite"]
OnError: TypeAlias = Literal["fail", "continue", "collect"]
Join: TypeAlias = Literal["any", "all"]

# The marker is there twice: our reader sees `extra`, and msgspec copies only `extra_json_schema` into a schema.
OneOrMany: TypeAlias = Annotated[
    tuple[str, ...] | None, Meta(extra={"one_or_many": True}, extra_json_schema={"x-one-or-many": True})
]
"""Either `next: a` or `next: [a, b]`; both are read as a tuple."""

McpTools: TypeAlias = Annotated[
    ToolMode | dict[str, tuple[str, ...]],
    Meta(
        description="How the tools of MCP servers are shown to models: meta, direct or auto; or, for a server, the "
        "only tools of it that may be used."
    ),
]
"""Either `mcp_tools: meta`, or `mcp_tools: {github: [get_issue]}`."""


# `forbid_unknown_fields`, here and below, makes `additionalProperties: false` in the JSON Schema. The reader only warns
# about unknown keys, which Loki ignores; with `strict` they are errors.
class Raw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state update that keeps its type: `{raw: "{{path}}"}` stores the list, number or object itself. Callboard only;
    in Loki every update is a text.
    """

    raw: Annotated[str, Meta(description="A template of exactly one {{path}}.")]


Updates: TypeAlias = dict[str, str | Raw]
"""State keys and the templates of their new values."""


class Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value the user may set from outside; scripts see it as LLM_AGENT_VAR_<NAME>."""

    name: Id
    description: str = ""
    default: str | None = None


class OwnLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Upper bounds for an agent, a graph or a node, and for all that runs below it. Callboard only; Loki ignores the
    key `limits`.
    """

    max_cost: Annotated[Usd | None, Meta(description="USD; only models with a known price may be used.")] = None
    max_tokens: Annotated[AtLeastOne | None, Meta(description="Tokens of input and output.")] = None
    max_turns: Annotated[AtLeastOne | None, Meta(description="Replies of models.")] = None
    timeout: Annotated[Seconds | None, Meta(description="Seconds from its start.")] = None

    @property
    def of_models(self) -> bool:
        """True if requests to models are limited, and not only the time."""
        return self.max_turns is not None or self.max_tokens is not None or self.max_cost is not None


OWN_LIMITS = Meta(
    description="Upper bounds for it and all that runs below it: max_cost, max_tokens, max_turns, timeout. "
    "Callboard only; Loki ignores this key."
)


ON_UNKNOWN = Meta(
    description="What to do about a call that was under way when the process of a durable run was killed, unless its "
    "tool declares that it may be repeated: ask the user, tell the model, repeat it, or fail."
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and defaults for the execution of a graph."""

    # 0 is no limit, as in later versions of Loki. In 0.4.0, and with `compat: loki`, it fails at the first node.
    max_loop_iterations: Annotated[
        Count, Meta(description="How often one node may be entered; 0 means without limit.")
    ] = 100
    timeout: Annotated[Seconds | None, Meta(description="Seconds for the whole run.")] = None
    log_state_snapshots: Annotated[bool, Meta(description="Report keys and size of the state at every step.")] = True
    validate_before_run: Annotated[bool, Meta(description="Check the graph before its first node.")] = True
    # 8 as in Loki's program; its example file says 4. No `ge=1`, because `validate` reports 0 in Loki's words.
    max_concurrency: Annotated[int, Meta(description="How many nodes run at once; at least 1.")] = 8
    compat: Annotated[
        Literal["standard", "loki"],
        Meta(
            description="`standard` follows Loki's documents; `loki` behaves exactly as Loki 0.4.0. Callboard only; "
            "Loki ignores this key."
        ),
    ] = "standard"


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Common fields of all node types.

    Attributes:
        id: equal to the node's key, also if the file omits it.
        next: None if the file has none; `()` for `next: []`; several targets run in parallel.
        state_updates: None if the file has none, which differs from `{}` in a fan-out.
        join: *ours*; `all` waits until every lane that can still arrive has arrived.
        on_error: *ours*; effect of a failure without `fallback` on its super-step or map.
    """

    kind: ClassVar[str]

    id: Annotated[str, Meta(description="Must equal the node's key; may be left out.")] = ""
    description: Annotated[str, Meta(description="Description for readers; shown in logs.")] = ""
    next: Annotated[OneOrMany, Meta(description="The node, or list of parallel nodes, that follows.")] = None
    state_updates: Annotated[
        Updates | None, Meta(description="State keys to set once the node is done, with their templates.")
    ] = None
    join: Annotated[Join, Meta(description="`all`: run once, when all lanes that lead here have arrived.")] = "any"
    on_error: Annotated[
        OnError | None,
        Meta(
            description="What a failure without `fallback` means: fail the run, continue with the error text as "
            "output, or collect it in the state's `errors` (of a map: in the item's place) and continue."
        ),
    ] = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The ids in `next`; empty without any."""
        return self.next or ()

    @property
    def updates(self) -> Updates:
        """The templates in `state_updates`; empty without any."""
        return self.state_updates or {}


class ScriptNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="script"):
    """Runs a .sh, .py or .ts file; the JSON object it prints is merged into the state."""

    script: Annotated[Id, Meta(description="Path relative to the agent's directory.")]
    sandbox: Annotated[Own | None, OWN] = None
    # Loki's defaults: 30 s here, 300 s for an agent node, 120 s for a rag node.
    timeout: Seconds = 30
    fallback: Annotated[str | None, Meta(description="Where to go when the script fails.")] = None
    routes: Annotated[
        tuple[str, ...], Meta(description="Possible targets of the script's `_next`; used by checks only.")
    ] = ()
    on_unknown: Annotated[
        OfScript | None,
        Meta(
            description="What to do if the script was under way when the process of a durable run was killed: ask the "
            "user, run it again, or fail."
        ),
    ] = None


class LlmNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="llm"):
    """Asks a model once, with as many tool turns as it needs up to `max_iterations`."""

    prompt: Annotated[str, Meta(description="The user message (template).")]
    sandbox: Annotated[Own | None, OWN] = None
    instructions: Annotated[str | None, Meta(description="The system prompt (template).")] = None
    tools: Annotated[tuple[str, ...], Meta(description="Exactly these tools; `mcp:<server>` for a server's.")] = ()
    mcp_tools: McpTools = {}
    model: Models = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: Annotated[ReasoningEffort | None, Meta(description="Reasoning effort of models.")] = None
    thinking_budget: Annotated[ThinkingBudget | None, Meta(description="Reasoning budget in tokens.")] = None
    skills: Annotated[tuple[str, ...], Meta(description="Skills that its model may read, by name.")] = ()
    skills_enabled: Annotated[bool | None, Meta(description="Offer `enabled_skills`, or all that there are.")] = None
    enabled_skills: Annotated[tuple[str, ...] | None, Meta(description="With `skills_enabled`: only these.")] = None
    workspace_instructions: Annotated[
        bool, Meta(description="Add the AGENTS.md of the directory to the system prompt.")
    ] = False
    max_attempts: Annotated[AtLeastOne, Meta(description="Attempts after transient errors.")] = 1
    max_iterations: Annotated[AtLeastOne, Meta(description="Maximum turns of the tool loop.")] = 10
    limits: Annotated[OwnLimits | None, OWN_LIMITS] = None
    timeout: Seconds | None = None
    fallback: Annotated[str | None, Meta(description="Next node after all attempts failed.")] = None
    output_schema: Annotated[
        dict[str, Json] | None, Meta(description="JSON Schema of the answer; its keys are merged into the state.")
    ] = None
    on_unknown: Annotated[OnUnknown | None, ON_UNKNOWN] = None


class AgentNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="agent"):
    """Runs another agent and waits for its answer."""

    agent: Annotated[Id, Meta(description="Name of an agent in the configuration directory.")]
    prompt: Annotated[str, Meta(description="The child's user message (template).")]
    sandbox: Annotated[Own | None, OWN] = None
    timeout: Seconds = 300
    output_schema: dict[str, Json] | None = None
    inputs: Annotated[dict[str, str], Meta(description="The child's variables (templates).")] = {}
    place: Annotated[Place | None, PLACE] = None
    teammates: Annotated[bool, no_effect("parallel siblings can't send each other messages yet")] = False
    on_unknown: Annotated[OnUnknown | None, ON_UNKNOWN] = None
    max_attempts: AtLeastOne = 1
    limits: Annotated[OwnLimits | None, OWN_LIMITS] = None
    fallback: Annotated[str | None, Meta(description="Next node after all attempts failed.")] = None


class ApprovalNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="approval"):
    """Asks a user to choose; the choice selects the next node."""

    question: Annotated[str, Meta(description="Text of the question (template).")]
    options: Annotated[tuple[str, ...], Meta(description="The listed choices.")]
    routes: Annotated[dict[str, str], Meta(description="Option to node.")]
    on_other: Annotated[Id, Meta(description="Next node for any other answer.")]
    timeout: Annotated[Seconds | None, Meta(description="Seconds to wait for an answer.")] = None
    on_timeout: Annotated[str | None, Meta(description="Next node after the timeout.")] = None
    people_only: Annotated[bool, Meta(description="Only users may answer, not a parent agent.")] = False


class InputNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="input"):
    """Asks a user for a text."""

    question: Annotated[str, Meta(description="Text of the question (template).")]
    default: Annotated[str | None, Meta(description="Value of an empty answer (template).")] = None
    validation: Annotated[str | None, Meta(description="`len(input) OP N` with OP one of > >= < <= ==.")] = None
    timeout: Annotated[Seconds | None, Meta(description="Seconds to wait for an answer.")] = None
    on_timeout: Annotated[str | None, Meta(description="Next node after the timeout.")] = None
    people_only: Annotated[bool, Meta(description="Only users may answer, not a parent agent.")] = False


class RagNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="rag"):
    """Looks up a query in documents."""

    documents: Annotated[tuple[str, ...], Meta(description="Files, directories, globs or URLs.")]
    query: Annotated[str, Meta(description="Search query (template).")] = "{{initial_prompt}}"
    top_k: AtLeastOne | None = None
    timeout: Seconds = 120
    embedding_model: str | None = None
    chunk_size: AtLeastOne | None = None
    chunk_overlap: Count | None = None
    reranker_model: str | None = None
    batch_size: AtLeastOne | None = None
    language: Annotated[Language | None, Meta(description="Language for stemming of words, or none.")] = None
    extractor_model: Annotated[str | None, NO_ENTITIES] = None
    extractor_prompt: Annotated[str | None, NO_ENTITIES] = None
    graph_hops: Annotated[Count | None, NO_ENTITIES] = None
    driver: Annotated[Literal["yaml", "duckdb"] | None, no_effect("there is only one kind of index")] = None


class MapNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="map"):
    """Runs a branch once per item of a list and collects the results in the list's order."""

    over: Annotated[Id, Meta(description="Template of exactly one {{path}} to a list.")]
    as_: Annotated[str, Meta(min_length=1, description="State key of the item inside the branch.")] = msgspec.field(
        name="as"
    )
    branch: Annotated[Id, Meta(description="First node of the branch.")]
    collect_into: Annotated[Id, Meta(description="State key of the list of results.")]
    output_key: Annotated[Id, Meta(description="State key with the result of the branch.")] = "output"
    max_concurrency: Annotated[
        int | str | None, Meta(description="Maximum number of concurrent items: a number, or a template of one.")
    ] = None
    limits: Annotated[OwnLimits | None, OWN_LIMITS] = None
    place: Annotated[Place | None, PLACE] = None


class EndNode(Node, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="end"):
    """Ends the run; its rendered `output` is the result. With an `error` the run has failed, and has an output."""

    output: Annotated[str, Meta(description="The result (template; missing keys are empty).")] = ""
    error: Annotated[
        str, Meta(description="Reason of a failure (template; missing keys are empty); empty for success.")
    ] = ""


AnyNode: TypeAlias = ScriptNode | ApprovalNode | InputNode | LlmNode | RagNode | MapNode | AgentNode | EndNode

NODE_TYPES: dict[str, type[AnyNode]] = by_tag(*get_args(AnyNode))
"""Every value of `type:` and its struct."""

for _kind, _struct in NODE_TYPES.items():
    _struct.kind = _kind


# Not a member of `AnyNode`: a file must not be able to name a Python function by `type: function`.
class FunctionNode(ScriptNode, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """Calls a Python function. Only in graphs made by a program (`runs.python_graph`): no file can name this type.

    Attributes:
        script: name of the function, `module:name`.
        function: the function.
        item: state key whose value the function gets instead of the whole state; "" for the state.
    """

    timeout: Seconds = math.inf
    function: Callable[..., Any]
    item: str = ""


FunctionNode.kind = "function"


class GraphFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The top level of a `graph.yaml`."""

    # The reader checks these two itself, to report errors in Loki's exact words.
    name: Annotated[
        str,
        Meta(description="The agent's name; should equal its directory's.", extra_json_schema={"minLength": 1}),
    ]
    description: str = ""
    version: Annotated[
        str, Meta(description="Version of the schema, not of your agent.", extra_json_schema={"enum": ["1.0"]})
    ] = "1.0"
    model: Annotated[Models, Meta(description="Default model of llm nodes; of a list the first that answers.")] = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: Annotated[ReasoningEffort | None, Meta(description="Reasoning effort of models.")] = None
    thinking_budget: Annotated[ThinkingBudget | None, Meta(description="Reasoning budget in tokens.")] = None
    global_tools: Annotated[tuple[str, ...], Meta(description="The tools that llm nodes may list.")] = ()
    permissions: Annotated[
        Permissions,
        Meta(
            description="Tool to allow, ask or deny. It can only restrict the user's permissions, "
            "also for child agents."
        ),
    ] = {}
    limits: Annotated[OwnLimits | None, OWN_LIMITS] = None
    sandbox: Annotated[Own | None, OWN] = None
    place: Annotated[Place | None, PLACE] = None
    mcp_servers: Annotated[tuple[str, ...], Meta(description="The servers that llm nodes may list.")] = ()
    mcp_tools: McpTools = {}
    conversation_starters: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    skills_enabled: Annotated[bool | None, Meta(description="Default for llm nodes.")] = None
    enabled_skills: Annotated[tuple[str, ...] | None, Meta(description="Likewise.")] = None
    inject_skill_instructions: Annotated[bool | None, INJECT_SKILLS] = None
    skill_instructions: Annotated[str | None, SKILL_INSTRUCTIONS] = None
    can_spawn_agents: Annotated[bool | None, NO_SPAWNING] = None
    max_concurrent_jobs: Annotated[AtLeastOne | None, NO_JOBS] = None
    max_concurrent_agents: Annotated[AtLeastOne | None, NO_SPAWNING] = None
    max_agent_depth: Count | None = None
    settings: Settings = Settings()
    initial_state: Annotated[dict[str, Json], Meta(description="State before the first node.")] = {}
    reducers: Annotated[
        dict[str, Reducer], Meta(description="Reducer: combines a write to a key with its present value.")
    ] = {}
    start: Annotated[Id, Meta(description="The first node.", extra={"for_list": _SEVERAL_STARTS})]
    nodes: Annotated[dict[str, AnyNode], Meta(min_length=1)]


class Graph(GraphFile, frozen=True, kw_only=True):
    """Graph that was read: the fields of the file, and their positions.

    `source.where(("nodes", "plan", "next"))` returns line and column, `source.problem(...)` a `Problem` there.
    """

    source: Source = Source()


def graph_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `graph.yaml`.

    A file may refer to it in its first line: `# yaml-language-server: $schema=./graph.schema.json`.
    """
    schema = schema_of(GraphFile, title="Callboard graph agent (graph.yaml)")
    schema["properties"]["nodes"]["additionalProperties"] = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": list(NODE_TYPES), "description": "Type of the node."}},
        "allOf": by_type({kind: {"$ref": f"#/$defs/{cls.__name__}"} for kind, cls in NODE_TYPES.items()}),
    }
    return schema


SUPPORTED_VERSIONS = ("1.0",)


class Draft(msgspec.Struct, frozen=True):
    """Readable part of a file that may have errors.

    Attributes:
        graph: every node with a known type; unreadable values are empty.
        unread: ids of the nodes that are missing from it.
        broken: paths of the unreadable values.
    """

    graph: Graph
    unread: frozenset[str] = frozenset()
    broken: frozenset[Path] = frozenset()


def read_graph(text: str, file: str, *, strict: bool = False) -> tuple[Graph | None, list[Problem]]:
    """Return the graph of a YAML text, and all problems by line; None if one of them is an error.

    `file` is the name of the text in problems. With `strict`, warnings (unknown keys) are errors.
    """
    draft, problems = draft_graph(text, file, strict=strict)
    return (None if draft is None or errors_in(problems) else draft.graph), problems


def draft_graph(text: str, file: str, *, strict: bool = False) -> tuple[Draft | None, list[Problem]]:
    """Return the readable part of a graph in spite of errors, and all problems; None if nothing is readable."""
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    top = Cursor(Reading(file), root)
    nodes, unread = _nodes(top)
    graph = top.reading.fill(
        Graph, root, what="a graph", given={"nodes": nodes, "source": Source(file, text)}, hidden=("source",)
    )
    _check_top(top, graph, unread)
    draft = Draft(graph, frozenset(unread), frozenset(top.reading.broken))
    return draft, in_file_order([*problems, *top.reading.problems], strict=strict)


def _nodes(top: Cursor) -> tuple[dict[str, AnyNode], list[str]]:
    """Return the readable nodes, and the ids of the unreadable ones."""
    read = {key: _node(top["nodes"], key) for key in top["nodes"].entries} if "nodes" in top.entries else {}
    if "nodes" not in top.entries:
        top["nodes"].error(
            "missing_key",
            f"{YAML_ERROR}missing field `nodes`: a graph needs it, and it is not there",
            expected="`nodes:` with a mapping of node ids to nodes",
            hint="Hint: the required fields of a graph are `name`, `start`, `nodes`.",
        )
    elif not isinstance(top["nodes"].node, Mapping) and top.get("nodes") is not None:
        top["nodes"].error(
            "wrong_type",
            f"{YAML_ERROR}invalid type: `nodes` is {describe(top['nodes'].node)}",
            expected="a mapping of node ids to nodes",
            hint="Hint: write each node under its id: `plan: {type: llm, ...}`.",
        )
    return {key: node for key, node in read.items() if node is not None}, [key for key in read if read[key] is None]


def _node(nodes: Cursor, key: str) -> AnyNode | None:
    part = nodes.key(key)
    if not isinstance(part.node, Mapping):
        part.error(
            "wrong_type",
            f"{YAML_ERROR}invalid type: node '{key}' is {describe(part.node)}",
            expected="a mapping with `type`",
            hint=f"Hint: write `{key}: {{type: end}}`, or indent its keys under it.",
        )
        return None
    kind = _type_of(part)
    if kind is None:
        return None
    node = part.reading.fill(
        NODE_TYPES[kind],
        Mapping({name: entry for name, entry in part.entries.items() if name != "type"}, *part.place),
        part.path,
        # l: `llm` is pronounced letter by letter, so it is "an llm node".
        what=f"{'an' if kind[0] in 'aeil' else 'a'} {kind} node",
        elsewhere=_owners(),
    )
    if not node.id:
        return msgspec.structs.replace(node, id=key)
    if node.id != key:
        part["id"].error(
            "id_mismatch",
            f"Node ID mismatch: key '{key}' does not match node.id '{node.id}'",
            expected=f"id: {key}",
            hint="Hint: make them equal, or leave `id` out.",
        )
    return node


def _type_of(part: Cursor) -> str | None:
    known = ", ".join(NODE_TYPES)
    kind = part["type"]
    if "type" not in part.entries:
        kind.place = part.place
        kind.error(
            "missing_key",
            f"{YAML_ERROR}missing field `type`: every node needs one",
            expected=f"type: one of {known}",
            hint=f"Hint: the node types are {known}.",
        )
        return None
    if kind.text in NODE_TYPES:
        return kind.text
    found = kind.node.text if isinstance(kind.node, Scalar) else describe(kind.node)
    near = did_you_mean(found, NODE_TYPES)
    kind.error(
        "unknown_type",
        f"{YAML_ERROR}unknown variant `{found}` as node type",
        expected=f"one of {known}",
        hint=f"Hint: {near + ' ' if near else ''}The node types are {known}.",
    )
    return None


@lru_cache(maxsize=1)
def _owners() -> dict[str, str]:
    """Return the node types that have a key, by key, as a text: `llm, agent nodes`."""
    owners: dict[str, list[str]] = {}
    for kind, cls in NODE_TYPES.items():
        for name in cls.__struct_encode_fields__:
            owners.setdefault(name, []).append(kind)
    return {name: f"{', '.join(kinds)} nodes" for name, kinds in owners.items()}


def _check_top(top: Cursor, graph: Graph, unread: list[str]) -> None:
    """Report problems of the top level that the types cannot express, in Loki's words."""
    if not graph.name and not top["name"].is_broken:
        top["name"].error(
            "empty_name",
            "Graph must have a non-empty 'name' field",
            expected="the agent's name",
            hint="Hint: write `name: my-agent`.",
        )
    if graph.version not in SUPPORTED_VERSIONS:
        supported = ", ".join(SUPPORTED_VERSIONS)
        top["version"].error(
            "unsupported_version",
            f"Unsupported graph schema version '{graph.version}'. Supported versions: {supported}",
            expected=f'version: "{SUPPORTED_VERSIONS[-1]}"',
            hint="Hint: this is the version of the schema, not of your agent.",
        )
    # An unreadable node exists and has its own problem, so `start` may name it.
    known = [*graph.nodes, *unread]
    if not known and ("nodes",) not in top.reading.broken:
        top.key("nodes").error(
            "no_nodes",
            f"Graph '{graph.name}' has no nodes defined",
            expected="at least one node",
            hint="Hint: a graph needs at least an end node: `done: {type: end, output: hi}`.",
        )
    elif known and graph.start not in known and not top["start"].is_broken:
        ids = list(top["nodes"].entries)
        top["start"].error(
            "missing_start",
            f"Start node '{graph.start}' not found in graph '{graph.name}'. Available nodes: {', '.join(ids)}",
            expected="the id of a node",
            hint=did_you_mean(graph.start, ids) or "Hint: name one of them in `start`.",
        )
