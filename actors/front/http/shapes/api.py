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
    """Query of runs: with one `status`, older than the run `before`, at most `limit`."""

    status: RunStatus | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: Name | None = None


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of events after number `after`; a page has at most `limit`."""

    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class ResumeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a resume: with `with_changes` the run uses its file as it is now, not as it was at its start."""

    with_changes: bool = False


class RowsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of journal rows after number `after`, at most `limit`."""

    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ForkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fork of a run: the step up to which the steps are repeated, and the changes; see `_run/fork`."""

    at: int | Name
    prompt: Text | None = None
    model: Name | None = None
    state: Object = {}
    answers: Annotated[dict[Name, Answer], Meta(max_length=MOST)] = {}
    with_changes: bool = False
    title: Name = ""
    dry_run: bool = False


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query restricted to one run."""

    run: Name | None = None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of usage in the last `days`, today included; `by` is `day`, `model`, `agent` or `key`, or several separated
    by commas.
    """

    by: Annotated[str, Meta(pattern=GROUPS)] = "day,model"
    days: Days = 30


class TargetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Target of a run: `agent/NAME`, `graph/NAME`, `workflow/NAME`, or a model."""

    target: Path | None = None


class RunsPage(msgspec.Struct, kw_only=True):
    """Runs, newest first: at most `limit`, fewer if they are long. `next` is the `before` of the next page, if there is
    one.
    """

    runs: list[RunInfo]
    next: str | None = None


class EventsPage(msgspec.Struct, kw_only=True):
    """Page of a run's events; `next` is the `after` of the next page, None on the last one."""

    events: list[dict[str, Json]]
    next: int | None


class CancelReply(msgspec.Struct, kw_only=True):
    """Reply to a cancellation: false if the run had already ended."""

    run: str
    cancelled: bool


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer to a question: `yes` or `no` to a confirmation, a list for a checkbox, otherwise a text."""

    value: Answer


class AnswerReply(msgspec.Struct, kw_only=True):
    """Confirmation that the answer was accepted."""

    question: str
    answered: bool


class QuestionsPage(msgspec.Struct, kw_only=True):
    """Open questions, oldest first."""

    questions: list[dict[str, Json]]


class Subject(msgspec.Struct, kw_only=True):
    """Subject and scopes of a token."""

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
    """List of models in OpenAI's format."""

    data: list[ModelTold]
    object: str = "list"


class AgentTold(msgspec.Struct, kw_only=True):
    """Agent that can be run by its name; `problem` is the reason if it can't."""

    name: str
    dialect: str
    description: str = ""
    source: str = ""
    problem: str = ""
    conversation_starters: list[str] = []


class AgentsList(msgspec.Struct, kw_only=True):
    """List of all agents, graphs and workflows."""

    agents: list[AgentTold]


class RagTold(msgspec.Struct, kw_only=True):
    """Named knowledge base."""

    name: str


class RagsList(msgspec.Struct, kw_only=True):
    """List of all named knowledge bases."""

    rags: list[RagTold]


class RebuildReply(msgspec.Struct, kw_only=True):
    """Result of a rebuild: numbers of sources and of chunks."""

    name: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    chunks: int = 0


class Info(msgspec.Struct, kw_only=True):
    """State of the server. `uptime` is in seconds; `runs` is the number of active runs that the caller may see."""

    name: str
    version: str
    subject: str
    uptime: float
    runs: int


class McpInfo(msgspec.Struct, kw_only=True):
    """MCP servers, and the counters of their pool."""

    servers: list[ServerStatus]
    counters: dict[str, Json]


class ReloadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MCP server to restart; without a name all of them."""

    server: Name | None = None


class ReloadReply(msgspec.Struct, kw_only=True):
    """Names of the MCP servers that were restarted, or will be at their next use."""

    reloaded: list[str]


class NewSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a new session, all of them optional.

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
    """Name of the role, agent or knowledge base to set."""

    name: Name


class SessionTold(msgspec.Struct, kw_only=True):
    """Session as an entry of a list."""

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
    """Session with its messages; `compressed_messages` are those that a summary has replaced."""

    messages: list[dict[str, Json]] = []
    compressed_messages: list[dict[str, Json]] = []


class SessionsPage(msgspec.Struct, kw_only=True):
    """Sessions, newest first."""

    sessions: list[SessionTold]


class CompressReply(msgspec.Struct, kw_only=True):
    """Reply to a compression: false if the session was too short."""

    id: str
    compressed: bool


class RoleTold(msgspec.Struct, kw_only=True):
    """Role as an entry of a list.

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
    """Role with its file, and the `warnings` about that file."""

    text: str
    warnings: list[str] = []


class RolesList(msgspec.Struct, kw_only=True):
    """List of all roles."""

    roles: list[RoleTold]


class RoleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Complete file of a role: front matter, if any, and text."""

    text: Annotated[Text, Meta(description="Markdown with front matter, as docs/roles.md has it.")]
