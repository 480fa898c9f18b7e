"""Events of runs: one typed stream per run.

Everything that shows, stores or forwards a run reads this stream: terminal output, JSON lines, websocket, journal,
traces. The envelope is `Event`. Its `data` is a struct whose class determines the `kind`:

    {"schema_version":1,"seq":7,"ts":"2026-11-03T10:00:00.123456Z","run":"run-7f3a","actor":"/run-7f3a/research/plan#2",
     "parent":"/run-7f3a/research","kind":"node.entered","data":{"node":"plan","type":"llm","visit":2}}

`seq` counts from 1 without gaps within a run. Kinds may be added at any time; a reader skips unknown ones. Fields are
added, never renamed: a renamed field would need a new `schema_version`.

The envelope, and the kinds of the kernel, are in `protocol/kernel/events`. `decode` reads events back.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..kernel.events import *  # noqa: F403 - the kinds of the kernel are kinds of runs as well
from ..kernel.events import EventData, Json
from .llm import *  # noqa: F403 - so are the kinds of requests to models

TERMINAL = frozenset({"run.finished", "run.failed", "run.cancelled"})
"""Final kinds: exactly one of them ends every run's stream."""


class RunStarted(EventData, frozen=True, kw_only=True):
    """Always the first event. `target` is what the user named, `name` what the file calls itself.

    `model` is what answers wherever no node names its own (None if that is nowhere); where it was not chosen, `why`
    says how it came to be. `sandbox` is the profile that its processes are held to.
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
    """Follows `run.started` where the run goes on that an earlier process was killed in, or is a fork of another.

    Attributes:
        life: how many processes have played it, this one included.
        rows: what is on disk of it.
        after: the number of the last event before that the run's log has, 0 if it has none; those that were told after
            it are lost. Numbers go on at a billion for each life.
        forked_from: the run that it has its first rows from, of a fork; forked_at: how many of them.
    """

    kind = "run.resumed"
    life: int
    rows: int
    after: int = 0
    forked_from: str = ""
    forked_at: int = 0


class RunDormant(EventData, frozen=True, kw_only=True):
    """A durable run waits for people alone, and is played no more until an answer comes (`run.resumed`).

    Told to what listens in the process; the run's own events know nothing of it.
    """

    kind = "run.dormant"


class RunPlaced(EventData, frozen=True, kw_only=True):
    """A part of the run is played elsewhere in the cluster, as a run of its own.

    Attributes:
        part: the id of that run.
        agent: name of the agent; of an item of a map, the node and the item's number.
    """

    kind = "run.placed"

    part: str
    agent: str


class CallUnknown(EventData, frozen=True, kw_only=True):
    """A call or a script was under way when an earlier process of the run was killed: its outcome is unknown.

    Attributes:
        what: the tool, or the script.
        then: what comes of it: it is made `again`, the model is `told`, it is left out (`skipped`), or `failed`.
    """

    kind = "call.unknown"
    what: str
    then: Literal["again", "told", "skipped", "failed"]


class RunFinished(EventData, frozen=True, kw_only=True):
    """The run has its result. `outcome` is the object that `-o json` prints."""

    kind = "run.finished"
    outcome: Json


class RunFailed(EventData, frozen=True, kw_only=True):
    """The run failed; `outcome.error` says why. Its `output` is empty unless it went on over `failures` to its end."""

    kind = "run.failed"
    outcome: Json


class RunCancelled(EventData, frozen=True, kw_only=True):
    """The run was stopped from outside."""

    kind = "run.cancelled"
    outcome: Json


class JournalCheckpoint(EventData, frozen=True, kw_only=True):
    """Everything up to here is on disk."""

    kind = "journal.checkpoint"
    step: int


class McpServerStarting(EventData, frozen=True, kw_only=True):
    """An MCP server is started: in `wait` seconds, if it failed before. Told as `mcp.started` is."""

    kind = "mcp.starting"
    server: str
    wait: float = 0.0


class McpServerStarted(EventData, frozen=True, kw_only=True):
    """An MCP server was started and speaks revision `protocol`. Told by its actor and on the run that wanted it."""

    kind = "mcp.started"
    server: str
    version: str
    protocol: str
    seconds: float
    tools: int


class McpServerStopped(EventData, frozen=True, kw_only=True):
    """An MCP server has ended: as it should (`error` is empty), or by itself."""

    kind = "mcp.stopped"
    server: str
    error: str = ""


class McpServerFailed(EventData, frozen=True, kw_only=True):
    """An MCP server could not be started."""

    kind = "mcp.failed"
    server: str
    error: str


class KnowledgeBuilding(EventData, frozen=True, kw_only=True):
    """How far the building of a knowledge base is; told a few times a second at most.

    `phase` is `pull` (the model's weights come: bytes), `read` (sources), `embed` or `index` (chunks); `total` is None
    where it is not known.
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
    """Something was looked up. `query` is the length of the query in characters, not its text."""

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

    `error` is what ended it before an end node, or the first failure that it went on over although the file accepts
    none there; `code` is its stable code.
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
    """A node ended; `next` is where its lane goes. With `error` (and `code`) it failed, and was routed all the same."""

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
    """A tool call (or a script node's process) starts. `arguments` is their JSON text, its middle left out if long.

    `origin` says where the tool comes from: `builtin`, `file`, `function`, `family` (what agents are given), `mcp`.
    """

    kind = "tool.call.started"
    tool: str
    arguments: str = ""
    origin: str = "builtin"


class ToolDelta(EventData, frozen=True, kw_only=True):
    """A line that a tool printed while it works."""

    kind = "tool.call.delta"
    tool: str
    text: str


class ToolProgress(EventData, frozen=True, kw_only=True):
    """How far a tool call has come; `total` is in the same unit as `progress`, if it is known."""

    kind = "tool.call.progress"
    tool: str
    progress: float
    total: float | None = None
    message: str | None = None


class FileChanged(EventData, frozen=True, kw_only=True):
    """A tool of ours has changed a file: `how` is `created`, `changed` or `removed`; of a directory that was removed,
    the directory alone. `added` and `removed` count lines; null where there are none, or the file is long. `diff` is
    what has changed, 8,000 characters at most; "" where that may not be shown, or is no text.
    """

    kind = "file.changed"
    tool: str
    path: str
    how: str
    added: int | None = None
    removed: int | None = None
    diff: str = ""


class ToolFinished(EventData, frozen=True, kw_only=True):
    """A tool call ended; `status` is the process' exit status where it is a process.

    `result` is what a model's call came to, as text, its middle left out if long; `code` that of the error.
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

    With `priced` (`node_priced`) false, replies whose price is not known are not in the cost.
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
    """An agent begins its loop; `tools` are the names it is offered. `child` is its id, if an agent spawned it."""

    kind = "agent.started"
    agent: str
    depth: int = 0
    tools: list[str] = msgspec.field(default_factory=list)
    child: str | None = None


class AgentFinished(EventData, frozen=True, kw_only=True):
    """An agent's loop ended; `stop` says why (`done`, `handed_out`, `todo_limit`, `todo_stuck`), else `error` does."""

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
    """A person or program (`by`) wrote to an agent at work; its model reads the `text` with the next request."""

    kind = "agent.told"
    agent: str
    text: str
    by: str = ""


class AgentContinued(EventData, frozen=True, kw_only=True):
    """An agent stopped with open todos and is asked to go on, for the `count`th of at most `most` times."""

    kind = "agent.continued"
    agent: str
    count: int
    most: int
    open: int


class HistoryCompacting(EventData, frozen=True, kw_only=True):
    """A conversation came near its model's window: a model is asked for a summary of its first `turns` turns. The next
    request would have `tokens`."""

    kind = "history.compacting"
    agent: str
    turns: int
    tokens: int


class HistoryCompacted(EventData, frozen=True, kw_only=True):
    """A conversation came near its model's window, and was shortened: a summary has taken the place of older turns
    (`turns`), or results of tools were cut (`results`). The next request had `tokens`, and has `tokens_now`."""

    kind = "history.compacted"
    agent: str
    turns: int
    tokens: int
    summary_tokens: int
    results: int = 0
    tokens_now: int = 0


KINDS: dict[str, type[EventData]] = {
    payload.kind: payload
    for payload in sorted(EventData.__subclasses__(), key=lambda payload: not payload.kind.startswith("run."))
}
"""Every kind of event, with the struct of its `data`. Kinds of runs are first, because docs/events.md has this order.
"""
