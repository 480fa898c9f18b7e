"""What a run tells the world: one typed stream of events per run.

Everything that shows, stores or forwards a run is fed from here: terminal narration, JSON lines, websocket,
journal, traces. The envelope is `Event`; what happened is its `data`, a struct whose class fixes the `kind`:

    {"schema_version":1,"seq":7,"ts":"2026-11-03T10:00:00.123456Z","run":"run-7f3a","actor":"/run-7f3a/research/plan#2",
     "parent":"/run-7f3a/research","kind":"node.entered","data":{"node":"plan","type":"llm","visit":2}}

`seq` counts from 1 without gaps within a run. Kinds are added freely; a reader skips the ones it doesn't know.
A field is only ever added, never renamed: that would be a new `schema_version`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

SCHEMA_VERSION = 1

Json = Any
"""A JSON value: str, int, float, bool, None, or lists and string-keyed dicts of them."""


class EventData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all payloads. `kind` is the dotted name that the envelope carries."""

    kind: ClassVar[str] = ""


# --- the run ----------------------------------------------------------------------------------------------


class RunStarted(EventData, frozen=True, kw_only=True):
    """Always the first event. `target` is what the user named, `name` what the file calls itself.

    `model` is what answers wherever no node names its own (None if that is nowhere); where nobody chose it, `why`
    says how it came to be.
    """

    kind = "run.started"
    target: str
    name: str
    dialect: str
    model: str | None = None
    why: str = ""
    prompt: str = ""


class RunFinished(EventData, frozen=True, kw_only=True):
    """The run has its result. `outcome` is the object that `-o json` prints."""

    kind = "run.finished"
    outcome: Json


class RunFailed(EventData, frozen=True, kw_only=True):
    """The run ended without a result."""

    kind = "run.failed"
    outcome: Json


class RunCancelled(EventData, frozen=True, kw_only=True):
    """The run was stopped from outside."""

    kind = "run.cancelled"
    outcome: Json


class Warned(EventData, frozen=True, kw_only=True):
    """Something the user should know although the run goes on. `code` is stable, `node` where it happened."""

    kind = "run.warning"
    code: str
    message: str
    node: str | None = None


# --- actors and mail --------------------------------------------------------------------------------------


class ActorSpawned(EventData, frozen=True, kw_only=True):
    """An actor has its place in the tree."""

    kind = "actor.spawned"


class ActorWaiting(EventData, frozen=True, kw_only=True):
    """An actor waits for an answer (`on` says for what)."""

    kind = "actor.waiting"
    on: str = ""


class ActorBusy(EventData, frozen=True, kw_only=True):
    """An actor that waited works again."""

    kind = "actor.busy"


class ActorRestarted(EventData, frozen=True, kw_only=True):
    """A supervisor started the actor again; `restarts` counts within its intensity period."""

    kind = "actor.restarted"
    error: str
    restarts: int


class ActorStuck(EventData, frozen=True, kw_only=True):
    """An actor did not end within its time; `stack` shows where it stands. It is no longer waited for."""

    kind = "actor.stuck"
    seconds: float
    stack: str = ""


class ActorStopped(EventData, frozen=True, kw_only=True):
    """Terminal: the actor returned, or was stopped or cancelled (`reason`)."""

    kind = "actor.stopped"
    reason: str = "normal"


class ActorFailed(EventData, frozen=True, kw_only=True):
    """Terminal: the actor crashed."""

    kind = "actor.failed"
    error: str
    code: str = "error"


class DeadLetter(EventData, frozen=True, kw_only=True):
    """A message that reached nobody: `to` had ended before it came to it, or nobody waits for the reply any more."""

    kind = "mail.dead"
    to: str
    message: str
    reason: str


# --- pools ------------------------------------------------------------------------------------------------


class ResourceOpened(EventData, frozen=True, kw_only=True):
    """A pool opened a resource (a model server, an index); the actor of this event owns it."""

    kind = "pool.opened"
    key: str
    seconds: float


class ResourceClosed(EventData, frozen=True, kw_only=True):
    """A pool closes a resource (`reason`: idle, lru, room, reload, health, lost, unwanted, closed)."""

    kind = "pool.closed"
    key: str
    reason: str


# --- graphs -----------------------------------------------------------------------------------------------


class GraphStarted(EventData, frozen=True, kw_only=True):
    """A graph (the run's own or a child's, `depth` > 0) begins."""

    kind = "graph.started"
    graph: str
    start: str
    depth: int = 0


class GraphFinished(EventData, frozen=True, kw_only=True):
    """A graph ended. `timing` maps node id to `[visits, total seconds, longest seconds]`."""

    kind = "graph.finished"
    graph: str
    seconds: float
    depth: int = 0
    timing: dict[str, tuple[int, float, float]] = {}


class StepStarted(EventData, frozen=True, kw_only=True):
    """A super-step begins: these nodes run together on one snapshot of the state.

    `keys` and `bytes` describe that snapshot (`log_state_snapshots`); its values never travel in events.
    """

    kind = "step.started"
    step: int
    nodes: list[str]
    keys: list[str] = []
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
    """A node ended; `next` is where its lane goes. With `error`, it failed and was routed all the same."""

    kind = "node.exited"
    node: str
    seconds: float
    next: list[str] = []
    item: int | None = None
    error: str | None = None


class NodeSkipped(EventData, frozen=True, kw_only=True):
    """A lane that was dropped (an end node was reached elsewhere) or waits at a join."""

    kind = "node.skipped"
    node: str
    reason: str


class StatePatch(EventData, frozen=True, kw_only=True):
    """The keys that a super-step changed, without their values, which may be secrets."""

    kind = "state.patch"
    keys: list[str]


# --- models and tools -------------------------------------------------------------------------------------


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A request goes out. `messages` is their number, `tools` the names offered."""

    kind = "llm.request"
    model: str
    messages: int
    tools: list[str] = []
    attempt: int = 1
    stream: bool = False


class LlmDelta(EventData, frozen=True, kw_only=True):
    """A piece of text as it arrives."""

    kind = "llm.delta"
    text: str


class LlmReasoning(EventData, frozen=True, kw_only=True):
    """A piece of the model's visible reasoning as it arrives."""

    kind = "llm.reasoning"
    text: str


class LlmResponse(EventData, frozen=True, kw_only=True):
    """An answer is complete."""

    kind = "llm.response"
    model: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    stop: str = ""


class LlmRetry(EventData, frozen=True, kw_only=True):
    """A transient error; the next try starts after `wait` seconds."""

    kind = "llm.retry"
    model: str
    attempt: int
    wait: float
    error: str


class ToolStarted(EventData, frozen=True, kw_only=True):
    """A tool call (or a script node's process) starts. `arguments` is their JSON text, its middle left out if long."""

    kind = "tool.call.started"
    tool: str
    arguments: str = ""


class ToolDelta(EventData, frozen=True, kw_only=True):
    """A line that a tool printed while it works."""

    kind = "tool.call.delta"
    tool: str
    text: str


class ToolFinished(EventData, frozen=True, kw_only=True):
    """A tool call ended; `status` is the process' exit status where it is a process."""

    kind = "tool.call.finished"
    tool: str
    seconds: float
    status: int | None = None
    error: str | None = None


class UsageUpdate(EventData, frozen=True, kw_only=True):
    """Totals of the run so far for one model, and for the node that asked it. Costs in USD, 0 where unpriced."""

    kind = "usage.update"
    model: str
    input_tokens: int
    output_tokens: int
    cost: float
    node: str | None = None
    node_input_tokens: int = 0
    node_output_tokens: int = 0
    node_cost: float = 0.0


# --- agents -----------------------------------------------------------------------------------------------


class AgentStarted(EventData, frozen=True, kw_only=True):
    """An agent begins its loop; `tools` are the names it is offered. `child` is its id, if an agent spawned it."""

    kind = "agent.started"
    agent: str
    depth: int = 0
    tools: list[str] = []
    child: str | None = None


class AgentFinished(EventData, frozen=True, kw_only=True):
    """An agent's loop ended; `stop` says why (`done`, `todo_limit`, `todo_stuck`), `error` what ended it otherwise."""

    kind = "agent.finished"
    agent: str
    seconds: float
    turns: int
    tool_calls: int
    stop: str = "done"
    error: str | None = None
    depth: int = 0
    child: str | None = None


class AgentContinued(EventData, frozen=True, kw_only=True):
    """An agent stopped with open todos and is told to go on, for the `count`th of at most `most` times."""

    kind = "agent.continued"
    agent: str
    count: int
    most: int
    open: int


class HistoryCompacted(EventData, frozen=True, kw_only=True):
    """A conversation came near its model's window; its older turns were replaced by a summary."""

    kind = "history.compacted"
    agent: str
    turns: int
    tokens: int
    summary_tokens: int


# --- questions --------------------------------------------------------------------------------------------


class QuestionAsked(EventData, frozen=True, kw_only=True):
    """A person is needed. The envelope's `id` is the question's id."""

    kind = "question.asked"
    question: Json


class QuestionAnswered(EventData, frozen=True, kw_only=True):
    """A question has its answer; `by` says whose."""

    kind = "question.answered"
    value: Json
    by: str


class QuestionExpired(EventData, frozen=True, kw_only=True):
    """A question was closed without an answer (`reason`: timeout, cancelled, nobody)."""

    kind = "question.expired"
    reason: str


class JournalCheckpoint(EventData, frozen=True, kw_only=True):
    """Everything up to here is on disk."""

    kind = "journal.checkpoint"
    step: int


def _payloads() -> dict[str, type[EventData]]:
    return {sub.kind: sub for sub in EventData.__subclasses__()}


KINDS: dict[str, type[EventData]] = _payloads()
"""Every kind of event, with the struct of its `data`."""

TERMINAL = frozenset({"run.finished", "run.failed", "run.cancelled"})
"""Exactly one of these ends every run's stream."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of one event.

    Attributes:
        seq: 1, 2, 3, ... within the run, without gaps.
        ts: when, in UTC.
        run: id of the run.
        actor: path of the actor it is about; `parent` is that of its parent.
        kind: dotted name of the kind; always `data.kind`.
        id: of the thing this is about, where several events belong together (a question, a tool call).
        corr: id of the message or event that caused this one, if that is known.
        data: the payload.
    """

    seq: int
    ts: datetime
    run: str
    actor: str
    kind: str
    data: EventData
    parent: str = ""
    id: str = ""
    corr: str = ""


_encoder = msgspec.json.Encoder()


def to_wire(event: Event) -> dict[str, Json]:
    """The event as plain JSON values, `schema_version` first."""
    wire: dict[str, Json] = {"schema_version": SCHEMA_VERSION}
    wire.update(msgspec.to_builtins(event))
    return wire


def encode(event: Event) -> bytes:
    """The event as one line of JSON, without the newline."""
    return _encoder.encode(to_wire(event))


def json_schema() -> dict[str, Json]:
    """JSON Schema (2020-12) of one event on the wire; `data` depends on `kind`."""
    schemas, components = msgspec.json.schema_components(list(KINDS.values()), ref_template="#/$defs/{name}")
    text = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard event",
        "type": "object",
        "required": ["schema_version", "seq", "ts", "run", "actor", "kind", "data"],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "seq": {"type": "integer", "minimum": 1},
            "ts": {"type": "string", "format": "date-time"},
            "run": text,
            "actor": text,
            "parent": text,
            "kind": {"enum": sorted(KINDS)},
            "id": text,
            "corr": text,
            "data": {"type": "object"},
        },
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"data": schema}}}
            for kind, schema in zip(KINDS, schemas, strict=True)
        ],
        "$defs": components,
    }
