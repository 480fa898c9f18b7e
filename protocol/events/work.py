"""Events of the work itself: graphs, models and tools, agents."""

from __future__ import annotations

import msgspec

from ..kernel.events import EventData

# --- graphs ----------------------------------------------------------------------------------------------


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


# --- models and tools ------------------------------------------------------------------------------------


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A request goes out. `messages` is their number, `tools` the names offered."""

    kind = "llm.request"
    model: str
    messages: int
    tools: list[str] = msgspec.field(default_factory=list)
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
    """An answer is complete. `cached_tokens` are part of `input_tokens`."""

    kind = "llm.response"
    model: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    stop: str = ""
    cached_tokens: int = 0


class LlmRetry(EventData, frozen=True, kw_only=True):
    """A transient error; the next try starts after `wait` seconds."""

    kind = "llm.retry"
    model: str
    attempt: int
    wait: float
    error: str


class LlmFailed(EventData, frozen=True, kw_only=True):
    """A request is given up: the last error, of that `code`. One that is interrupted has no event of its own."""

    kind = "llm.failed"
    model: str
    error: str
    code: str


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


# --- agents ----------------------------------------------------------------------------------------------


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
    """Somebody (`by`) wrote to an agent at work; its model reads the `text` with the next request."""

    kind = "agent.told"
    agent: str
    text: str
    by: str = ""


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
