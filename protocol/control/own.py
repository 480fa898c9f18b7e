"""Parameters, results and notifications of Callboard's own methods. Unknown keys are refused, so that typos show."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from ..changes import ChangedFile
from ..mcp.status import ServerStatus
from ..model_calls import ModelCall, ModelCallDetail
from .bounds import MOST, Answer, Json, Name, Object, Path, Paths, Text, Variables
from .things import ActorDetail, ActorInfo, RunInfo, RunStatus, TargetInfo, UsageGroup

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
        title: what lists call it.
        files, attach: paths; need the scope `run:files`.
        knowledge: names of knowledge bases.
        needs: labels that a worker of the cluster must have to play it.
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
    """`_run/get`, `_run/cancel`, `_run/graph`, `_run/restore`."""

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
        method, params: the request whose result is wanted; it is made again.
        start: `from` on the wire: where the part begins, in characters of the result as JSON.
        etag: that of the first part: if the result has changed since then, the answer is an error (`conflict`).
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
    """Result of `_run/start` and `_run/get`."""

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
        next: the `after` of the next page, None where there is none now.
        dropped: how many of the run's first calls are no longer kept.
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
    """`_run/event`."""

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
    """`_actor/tree`: of one run, or of everything the caller may see."""

    run: Name | None = None


class WatchTree(Params, frozen=True):
    """`_actor/subscribe`: changes, gathered for `interval` seconds."""

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
    """`_actor/changed`."""

    subscription: str
    changed: list[ActorInfo]
    gone: list[str]
    memory: int = 0


# --- questions ---------------------------------------------------------------------------------------------


class ListQuestions(Params, frozen=True):
    """`_question/list`: of one run, or all that the caller may see."""

    run: Name | None = None


class AnswerQuestion(Params, frozen=True):
    """`_question/answer`: `yes` or `no` to a confirmation, a list for a checkbox, else a text."""

    question: Name
    value: Answer


class Questions(msgspec.Struct, kw_only=True):
    """Result of `_question/list`, oldest first."""

    questions: list[Any]


class Answered(msgspec.Struct, kw_only=True):
    """Result of `_question/answer`: False if it was answered by another, or withdrawn."""

    answered: bool


class Watching(msgspec.Struct, kw_only=True):
    """Result of `_question/subscribe`; open questions follow as `_question/asked`, then new ones."""

    subscription: str


class Asked(msgspec.Struct, kw_only=True):
    """`_question/asked`."""

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
    """`_mcp/reload`: one server, or all."""

    server: Name | None = None


class Servers(msgspec.Struct, kw_only=True):
    """Result of `_mcp/status`."""

    servers: list[ServerStatus]


class Reloaded(msgspec.Struct, kw_only=True):
    """Result of `_mcp/reload`: names."""

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
        name, version: of this program.
        subject, scopes: who the server takes the caller for.
        protocol: see `VERSION`.
        runs: how many are under way.
        uptime: seconds.
    """

    name: str
    version: str
    subject: str
    scopes: list[str]
    protocol: int
    runs: int
    uptime: float
