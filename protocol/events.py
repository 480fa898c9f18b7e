"""Events of runs: one typed stream per run.

Everything that shows, stores or forwards a run reads this stream: terminal output, JSON lines, websocket, journal,
traces. The envelope is `Event`. Its `data` is a struct whose class determines the `kind`:

    {"schema_version":1,"seq":7,"ts":"2026-11-03T10:00:00.123456Z","run":"run-7f3a","actor":"/run-7f3a/research/plan#2",
     "parent":"/run-7f3a/research","kind":"node.entered","data":{"node":"plan","type":"llm","visit":2}}

`seq` counts from 1 without gaps within a run. Kinds may be added at any time; a reader skips unknown ones. Fields are
added, never renamed: a renamed field would need a new `schema_version`.

The envelope, and the kinds of the kernel, are in `protocol/kernel/events`. `KINDS` has all kinds. `decode` reads a
stored event, and `event_schema` describes all of them to readers in other languages.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, Literal

import msgspec

from .decoding import json_decoder
from .kernel.events import *  # noqa: F403 - the kinds of the kernel are kinds of runs as well
from .kernel.events import SCHEMA_VERSION, Event, EventData, Json

TERMINAL = frozenset({"run.finished", "run.failed", "run.cancelled"})
"""Final kinds: exactly one of them ends every run's stream."""


# --- requests to models -------------------------------------------------------------------------------------


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A request is sent. `messages` is the number of messages, `tools` the names of tools, `server` the `host:port`."""

    kind = "llm.request"
    model: str
    messages: int
    tools: list[str] = msgspec.field(default_factory=list)
    attempt: int = 1
    stream: bool = False
    server: str = ""


LONGEST_PIECE = 65_536
"""Characters of one chunk of text. Escaped as JSON it stays below the 1 MiB that websocket clients accept."""


def split_text(text: str) -> Iterator[str]:
    """Yield the text in chunks that fit into an event; an empty text is one chunk."""
    yield text[:LONGEST_PIECE]
    for start in range(LONGEST_PIECE, len(text), LONGEST_PIECE):
        yield text[start : start + LONGEST_PIECE]


class LlmDelta(EventData, frozen=True, kw_only=True):
    """A piece of the answer's text, as it arrives."""

    kind = "llm.delta"
    text: str


class LlmReasoning(EventData, frozen=True, kw_only=True):
    """A piece of the model's visible reasoning as it arrives."""

    kind = "llm.reasoning"
    text: str


class LlmResponse(EventData, frozen=True, kw_only=True):
    """An answer is complete.

    `cached_tokens` and `cache_write_tokens` (read from and written to the provider's cache) are part of `input_tokens`,
    `reasoning_tokens` of `output_tokens`. `response_id` is the provider's id of the reply, `server` its `host:port`.
    """

    kind = "llm.response"
    model: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    stop: str = ""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    response_id: str = ""
    server: str = ""


class LlmRetry(EventData, frozen=True, kw_only=True):
    """A transient error; the next try starts after `wait` seconds."""

    kind = "llm.retry"
    model: str
    attempt: int
    wait: float
    error: str


class LlmWaiting(EventData, frozen=True, kw_only=True):
    """Request delayed by a limit for at least `wait` seconds; 0 until another request ends.

    Attributes:
        reason: `refused`: the provider refused it as too many requests; `rate`, `concurrency`: a limit of its client
            is reached; `budget`: the rest of a limit is reserved for requests under way.
        error: the provider's refusal of this request, if there was one.
    """

    kind = "llm.waiting"
    model: str
    wait: float
    reason: str
    error: str = ""


class CacheMissed(EventData, frozen=True, kw_only=True):
    """`tools` or `system` of a conversation have changed, so that the provider's prompt cache does not apply."""

    kind = "llm.cache_missed"
    agent: str
    changed: list[str]


class LlmFallback(EventData, frozen=True, kw_only=True):
    """Fallback: `model` failed, and the request is sent to `next`.

    Attributes:
        error: reason of the failure.
        asked: True if the request was sent to `model`; False if it was skipped, because it failed a moment ago or can't
            handle this request.
    """

    kind = "llm.fallback"
    model: str
    next: str
    error: str
    asked: bool = True


class LlmEmbedding(EventData, frozen=True, kw_only=True):
    """A request for the embeddings of `texts` texts ended, after `attempt` tries; the last one took `seconds`.

    Attributes:
        input_tokens: 0 where the provider does not say.
        error, code: error with which it was given up. An interrupted request has no event.
    """

    kind = "llm.embedding"
    model: str
    texts: int
    seconds: float
    attempt: int = 1
    input_tokens: int = 0
    error: str | None = None
    code: str = ""


class LlmRerank(EventData, frozen=True, kw_only=True):
    """A request to rerank `texts` texts by a query ended; the other fields are as in `llm.embedding`."""

    kind = "llm.rerank"
    model: str
    texts: int
    seconds: float
    attempt: int = 1
    input_tokens: int = 0
    error: str | None = None
    code: str = ""


class LlmFailed(EventData, frozen=True, kw_only=True):
    """A request is given up, with its last error and its `code`. An interrupted request has no such event."""

    kind = "llm.failed"
    model: str
    error: str
    code: str


# --- runs and their parts -----------------------------------------------------------------------------------


class RunStarted(EventData, frozen=True, kw_only=True):
    """First event of a run. `target` is the name that the user gave, `name` that of the file.

    `model` is the model of nodes without a model of their own (None if all have one); `why` is the reason of a choice
    that the user did not make. `sandbox` is the profile of its processes.
    """

    kind = "run.started"
    target: str
    name: str
    dialect: str
    model: str | None = None
    why: str = ""
    prompt: str = ""
    sandbox: str = ""


class RunResumed(EventData, frozen=True, kw_only=True):
    """Second event of a resumed or forked run, after `run.started`.

    Attributes:
        life: number of processes that have executed the run, including this one.
        rows: number of journal rows on disk.
        after: number of the last earlier event in the run's log, 0 without one. Events after it are lost. The numbers
            of each life start at a further billion.
        forked_from: for a fork, the run that its first rows come from; forked_at: number of these rows.
    """

    kind = "run.resumed"
    life: int
    rows: int
    after: int = 0
    forked_from: str = ""
    forked_at: int = 0


class RunDormant(EventData, frozen=True, kw_only=True):
    """Durable run unloaded while it waits only for answers of users; it continues with `run.resumed`.

    Only subscribers in the same process receive it; it is not among the events of the run.
    """

    kind = "run.dormant"


class RunPlaced(EventData, frozen=True, kw_only=True):
    """Child run placed on another worker of the cluster, as a run of its own.

    Attributes:
        part: the id of that run.
        agent: name of the agent; of an item of a map, the node and the item's number.
    """

    kind = "run.placed"

    part: str
    agent: str


class CallUnknown(EventData, frozen=True, kw_only=True):
    """Unknown outcome of a call or script that was under way when an earlier process of the run was killed.

    Attributes:
        what: the tool, or the script.
        then: reaction: the call is made `again` or `skipped`, the model is `told`, or the caller has `failed`.
    """

    kind = "call.unknown"
    what: str
    then: Literal["again", "told", "skipped", "failed"]


class RunFinished(EventData, frozen=True, kw_only=True):
    """The run has its result. `outcome` is the object that `-o json` prints."""

    kind = "run.finished"
    outcome: Json


class RunFailed(EventData, frozen=True, kw_only=True):
    """The run failed; `outcome.error` is the reason. Its `output` is empty unless it continued after `failures`."""

    kind = "run.failed"
    outcome: Json


class RunCancelled(EventData, frozen=True, kw_only=True):
    """The run was cancelled from outside."""

    kind = "run.cancelled"
    outcome: Json


class JournalCheckpoint(EventData, frozen=True, kw_only=True):
    """Everything up to here is on disk."""

    kind = "journal.checkpoint"
    step: int


class McpServerStarting(EventData, frozen=True, kw_only=True):
    """An MCP server is being started; in `wait` seconds, if it failed before. Emitted like `mcp.started`."""

    kind = "mcp.starting"
    server: str
    wait: float = 0.0


class McpServerStarted(EventData, frozen=True, kw_only=True):
    """An MCP server was started, with revision `protocol`. Emitted by its actor, and on the run that needed it."""

    kind = "mcp.started"
    server: str
    version: str
    protocol: str
    seconds: float
    tools: int


class McpServerStopped(EventData, frozen=True, kw_only=True):
    """An MCP server ended: it was stopped (`error` is empty), or ended unexpectedly."""

    kind = "mcp.stopped"
    server: str
    error: str = ""


class McpServerFailed(EventData, frozen=True, kw_only=True):
    """An MCP server could not be started."""

    kind = "mcp.failed"
    server: str
    error: str


class KnowledgeBuilding(EventData, frozen=True, kw_only=True):
    """Progress of a knowledge base build; emitted at most a few times a second.

    `phase` is `pull` (download of the model's weights, in bytes), `read` (sources), `embed` or `index` (chunks);
    `total` is None if unknown.
    """

    kind = "knowledge.building"
    what: str
    phase: str
    done: int
    total: int | None = None
    seconds_left: float | None = None


class KnowledgeBuilt(EventData, frozen=True, kw_only=True):
    """A knowledge base is up to date. `added` to `unreadable` count its sources, `embedded` and `chunks` its chunks."""

    kind = "knowledge.built"
    what: str
    added: int
    changed: int
    removed: int
    unchanged: int
    unreadable: int
    embedded: int
    chunks: int
    seconds: float


class KnowledgeRetrieved(EventData, frozen=True, kw_only=True):
    """Search in a knowledge base. `query` is the length of the query in characters, not its text."""

    kind = "knowledge.retrieved"
    what: str
    query: int
    chunks: int
    sources: tuple[str, ...]
    seconds: float


class GraphStarted(EventData, frozen=True, kw_only=True):
    """A graph (the run's own or a child's, `depth` > 0) begins."""

    kind = "graph.started"
    graph: str
    start: str
    depth: int = 0


class GraphFinished(EventData, frozen=True, kw_only=True):
    """A graph ended. `timing` maps node id to `[visits, total seconds, longest seconds]`.

    `error` is the error that ended it before an end node, or the first failure after which it continued although the
    file does not accept one there; `code` is its stable code.
    """

    kind = "graph.finished"
    graph: str
    seconds: float
    depth: int = 0
    timing: dict[str, tuple[int, float, float]] = msgspec.field(default_factory=dict)
    error: str | None = None
    code: str = ""


class StepStarted(EventData, frozen=True, kw_only=True):
    """A super-step begins: these nodes run together on one snapshot of the state.

    `keys` and `bytes` describe that snapshot (`log_state_snapshots`); its values never travel in events.
    """

    kind = "step.started"
    step: int
    nodes: list[str]
    keys: list[str] = msgspec.field(default_factory=list)
    bytes: int = 0


class StepFinished(EventData, frozen=True, kw_only=True):
    """A super-step's writes are merged; `next` are the nodes of the following one."""

    kind = "step.finished"
    step: int
    next: list[str]


class NodeEntered(EventData, frozen=True, kw_only=True):
    """A node starts. `visit` counts its entries from 1; `item` is the index within a map."""

    kind = "node.entered"
    node: str
    type: str
    visit: int = 1
    item: int | None = None


class NodeExited(EventData, frozen=True, kw_only=True):
    """A node ended; its lane continues with `next`. `error` (and `code`): it failed, and was routed nevertheless."""

    kind = "node.exited"
    node: str
    seconds: float
    next: list[str] = msgspec.field(default_factory=list)
    item: int | None = None
    error: str | None = None
    code: str = ""


class NodeSkipped(EventData, frozen=True, kw_only=True):
    """A lane that was dropped (an end node was reached elsewhere) or waits at a join."""

    kind = "node.skipped"
    node: str
    reason: str


class StatePatch(EventData, frozen=True, kw_only=True):
    """The keys that a super-step changed, without their values, which may be secrets."""

    kind = "state.patch"
    keys: list[str]


class ToolStarted(EventData, frozen=True, kw_only=True):
    """A tool call (or a script node's process) starts. `arguments` is JSON text, shortened in the middle if long.

    `origin` is the source of the tool: `builtin`, `file`, `function`, `family` (built-in tools of agents), `mcp`. It is
    `builtin` also for the process of a script or a Python node.
    """

    kind = "tool.call.started"
    tool: str
    arguments: str = ""
    origin: str = "builtin"


class ToolDelta(EventData, frozen=True, kw_only=True):
    """A line of output of a running tool."""

    kind = "tool.call.delta"
    tool: str
    text: str


class ToolProgress(EventData, frozen=True, kw_only=True):
    """Progress of a tool call; `total` has the unit of `progress`, and is None if unknown."""

    kind = "tool.call.progress"
    tool: str
    progress: float
    total: float | None = None
    message: str | None = None


class FileChanged(EventData, frozen=True, kw_only=True):
    """File changed by a built-in tool: `how` is `created`, `changed` or `removed`; of a directory that was removed,
    the directory alone. `added` and `removed` count lines; null if it has none, or is too long. `diff` has at
    most 8,000 characters; "" if it may not be shown, or the file is not text.
    """

    kind = "file.changed"
    tool: str
    path: str
    how: str
    added: int | None = None
    removed: int | None = None
    diff: str = ""


class ToolFinished(EventData, frozen=True, kw_only=True):
    """A tool call ended; `status` is the exit status, if it was a process.

    `result` is the result of a model's call as text, shortened in the middle if long; `code` that of the error.
    """

    kind = "tool.call.finished"
    tool: str
    seconds: float
    status: int | None = None
    error: str | None = None
    result: str = ""
    code: str = ""


class UsageUpdate(EventData, frozen=True, kw_only=True):
    """Totals of the run so far for one model, and for the node that asked it. Costs in USD.

    If `priced` (`node_priced`) is false, the cost lacks replies with an unknown price.
    """

    kind = "usage.update"
    model: str
    input_tokens: int
    output_tokens: int
    cost: float
    node: str | None = None
    node_input_tokens: int = 0
    node_output_tokens: int = 0
    node_cost: float = 0.0
    priced: bool = True
    node_priced: bool = True


class AgentStarted(EventData, frozen=True, kw_only=True):
    """An agent begins its loop; `tools` are the names of its tools. `child` is its id, if an agent spawned it."""

    kind = "agent.started"
    agent: str
    depth: int = 0
    tools: list[str] = msgspec.field(default_factory=list)
    child: str | None = None


class AgentFinished(EventData, frozen=True, kw_only=True):
    """An agent's loop ended; `stop` is the reason (`done`, `handed_out`, `todo_limit`, `todo_stuck`), or `error`."""

    kind = "agent.finished"
    agent: str
    seconds: float
    turns: int
    tool_calls: int
    stop: str = "done"
    error: str | None = None
    depth: int = 0
    child: str | None = None
    code: str = ""


class AgentTold(EventData, frozen=True, kw_only=True):
    """A user or program (`by`) sent text to a running agent; its model receives the `text` with the next request."""

    kind = "agent.told"
    agent: str
    text: str
    by: str = ""


class AgentContinued(EventData, frozen=True, kw_only=True):
    """An agent with open todos stopped, and was made to continue, for the `count`th of at most `most` times."""

    kind = "agent.continued"
    agent: str
    count: int
    most: int
    open: int


class HistoryCompacting(EventData, frozen=True, kw_only=True):
    """A conversation approached its model's window: a model summarizes its first `turns` turns. The next request would
    have `tokens`."""

    kind = "history.compacting"
    agent: str
    turns: int
    tokens: int


class HistoryCompacted(EventData, frozen=True, kw_only=True):
    """A conversation approached its model's window, and was shortened: a summary replaced older turns (`turns`), or
    results of tools were cut (`results`). The next request shrank from `tokens` to `tokens_now`."""

    kind = "history.compacted"
    agent: str
    turns: int
    tokens: int
    summary_tokens: int
    results: int = 0
    tokens_now: int = 0


# In the order in which the classes are defined, those of the kernel first.
KINDS: dict[str, type[EventData]] = {
    payload.kind: payload
    for payload in sorted(EventData.__subclasses__(), key=lambda payload: not payload.kind.startswith("run."))
}
"""Every kind of event, with the struct of its `data`. Kinds of runs are first, because docs/events.md has this order.
"""


# --- stored events, and their schema ------------------------------------------------------------------------


# Decoded in two passes: `kind`, next to `data`, determines its type, and msgspec reads a tag only inside of the struct.
class _Wire(msgspec.Struct):
    seq: int
    ts: datetime
    run: str
    actor: str
    kind: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    parent: str = ""
    id: str = ""
    corr: str = ""


@cache
def _decoders() -> tuple[msgspec.json.Decoder[_Wire], dict[str, msgspec.json.Decoder[EventData]]]:
    """Return the decoders of the envelope and of each kind; made at the first use, because most programs only emit."""
    return json_decoder(_Wire), {name: json_decoder(kind) for name, kind in KINDS.items()}


def decode(line: bytes) -> Event | None:
    """Return the event of a line; None if its kind is unknown to this version, or if the line is no event."""
    envelope_decoder, decoders = _decoders()
    try:
        wire = envelope_decoder.decode(line)
        data = decoders[wire.kind].decode(wire.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    envelope = msgspec.structs.asdict(wire)
    return Event(**{**envelope, "data": data})


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one event on the wire: one of the kinds, distinguished by `kind`."""
    schemas, components = msgspec.json.schema_components(list(KINDS.values()), ref_template="#/$defs/{name}")
    kinds = event_kinds(schemas)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard event",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": {**components, **kinds},
    }


def event_kinds(schemas: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the envelope of each kind under a name such as `RunStartedEvent`.

    Args:
        schemas: schemas of the payloads, in the order of `KINDS`.
    """
    made = zip(KINDS.items(), schemas, strict=True)
    return {f"{kind.__name__}Event": _envelope(name, schema) for (name, kind), schema in made}


def _envelope(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        # `parent`, `id` and `corr` are omitted if they are empty (`omit_defaults`).
        "required": ["schema_version", "seq", "ts", "run", "actor", "kind", "data"],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "seq": {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
            "ts": {"type": "string", "format": "date-time"},
            "run": text,
            "actor": text,
            "parent": text,
            "kind": {"const": kind},
            "id": text,
            "corr": text,
            "data": data,
        },
    }
