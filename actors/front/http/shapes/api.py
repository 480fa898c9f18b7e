"""Queries, bodies and replies of `/v1` that have no struct elsewhere."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .....protocol.control.method_structs import MOST, Answer, Days, Json, Name, Object, Path, Text
from .....protocol.control.resources import RunInfo, RunStatus, ServerStatus

GROUPS = "^(day|model|agent|key)(,(day|model|agent|key)){0,3}$"
Number = Annotated[int, Meta(ge=0, le=2**53)]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs: of one `status`, older than the run `before`, `limit` at most."""

    status: RunStatus | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: Name | None = None


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Events after number `after`; of a page, `limit` at most."""

    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class ResumeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """With `with_changes` it goes on with its file as it is today, and not as it was when it began."""

    with_changes: bool = False


class RowsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Rows after number `after`, `limit` at most."""

    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ForkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another run with the steps of this one up to a place, and what is different; see `_run/fork`."""

    at: int | Name
    prompt: Text | None = None
    model: Name | None = None
    state: Object = {}
    answers: Annotated[dict[Name, Answer], Meta(max_length=MOST)] = {}
    with_changes: bool = False
    title: Name = ""
    dry_run: bool = False


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run only."""

    run: Name | None = None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last `days`, today included; `by` is `day`, `model`, `agent` or `key`, or several with commas between."""

    by: Annotated[str, Meta(pattern=GROUPS)] = "day,model"
    days: Days = 30


class TargetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: `agent/NAME`, `graph/NAME`, `workflow/NAME`, or a model."""

    target: Path | None = None


class RunsPage(msgspec.Struct, kw_only=True):
    """Runs, newest first: `limit`, fewer if they are long. `next` is the `before` of the next page, if any."""

    runs: list[RunInfo]
    next: str | None = None


class EventsPage(msgspec.Struct, kw_only=True):
    """Page of a run's events; `next` is the `after` of the next page, None on the last one."""

    events: list[dict[str, Json]]
    next: int | None


class CancelReply(msgspec.Struct, kw_only=True):
    """Whether there was something to cancel."""

    run: str
    cancelled: bool


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`yes` or `no` to a confirmation, a list for a checkbox, else a text."""

    value: Answer


class AnswerReply(msgspec.Struct, kw_only=True):
    """The question has its answer."""

    question: str
    answered: bool


class QuestionsPage(msgspec.Struct, kw_only=True):
    """Open questions, oldest first."""

    questions: list[dict[str, Json]]


class Subject(msgspec.Struct, kw_only=True):
    """Who the token stands for, and what they may do."""

    subject: str
    scopes: list[str]


class ModelTold(msgspec.Struct, kw_only=True):
    """A model, or something that is asked like one.

    Attributes:
        id: what to give as `model`.
        owned_by: the client behind a model; `callboard` for agents.
        callboard: what OpenAI has no word for.
    """

    id: str
    owned_by: str
    callboard: dict[str, Json] = {}
    created: int = 0
    object: str = "model"


class ModelsList(msgspec.Struct, kw_only=True):
    """As OpenAI lists models."""

    data: list[ModelTold]
    object: str = "list"


class AgentTold(msgspec.Struct, kw_only=True):
    """An agent that can be run by its name; `problem` says why not, if it can't."""

    name: str
    dialect: str
    description: str = ""
    source: str = ""
    problem: str = ""
    conversation_starters: list[str] = []


class AgentsList(msgspec.Struct, kw_only=True):
    """Every agent, graph and workflow."""

    agents: list[AgentTold]


class RagTold(msgspec.Struct, kw_only=True):
    """A knowledge base."""

    name: str


class RagsList(msgspec.Struct, kw_only=True):
    """Every knowledge base that has a name."""

    rags: list[RagTold]


class RebuildReply(msgspec.Struct, kw_only=True):
    """What a rebuild has found: counts of sources and of chunks."""

    name: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    chunks: int = 0


class Info(msgspec.Struct, kw_only=True):
    """What serves. `uptime` is seconds, `runs` are those under way that the caller may see."""

    name: str
    version: str
    subject: str
    uptime: float
    runs: int


class McpInfo(msgspec.Struct, kw_only=True):
    """The MCP servers, and what their pool did so far."""

    servers: list[ServerStatus]
    counters: dict[str, Json]


class ReloadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which MCP server; all of them, if none is named."""

    server: Name | None = None


class ReloadReply(msgspec.Struct, kw_only=True):
    """The servers that were started anew, or will be when they are wanted."""

    reloaded: list[str]


class NewSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it may be left out.

    Attributes:
        alias: what people call it; no two sessions of an agent have the same.
        agent: answers the prompts; without it the model does.
        rag: a knowledge base that prompts are looked up in.
        model: `client:model`.
        role: how the model answers, where no agent does.
    """

    alias: Name | None = None
    agent: Name | None = None
    rag: Name | None = None
    model: Path | None = None
    role: Name | None = None


class AttachBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is attached, by its name."""

    name: Name


class SessionTold(msgspec.Struct, kw_only=True):
    """A session, as a list shows it."""

    id: str
    alias: str | None = None
    agent: str | None = None
    role: str | None = None
    rag: str | None = None
    model: str | None = None
    title: str | None = None
    owner: str | None = None
    created_at: str | None = None
    last_modified: str | None = None


class SessionDetail(SessionTold, kw_only=True):
    """A session with its messages; `compressed_messages` are those that a summary stands for now."""

    messages: list[dict[str, Json]] = []
    compressed_messages: list[dict[str, Json]] = []


class SessionsPage(msgspec.Struct, kw_only=True):
    """Sessions, newest first."""

    sessions: list[SessionTold]


class CompressReply(msgspec.Struct, kw_only=True):
    """Whether there was enough to shorten."""

    id: str
    compressed: bool


class RoleTold(msgspec.Struct, kw_only=True):
    """A role, as a list shows it.

    Attributes:
        source: `config` for one of the server's user, `library` for one that comes with Callboard.
        kind: what its prompt is: `system prompt`, `embedded prompt`, `few-shot prompt`; `settings` for none.
        arguments: how many it takes behind its name: `translate#it`.
        problem: why it can't be used.
    """

    name: str
    source: str
    kind: str = ""
    description: str = ""
    model: str | None = None
    arguments: int = 0
    problem: str = ""


class RoleDetail(RoleTold, kw_only=True):
    """A role with its file; `warnings` are about that."""

    text: str
    warnings: list[str] = []


class RolesList(msgspec.Struct, kw_only=True):
    """Every role."""

    roles: list[RoleTold]


class RoleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file of a role: front matter, if any, and text."""

    text: Annotated[Text, Meta(description="Markdown with front matter, as docs/roles.md has it.")]
