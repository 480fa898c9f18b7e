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
    """Progress of a knowledge base build; emitted at most a few times a second.

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
    """Progress of a tool call; `total` has the unit of `progress`, and is None if unknown."""

    kind = "tool.call.progress"
    tool: str
    progress: float
    total: float | None = None
    message: str | None = None


class FileChanged(EventData, frozen=True, kw_only=True):
    """File changed by a built-in tool: `how` is `created`, `changed` or `removed`; of a directory that was removed,
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
    """Agent with open todos stopped and was told to continue, for the `count`th of at most `most` times."""

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


# `__subclasses__` returns only classes that have been imported. A new module of kinds must be imported above, as `llm`
# is.
KINDS: dict[str, type[EventData]] = {
    payload.kind: payload
    for payload in sorted(EventData.__subclasses__(), key=lambda payload: not payload.kind.startswith("run."))
}
"""Every kind of event, with the struct of its `data`. Kinds of runs are first, because docs/events.md has this order.
"""
