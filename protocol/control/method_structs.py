"""Parameters, results and notifications of Callboard's own methods, and the limits of client input.

`StartRun` is the parameters of `_run/start`, `OneRun` its result, and so on; the docstrings name the methods, and
`schema.METHODS` is the table. Unknown keys of parameters are refused, so that typos show.

Every text, list and dictionary in parameters and in bodies of HTTP requests has one of the bounded types below (`Name`,
`Text`, `Paths`, ...) or its own limit, and a test checks all of them. A value of any shape (`Json`) is limited only by
its frame or its body. The server therefore does not retain such a value longer than the request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .resources import (
    ActorDetail,
    ActorInfo,
    ChangedFile,
    ModelCall,
    ModelCallDetail,
    Row,
    RunInfo,
    RunStatus,
    ServerStatus,
    Step,
    TargetInfo,
    UsageGroup,
)

MOST = 10_000
"""Maximum of items in a list, and of keys in a dictionary."""

MOST_CUT = 1_000
"""Maximum of values in `_meta.cut`."""

LONGEST_NAME = 500
"""Maximum of characters in names, ids and titles, which lists show and the server retains."""

Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Path: TypeAlias = Annotated[str, Meta(max_length=8_192)]
"""File path, URL, or pattern of either."""

Value: TypeAlias = Annotated[str, Meta(max_length=1_000_000)]
"""Value of a variable, an environment variable, or a header."""

Text: TypeAlias = Annotated[str, Meta(max_length=10_000_000)]
"""Text of users and models."""

BY_FRAME = {"bounded": "by its frame or body"}
Json: TypeAlias = Annotated[Any, Meta(extra=BY_FRAME)]

Names: TypeAlias = Annotated[list[Name], Meta(max_length=MOST)]
Paths: TypeAlias = Annotated[list[Path], Meta(max_length=MOST)]
Variables: TypeAlias = Annotated[dict[Name, Value], Meta(max_length=MOST)]
Object: TypeAlias = Annotated[dict[Name, Json], Meta(max_length=MOST)]
Objects: TypeAlias = Annotated[list[Object], Meta(max_length=MOST)]
Answer: TypeAlias = Annotated[str, Meta(max_length=1_000_000)] | Annotated[list[Value], Meta(max_length=MOST)]
"""Answer to a question."""


VERSION = 1
"""Version of these methods. Additions do not change it."""


# JavaScript represents integers exactly only up to 2**53.
Start: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
"""Start of a part."""

Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Number of an event, a row or a request; 0 is before the first. Each incarnation of a run begins a billion further on.
"""

PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
"""Entries of a page."""


class Params(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Base of all parameters.

    Attributes:
        meta: `_meta` on the wire: client data such as the id of a trace. It is not read.
    """

    meta: Object = msgspec.field(name="_meta", default={})


class Nothing(Params, frozen=True):
    """No parameters."""


class Done(msgspec.Struct, kw_only=True):
    """Empty result of a method that succeeded."""


# --- runs --------------------------------------------------------------------------------------------------


class StartRun(Params, frozen=True):
    """Parameters of `_run/start`. Options without a description are those of `callboard run`.

    Attributes:
        target: the name of an agent, or a path, for which the scope `run:files` is needed.
        yes, allow: no tool, or not these tools, ask for permission; needs the scope `answer:questions`.
        session: id or alias of the session that the prompt belongs to.
        title: title in lists.
        files, attach: paths; need the scope `run:files`.
        knowledge: names of knowledge bases.
        needs: labels that a worker of the cluster must have to execute it.
        role, role_prompt: as for `callboard ask`: a role by its name, or the text of one; the target is "" then.
    """

    target: Path
    prompt: Text = ""
    model: Path | None = None
    variables: Variables = {}
    state: Object = {}
    answers: Object | Annotated[list[Json], Meta(max_length=MOST)] | None = None
    timeout: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    allow_unpriced: bool = False
    yes: bool = False
    allow: Paths = []
    compat: Name | None = None
    session: Name | None = None
    title: Name = ""
    files: Paths = []
    knowledge: Paths = []
    attach: Paths = []
    role: Name | None = None
    role_prompt: Text | None = None
    needs: Paths = []


class ListRuns(Params, frozen=True):
    """`_run/list`: newest first. `before` is the `next` of the last page."""

    status: Name | None = None
    limit: PageLimit = 100
    before: Name | None = None


class OfRun(Params, frozen=True):
    """`_run/get`, `_run/cancel`, `_run/graph`, `_run/restore`, `_run/delete`."""

    run: Name


class Subscribe(Params, frozen=True):
    """Parameters of `_run/subscribe`: receive every event after number `after`, and all later ones."""

    run: Name
    after: Number = 0


class Unsubscribe(Params, frozen=True):
    """`_run/unsubscribe`, `_actor/unsubscribe`, `_question/unsubscribe`."""

    subscription: Name


class ReadEvents(Params, frozen=True):
    """Parameters of `_run/events`: read a page of events."""

    run: Name
    after: Number = 0
    limit: PageLimit = 1000


class ReadOutput(Params, frozen=True):
    """`_run/output`: `limit` characters of the output of a run that is over, from character `from` on."""

    run: Name
    start: Start = msgspec.field(name="from", default=0)
    # A character takes at most 6 bytes in JSON, so a part fits into a frame of 1 MiB, the usual limit of websocket
    # libraries.
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 100_000


class Output(msgspec.Struct, kw_only=True):
    """Result of `_run/output`; `next` is the `from` of the next part, None at the end; `length` that of the whole."""

    text: str
    next: int | None
    length: int


class ReadPart(Params, frozen=True):
    """Parameters of `_result/part`: read a part of a shortened result.

    Attributes:
        method, params: the request that returned the result; it is executed again.
        start: `from` on the wire: where the part begins, in characters of the result as JSON.
        etag: etag of the first part; if the result has changed since, the method fails (`conflict`).
    """

    method: Name
    params: Object = {}
    start: Start = msgspec.field(name="from", default=0)
    etag: Name | None = None


class Part(msgspec.Struct, kw_only=True):
    """Result of `_result/part`; the concatenated parts are the result as JSON.

    Attributes:
        next: the `from` of the next part, None at the end.
        length: characters of the whole.
        etag: identifies this version of the result.
    """

    part: str
    next: int | None
    length: int
    etag: str


class ReadCalls(Params, frozen=True):
    """Parameters of `_run/calls`: list model requests after number `after`; with `actor`, of it and its descendants."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100
    actor: Path | None = None


class ReadCall(Params, frozen=True):
    """`_run/call`: the request of this number and its reply; without a number the last one."""

    run: Name
    number: int | None = None


class ReadChanges(Params, frozen=True):
    """Parameters of `_run/changes`: list changed files of the run; with `actor`, of it and its descendants."""

    run: Name
    actor: Path | None = None


class Runs(msgspec.Struct, kw_only=True):
    """Result of `_run/list`: `limit` runs, fewer if they are long. `next` is the `before` of the next page, if any."""

    runs: list[RunInfo]
    next: str | None = None


class OneRun(msgspec.Struct, kw_only=True):
    """Result of `_run/start`, `_run/get` and `_run/resume`."""

    run: RunInfo


class Cancelled(msgspec.Struct, kw_only=True):
    """Result of `_run/cancel` and `_actor/cancel`: whether there was something to cancel."""

    cancelled: bool


class Subscribed(msgspec.Struct, kw_only=True):
    """Result of `_run/subscribe`; `seq` is the number of the newest event at this moment."""

    subscription: str
    seq: int


class Unsubscribed(msgspec.Struct, kw_only=True):
    """Result of an unsubscription: True if the subscription existed."""

    unsubscribed: bool


class Events(msgspec.Struct, kw_only=True):
    """Result of `_run/events`; `next` is the `after` of the next page, None at the end of a run that is over."""

    events: list[msgspec.Raw]
    next: int | None


class Calls(msgspec.Struct, kw_only=True):
    """Result of `_run/calls`, oldest first.

    Attributes:
        next: the `after` of the next page; None if there is none yet.
        dropped: number of the run's first calls that are no longer stored.
    """

    calls: list[ModelCall]
    next: int | None
    dropped: int = 0


class OneCall(msgspec.Struct, kw_only=True):
    """Result of `_run/call`."""

    call: ModelCallDetail


class Changes(msgspec.Struct, kw_only=True):
    """Result of `_run/changes`: the files by their paths, and how many more there are."""

    files: list[ChangedFile]
    more: int = 0


class RunEvent(msgspec.Struct, kw_only=True):
    """Notification `_run/event`: one event of a subscribed run."""

    subscription: str
    run: str
    event: msgspec.Raw


class RunLagged(msgspec.Struct, kw_only=True):
    """`_run/lagged`: the subscription is over, the reader was too slow; subscribe again with this `after`.

    `seq` is the number of the newest event.
    """

    subscription: str
    run: str
    after: int
    seq: int


class RunLost(msgspec.Struct, kw_only=True):
    """Notification `_run/lost`: the events from `first` to `last` could not be stored, and are lost."""

    subscription: str
    run: str
    first: int
    last: int


class RunEnded(msgspec.Struct, kw_only=True):
    """Notification `_run/ended`: the last event was sent, and the subscription is over."""

    subscription: str
    run: str
    status: RunStatus


# --- actors ------------------------------------------------------------------------------------------------


class TreeOf(Params, frozen=True):
    """Parameters of `_actor/tree`: list the actors of one run; without `run`, all that the caller may see."""

    run: Name | None = None


class WatchTree(Params, frozen=True):
    """Parameters of `_actor/subscribe`: receive the changes of the tree, gathered for `interval` seconds."""

    run: Name | None = None
    interval: Annotated[float, Meta(ge=0)] = 0.25


class OfActor(Params, frozen=True):
    """`_actor/inspect`, `_actor/pause`, `_actor/resume`, `_actor/cancel`."""

    path: Path


class SendText(Params, frozen=True):
    """`_actor/send`: an agent that works reads this before its next request to the model."""

    path: Path
    text: Text


class Actors(msgspec.Struct, kw_only=True):
    """Result of `_actor/tree`, parents before their children; `memory` is that of the server's process, in bytes."""

    actors: list[ActorInfo]
    memory: int = 0


class OneActor(msgspec.Struct, kw_only=True):
    """Result of `_actor/inspect`."""

    actor: ActorDetail


class Paused(msgspec.Struct, kw_only=True):
    """Result of `_actor/pause`: False if it was paused already."""

    paused: bool


class Resumed(msgspec.Struct, kw_only=True):
    """Result of `_actor/resume`: False if it was not paused itself."""

    resumed: bool


class WatchingTree(msgspec.Struct, kw_only=True):
    """Result of `_actor/subscribe`: the tree as it is; changes follow."""

    subscription: str
    actors: list[ActorInfo]
    memory: int = 0


class ActorsChanged(msgspec.Struct, kw_only=True):
    """Notification `_actor/changed`: changed and new actors, paths of ended ones, and the server's memory in bytes."""

    subscription: str
    changed: list[ActorInfo]
    gone: list[str]
    memory: int = 0


# --- questions ---------------------------------------------------------------------------------------------


class ListQuestions(Params, frozen=True):
    """Parameters of `_question/list`: list the questions of one run; without `run`, all that the caller may see."""

    run: Name | None = None


class AnswerQuestion(Params, frozen=True):
    """`_question/answer`: `yes` or `no` to a confirmation, a list for a checkbox, else a text."""

    question: Name
    value: Answer


class Questions(msgspec.Struct, kw_only=True):
    """Result of `_question/list`, oldest first."""

    questions: list[Any]


class Answered(msgspec.Struct, kw_only=True):
    """Result of `_question/answer`: False if another caller has answered the question, or if it was withdrawn."""

    answered: bool


class Watching(msgspec.Struct, kw_only=True):
    """Result of `_question/subscribe`; open questions follow as `_question/asked`, then new ones."""

    subscription: str


class Asked(msgspec.Struct, kw_only=True):
    """Notification `_question/asked`: a question that waits for an answer."""

    subscription: str
    question: Any


class Closed(msgspec.Struct, kw_only=True):
    """Notification `_question/closed`: `by` names the caller who answered, or the reason of the withdrawal."""

    subscription: str
    question: str
    by: str


class QuestionsLagged(msgspec.Struct, kw_only=True):
    """`_question/lagged`: the subscription is over, the reader was too slow; a new one begins with all open ones."""

    subscription: str


# --- the rest ----------------------------------------------------------------------------------------------


class ReloadServers(Params, frozen=True):
    """Parameters of `_mcp/reload`: reload one server; without `server`, all."""

    server: Name | None = None


class Servers(msgspec.Struct, kw_only=True):
    """Result of `_mcp/status`."""

    servers: list[ServerStatus]


class Reloaded(msgspec.Struct, kw_only=True):
    """Result of `_mcp/reload`: names of the servers that were reloaded."""

    reloaded: list[str]


Days: TypeAlias = Annotated[int, Meta(ge=1, le=36_500)]


class ReadUsage(Params, frozen=True):
    """Parameters of `_usage/read`: read the cost of models in the last `days`, today included."""

    by: Annotated[tuple[UsageGroup, ...], Meta(min_length=1, max_length=4)] = ("day", "model")
    days: Days = 30


class Targets(msgspec.Struct, kw_only=True):
    """Result of `_target/list`."""

    targets: list[TargetInfo]


class ServerInfo(msgspec.Struct, kw_only=True):
    """Result of `_server/info`.

    Attributes:
        name, version: name and version of the server.
        subject, scopes: identity and permissions of the caller.
        protocol: see `VERSION`.
        runs: number of runs under way.
        uptime: seconds.
    """

    name: str
    version: str
    subject: str
    scopes: list[str]
    protocol: int
    runs: int
    uptime: float


# --- sessions ---------------------------------------------------------------------------------------------


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as a list shows it.

    Attributes:
        last_modified: RFC 3339.
        is_autoname: its alias is generated.
        legacy: an older program's, which was not opened here yet.
    """

    id: str
    alias: str | None
    agent: str | None
    last_modified: str
    is_autoname: bool = False
    title: str | None = None
    owner: str | None = None
    created_at: str | None = None
    model: str | None = None
    cwd: str | None = None
    cost: float = 0.0
    role: str | None = None
    legacy: bool = False


class ListSessions(Params, frozen=True):
    """Parameters of `_session/list`: list the sessions of one agent; without `agent`, all."""

    agent: Name | None = None


class OfSession(Params, frozen=True):
    """`_session/get`, `_session/delete`, `_session/empty`, `_session/compress`: an id, or an alias of `agent`'s."""

    session: Name
    agent: Name | None = None


class RenameSession(OfSession, frozen=True, kw_only=True):
    """Parameters of `_session/rename`: give the session the name `alias`."""

    alias: Name


class SetRole(OfSession, frozen=True, kw_only=True):
    """`_session/set_role`: the role in which the model answers from now on, where no agent does; null for none."""

    role: Name | None = None


class ExportSession(OfSession, frozen=True, kw_only=True):
    """Parameters of `_session/export`: return the conversation as a text in this format."""

    form: Literal["markdown", "json"] = "markdown"


class SessionList(msgspec.Struct, kw_only=True):
    """Result of `_session/list`, newest first."""

    sessions: list[SessionMeta]


class OneSession(msgspec.Struct, kw_only=True):
    """Result of `_session/get`, `_session/rename` and `_session/set_role`; `messages` as in the session's file."""

    session: SessionMeta
    messages: list[dict[str, Any]] = []


class Compressed(msgspec.Struct, kw_only=True):
    """Result of `_session/compress`: False if there was too little to shorten."""

    compressed: bool


class Exported(msgspec.Struct, kw_only=True):
    """Result of `_session/export`."""

    text: str


# --- durable runs: their rows and steps, resuming, and forks ----------------------------------------------


class ResumeRun(Params, frozen=True):
    """Parameters of `_run/resume`: resume an `interrupted` run; `with_changes` uses the present version of its file."""

    run: Name
    with_changes: bool = False


class ReadRows(Params, frozen=True):
    """Parameters of `_run/rows`: read the journal rows of a durable run after number `after`."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100


class ReadSteps(Params, frozen=True):
    """Parameters of `_run/steps`: read the numbered steps of a durable run after number `after`."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100


class ForkRun(Params, frozen=True):
    """Parameters of `_run/fork`: start a run from a step of a durable one; also needs the scope `run:agents`.

    Attributes:
        at: the number of a step, a node and its visit (`plan#2`: before it begins), or the id of a question.
        prompt, model, state, answers, with_changes: differences from the original run, as for `callboard fork`.
        title: title in lists; by default that of the forked run.
        dry_run: only list the changes that would be repeated; start nothing.
    """

    run: Name
    at: int | Name
    prompt: Text | None = None
    model: Name | None = None
    state: Object = msgspec.field(default_factory=dict)
    answers: Annotated[dict[Name, Answer], Meta(max_length=MOST)] = msgspec.field(default_factory=dict)
    with_changes: bool = False
    title: Name = ""
    dry_run: bool = False


class Rows(msgspec.Struct, kw_only=True):
    """Result of `_run/rows`; `next` is the `after` of the next page; None if there is none yet."""

    rows: list[Row]
    next: int | None


class Steps(msgspec.Struct, kw_only=True):
    """Result of `_run/steps`; `next` is the `after` of the next page; None if there is none yet."""

    steps: list[Step]
    next: int | None


class Forked(msgspec.Struct, kw_only=True):
    """Result of `_run/fork`.

    Attributes:
        run: the new run; None for a `dry_run`.
        at: number of steps that it begins with.
        again: descriptions of the changes after that step; the fork repeats them.
    """

    run: RunInfo | None
    at: int
    again: list[str]
