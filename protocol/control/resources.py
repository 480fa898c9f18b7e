"""Resources that methods and HTTP routes return: runs, actors, questions, targets, usage, file changes, MCP servers,
model calls.

Times are RFC 3339 in UTC. Fields are added, never renamed.

`ChangedFile` and `Restored` describe file changes by the tools of runs, and an undo. `ServerStatus` is the status of an
MCP server, as `callboard mcp status` shows it. `ModelCall` is a request to a model, as stored next to the run's log;
`ModelCallDetail` also has the request and the reply. Their messages and tools are those of `protocol.chat` as JSON,
except for images and files, of which only the size is stored in `bytes`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..chat import TokenUsage, ToolCall
from ..outcome import ErrorReport

RunStatus = Literal["queued", "running", "waiting", "done", "failed", "cancelled", "lost", "interrupted"]
"""State of a run. `queued`: it waits for a worker of a cluster. `waiting`: a question is open. `lost`: the process was
killed before the run ended. `interrupted`: likewise, or the process was stopped, and the run can be resumed.
"""

ActorKind = Literal["run", "graph", "node", "agent", "tool", "mcp", "process", "actor"]


class RunInfo(msgspec.Struct, kw_only=True):
    """Summary of a run.

    Attributes:
        run: its id.
        target: the name that the caller gave; `name` is that of the file.
        dialect: `graph`, `agent` or `workflow`.
        title: title that the caller gave.
        status: its status.
        owner: the subject it belongs to.
        started, ended: times (RFC 3339).
        seq: number of its newest event.
        model: model of nodes without a model of their own.
        prompt: text of the user.
        session: id of the session it belongs to.
        open_questions: number of unanswered questions.
        input_tokens, output_tokens, cost: so far; USD.
        priced: True if the prices of all used models are known.
        error: reason of its failure.
        output: output of a completed run.
        exit_code: the exit code of `callboard run` for this result.
        life: number of processes that have executed it.
        resumable: True if no process executes it, and `_run/resume` can resume it.
        stuck: True if processes that resumed it died repeatedly, so that no server resumes it automatically.
        parent: the run of which it is a remote child.
        worker: name of the cluster worker that executes it, or executed it last.
        cut: full length in characters of each of `prompt`, `output`, and the message of `error` that is shortened.
            `_run/output` has the whole output.
    """

    run: str
    target: str = ""
    name: str = ""
    dialect: str = ""
    title: str = ""
    status: RunStatus = "running"
    owner: str = ""
    started: str = ""
    ended: str | None = None
    seq: int = 0
    model: str | None = None
    prompt: str = ""
    session: str | None = None
    open_questions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True
    error: ErrorReport | None = None
    output: str = ""
    exit_code: int | None = None
    life: int = 1
    resumable: bool = False
    stuck: bool = False
    parent: str | None = None
    worker: str | None = None
    cut: dict[str, int] = {}

    @property
    def over(self) -> bool:
        """True if no process executes the run; an interrupted run may still be resumed."""
        return self.status not in ("queued", "running", "waiting")


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Journal row of a durable run, as returned by `_run/rows`.

    Attributes:
        seq: its number, from 1.
        path: path of its decider below the run; "" for the run itself.
        at: milliseconds of execution of the run until it was written.
        kind: `began`, `lived`, `over`, `told`, `intends`, `asked`, `answered`, `noted`, `spoilt`.
        name: class of the decider's message, or name of a noted value; "" for other rows.
        value: its contents; long texts are cut.
        cut: number of characters that were cut.
    """

    seq: int
    path: str
    at: int
    kind: str
    name: str = ""
    value: Any = None
    cut: int = 0


class Step(msgspec.Struct, kw_only=True):
    """Step of a durable run: the readable form of a journal row.

    Attributes:
        row: its number, from 1.
        seconds: seconds of execution of the run until this step.
        where: the node, agent or call, from the outside to the inside; "" for the run itself.
        what: kind of step in a word or two.
        text: its contents, shortened.
        question: the id of the question that it asks or answers, or "".
        place: a node of the run's own graph that began right behind it, and its visit (`plan#2`), or "".
    """

    row: int
    seconds: float
    where: str
    what: str
    text: str = ""
    question: str = ""
    place: str = ""


class ActorInfo(msgspec.Struct, kw_only=True):
    """State of a running actor.

    Attributes:
        path, parent, name: its place in the tree; the parent of the topmost is "".
        kind: kind of actor.
        run: id of its run; "" for actors that all runs share.
        state: `starting`, `running`, `waiting`, `stopping`.
        paused: True if it starts no new work, and neither do the actors below it.
        mailbox: number of waiting messages.
        received: number of messages received so far.
        sent: number of messages sent since the tree of actors is watched; 0 while nothing watches it.
        children: number of actors directly below it.
        memory: estimated bytes; for the actor of a process, the memory of the process and of all processes below it.
        since: time of its start; "" if it started before the tree was watched.
        doing: the node, tool or model it is at, since `doing_since`.
        turns, input_tokens, output_tokens, cost: totals of its own requests to models; for a run, of all its actors.
        priced: False if the cost lacks requests with an unknown price.
        restarts: number of restarts by its supervisor.
        events: number of events so far, without pieces of text: a measure of its activity.
        last_event: kind of the newest event about it.
    """

    path: str
    parent: str
    name: str
    kind: ActorKind = "actor"
    run: str = ""
    state: str = "running"
    paused: bool = False
    mailbox: int = 0
    received: int = 0
    sent: int = 0
    children: int = 0
    memory: int = 0
    since: str = ""
    doing: str = ""
    doing_since: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True
    restarts: int = 0
    events: int = 0
    last_event: str = ""


class ActorDetail(ActorInfo, kw_only=True):
    """Actor with the stack of its task, innermost call last, and its newest events, oldest first."""

    stack: str = ""
    recent: list[msgspec.Raw] = []


class TreeChange(msgspec.Struct, kw_only=True):
    """Changes in the tree since the last message: actors in their present state, and paths of removed actors."""

    changed: list[ActorInfo]
    gone: list[str]


class QuestionAsked(msgspec.Struct, tag="asked", tag_field="type"):
    """A question waits for an answer; it is `protocol.kernel.questions.Question` as JSON."""

    question: Any


class QuestionClosed(msgspec.Struct, tag="closed", tag_field="type"):
    """A question is closed; `by` names the user who answered it, or the reason of its withdrawal."""

    question: str
    by: str


class TargetVariable(msgspec.Struct, kw_only=True):
    """Variable of an agent; required if it has no default."""

    name: str
    description: str = ""
    default: str | None = None
    required: bool = False


class TargetInfo(msgspec.Struct, kw_only=True):
    """Agent, graph or workflow that can be started by name.

    Attributes:
        name: `target` for `_run/start`.
        dialect: `graph`, `agent` or `workflow`.
        description: description in its file.
        source: `config` (the configuration directory) or `library` (shipped with Callboard).
        problem: reason why it can't be started as it is; "" for none known.
        model: model in its file; None for the model of the settings, or none.
        variables: variables that the caller may set.
        conversation_starters: prompts that its file suggests to users.
    """

    name: str
    dialect: str
    description: str = ""
    source: Literal["config", "library"] = "config"
    problem: str = ""
    model: str | None = None
    variables: list[TargetVariable] = []
    conversation_starters: list[str] = []


class GraphNode(msgspec.Struct, kw_only=True):
    """A node of a graph."""

    id: str
    type: str
    title: str = ""


class GraphEdge(msgspec.Struct, kw_only=True):
    """A line between two nodes; a `dashed` one is taken by choice or after a failure."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    label: str = ""
    dashed: bool = False


class GraphPicture(msgspec.Struct, kw_only=True):
    """Graph of a run, for drawing; an LLM agent is one node."""

    name: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    starts: list[str] = []


UsageGroup = Literal["day", "model", "agent", "key"]
"""Groupings of usage sums. A day is in UTC; a key is the subject of the caller that owns the run."""


class UsageRow(msgspec.Struct, kw_only=True):
    """Totals of requests to models.

    Attributes:
        day, model, agent, key: the values that the row is grouped by.
        requests: number of answered requests.
        input_tokens: `cached_tokens` of them were read from a provider's cache.
        output_tokens: reasoning included.
        cost: USD, without the cost of the `unpriced` requests.
        unpriced: number of requests with an unknown price.
        priced: True if `cost` is complete.
    """

    # UNSET and not None: msgspec omits it, so a row has exactly the keys that it is grouped by.
    day: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float
    unpriced: int
    priced: bool


class DailyUse(msgspec.Struct, kw_only=True):
    """Use of a daily limit.

    Attributes:
        subject: subject that the limit applies to; "" for all together.
        day: date; it begins at 00:00 UTC.
        max_cost, max_tokens: the limit, in USD and in tokens; None for no limit of this kind.
        cost, tokens: use on this day since the limit was set.
        held_cost, held_tokens: upper bound of the use by requests under way.
        key: key of the limit in config.yaml.
    """

    subject: str
    day: str
    max_cost: float | None
    max_tokens: int | None
    cost: float
    tokens: int
    held_cost: float
    held_tokens: int
    key: str


class UsageReport(msgspec.Struct, kw_only=True):
    """Cost of models in a period.

    Attributes:
        since, until: the first and the last day, which is today.
        by: grouping and order of the rows of `usage`.
        total: totals of all rows.
        daily: use of the daily limits of servers.
    """

    since: str
    until: str
    by: list[UsageGroup]
    usage: list[UsageRow]
    total: UsageRow
    daily: list[DailyUse] = []


# --- file changes by the tools of runs, and their undo ----------------------------------------------------


How = Literal["created", "changed", "removed"]
"""Change of a file, from before the runs to after them."""

Back = Literal["content", "removed", "returned"]
"""Undo of a change: the earlier content was restored, a file created by a run was removed, or a removed file was
restored.
"""


class ChangedFile(msgspec.Struct, kw_only=True):
    """File or directory that runs have changed.

    Attributes:
        path: absolute path.
        how: kind of change.
        kind: type of file, or its former type if it was removed.
        added, removed: numbers of lines; None if unknown, or if it has no lines.
        diff: unified diff of limited length; empty if there is none, for the reason in `note`.
        note: remark about the diff, or the reason why there is none.
    """

    path: str
    how: How
    kind: Literal["file", "link", "directory", "other"] = "file"
    added: int | None = None
    removed: int | None = None
    diff: str = ""
    note: str = ""


class FileBack(msgspec.Struct, kw_only=True):
    """File or directory in its state before the runs, with the action that restored it."""

    path: str
    done: Back


class FileLeft(msgspec.Struct, kw_only=True):
    """File or directory that was not or only partly restored, and the reason."""

    path: str
    why: str


class Restored(msgspec.Struct, kw_only=True):
    """Result of an undo of changes."""

    restored: list[FileBack] = []
    left: list[FileLeft] = []


# --- MCP servers ------------------------------------------------------------------------------------------


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a server of `mcp.json`; a server with several processes has a line for each.

    Attributes:
        name, type, share: as in its entry of the file.
        state: `cold` (not started), `starting`, `leased`, `idle`, or `down` (it failed; it can be tried again in
            `retry_seconds`).
        key: first 12 digits of the key by which it is shared; "" as long as it was not needed.
        by: the run or agent that it is restricted to, if it is not shared by all.
        breaker: `closed`, `open` or `half-open`, see `supervisors/policy`.
        server, version, protocol: name and version that it reported, and the protocol revision in use.
        tools: number of its tools; None if it never ran.
        pid, rss: its process, and the bytes of memory of that process and of all below it.
        uptime: seconds since its start.
        leases: number of leases on it; `pending` is the number of requests under way.
        calls, errors, restarts: totals of all its processes so far.
        last_error: its most recent error.
    """

    name: str
    type: str
    share: str
    state: str
    key: str = ""
    by: str = ""
    breaker: str = "closed"
    retry_seconds: float = 0.0
    server: str = ""
    version: str = ""
    protocol: str = ""
    tools: int | None = None
    pid: int | None = None
    rss: int | None = None
    uptime: float = 0.0
    leases: int = 0
    pending: int = 0
    calls: int = 0
    errors: int = 0
    restarts: int = 0
    last_error: str = ""


# --- requests of a run to models --------------------------------------------------------------------------


CallStatus = Literal["asked", "answered", "failed"]
"""State of a call. `asked`: there is no reply yet, or it was cut off because the call was cancelled or its process
ended.
"""


class FailedTry(msgspec.Struct, kw_only=True, frozen=True):
    """A try of a call that was made again: why, and after how many seconds."""

    error: str
    wait: float = 0.0


class ShownRequest(msgspec.Struct, kw_only=True):
    """Request to a model, independent of the provider.

    Attributes:
        messages: the conversation, oldest first.
        tools: offered to the model, each with its JSON Schema.
        parameters: other fields of the request: temperature, max_tokens, response_schema, ...
    """

    system: str = ""
    messages: list[Any] = []
    tools: list[Any] = []
    parameters: dict[str, Any] = {}


class ShownReply(msgspec.Struct, kw_only=True):
    """Reply of a model. `reasoning` is the reasoning that the provider returns, `stop` the reason of the end."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = []
    stop: str = ""
    usage: TokenUsage = TokenUsage()


class ModelCall(msgspec.Struct, kw_only=True):
    """Summary of a model request with all of its attempts.

    Attributes:
        number: number among the requests of the run, from 1.
        id: id in its events.
        started: time of the first attempt (RFC 3339).
        actor: path of the actor that sent it.
        model: `client:model`.
        messages, tools: number of messages and of tools in it.
        status: see `CallStatus`.
        calls: the names of the tools that the reply calls.
        seconds: time from the first attempt to the reply.
        input_tokens, output_tokens, cost: usage of the reply; the cost in USD, None if the price is unknown.
        error: error with which it failed.
        tries: number of attempts.
    """

    number: int
    id: str = ""
    started: str = ""
    actor: str = ""
    model: str = ""
    messages: int = 0
    tools: int = 0
    status: CallStatus = "asked"
    stop: str = ""
    calls: list[str] = []
    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    error: str = ""
    tries: int = 1


class ModelCallDetail(ModelCall, kw_only=True):
    """Model request with its reply; `failures` are the errors of its retried attempts."""

    request: ShownRequest
    reply: ShownReply | None = None
    failures: list[FailedTry] = []
