"""Messages to the actors of a run, in addition to the kernel's own (`protocol/kernel/messages`).

The messages to deciders are also the stored form of a durable run (`journal`): they are arrays with a number as tag.
So a number is never reused for another message, and a new field is added last, with a default. `effects` has the
output of deciders.

A message reports an error as a `Failure`. An exception cannot be part of a message: it has stack frames, and no other
process could read it. A `Failure` has the parts that decisions and users need: the names of the error's class and base
classes, its text, and its attributes. `restore` makes an error of the nearest class that this process knows, so
`except UpstreamError` works the same before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from .chat import ChatReply, Content, Tool, ToolCall, Turn
from .errors import CallboardError, kinds
from .kernel.messages import Down, Message
from .kernel.questions import Question
from .outcome import ChildRecord, ErrorReport, Status

LONGEST_CAUSE = 500
"""Maximum of characters of a cause's text."""


class Failure(msgspec.Struct, frozen=True):
    """Recorded error.

    Attributes:
        kinds: names of its class and base classes up to `CallboardError`, the most derived first.
        text: `str` of the error.
        attributes: its instance attributes (`code`, `exit_code`, `node`, ...), including notes with its cause.
    """

    kinds: tuple[str, ...]
    text: str
    attributes: dict[str, Any] = {}

    @classmethod
    def of(cls, error: CallboardError) -> Failure:
        """Return an error as data."""
        kinds = tuple(kind.__name__ for kind in type(error).__mro__ if issubclass(kind, CallboardError))
        attributes = dict(error.__dict__)
        if (cause := error.__cause__) is not None:
            told = f"caused by {type(cause).__name__}: {cause}"[:LONGEST_CAUSE]
            attributes["__notes__"] = [*attributes.get("__notes__", ()), told, *getattr(cause, "__notes__", ())]
        return cls(kinds, str(error), attributes)

    def restore(self) -> CallboardError:
        """Return an error of the nearest known class, with the same text and attributes."""
        known = {kind.__name__: kind for kind in reversed(list(kinds()))}
        kind = next((known[name] for name in self.kinds if name in known), CallboardError)
        # `__init__` is not called: its further arguments are among the attributes.
        error = kind.__new__(kind, self.text)
        error.__dict__.update(self.attributes)
        return error


__all__ = ["Down", "Message"]  # re-exported from `kernel.messages`


class PersonSays(Message, frozen=True, kw_only=True, tag=31, array_like=True):
    """Message of the user to a running agent; its model reads it with the next request.

    Attributes:
        text: text of the message.
        by: name of the user.
    """

    text: str
    by: str = ""


# --- results of a decider's work (see `actors/engine`) ------------------------------------------------------


class WorkDone(Message, frozen=True):
    """Base of the results of work: `key` is the number that the decider assigned to it."""

    # Fields of a base come first in the stored array. A further one, here or in `FromBelow`, would shift the fields of
    # every subclass in existing journals.
    key: int


class WorkFailed(WorkDone, frozen=True, kw_only=True, tag=11, array_like=True):
    """Work without a result: its actor crashed, or was cancelled from outside.

    Attributes:
        failure: the crash, or the cancellation.
        crashed: True for a crash.
        seconds: duration.
    """

    failure: Failure
    crashed: bool = False
    seconds: float = 0.0


class Interrupted(WorkDone, frozen=True, kw_only=True, tag=12, array_like=True):
    """Work that was interrupted because the decider finished or was ended. The decider can no longer react.

    Attributes:
        seconds: duration until the interruption.
    """

    seconds: float


class GraphBegun(Message, frozen=True, kw_only=True, tag=1, array_like=True):
    """Start of a graph: `prompt` becomes `initial_prompt`, `state` replaces keys of `initial_state`."""

    prompt: str
    state: dict[str, Any] = msgspec.field(default_factory=dict)


class StateSet(Message, frozen=True, kw_only=True, tag=6, array_like=True):
    """State of a fork: the user has set these keys of a graph's state, and nodes that were under way start again."""

    state: dict[str, Any]


class Follows(Message, frozen=True):
    """Base of a decider's first message that is stored empty: it is large, and its contents are known on recovery."""

    def emptied(self) -> Message:
        """Return the message without its contents."""
        raise NotImplementedError


class MapBegun(Follows, frozen=True, kw_only=True, tag=2, array_like=True):
    """Start of a map over these items, with this state."""

    items: list[Any]
    state: Mapping[str, Any]

    def emptied(self) -> Message:
        return MapBegun(items=[], state={})


class MapEnded(Message, frozen=True, kw_only=True, tag="MapEnded"):
    """Result of a map: results of its items in order, and failures that its nodes survived without the author's
    consent.
    """

    collected: list[Any]
    unaccepted: tuple[Failure, ...] = ()


class NodeDone(WorkDone, frozen=True, kw_only=True, tag=10, array_like=True):
    """Exit of a graph's node, after success or failure.

    Attributes:
        node: its id.
        writes: state keys that it set.
        targets: the nodes that follow on its lane; None after an error that fails the run.
        output: its primary result.
        failure: its failure, also if that was tolerated.
        unaccepted: failures, of the node or below it, that it survived without the author's consent.
        seconds: duration.
    """

    node: str
    writes: dict[str, Any]
    targets: tuple[str, ...] | None
    output: Any = None
    failure: Failure | None = None
    unaccepted: tuple[Failure, ...] = ()
    seconds: float = 0.0


class BatchBegun(Message, frozen=True, kw_only=True, tag=5, array_like=True):
    """Start of a batch with this number of tasks; `with_vars` has the numbers of tasks with their own variables."""

    tasks: int
    with_vars: frozenset[int] = frozenset()


class TaskEnded(WorkDone, frozen=True, kw_only=True, tag=18, array_like=True):
    """End of a batch's task, whose result is on disk.

    Attributes:
        status: status of its outcome; a `cancelled` task has no result.
        error: error of its run.
        exit_code: exit code that its run would have had.
        lost: reason why its result could not be stored, or None.
    """

    status: Status
    error: ErrorReport | None = None
    exit_code: int = 0
    lost: str | None = None


class Todo(msgspec.Struct, kw_only=True):
    """Item of a todo list; `id` counts from 1."""

    id: int
    desc: str
    done: bool = False


class Todos(msgspec.Struct, kw_only=True):
    """Todo list of an agent, which persists from turn to turn: a goal, and the steps to it."""

    goal: str = ""
    items: list[Todo] = []


class Shortening(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Conditions under which the history of a conversation is compressed.

    Attributes:
        threshold: number of tokens above which it is compressed; None for never.
        keep_last: number of turns that are not compressed.
        window: window of its model in tokens; None if unknown.
        fixed: approximate tokens of each request besides the history.
        model: model of the conversation.
    """

    threshold: int | None = None
    keep_last: int | None = None
    window: int | None = None
    fixed: int = 0
    model: str = ""


class ConversationBegun(Message, frozen=True, tag=3, array_like=True):
    """Start of a conversation: a model is to reply to these turns.

    Attributes:
        todos: its todo list.
        shortening: conditions at the start; a resumed run, perhaps with another model, was compressed under them.
    """

    turns: tuple[Turn, ...]
    todos: Todos | None = None
    shortening: Shortening | None = None


class CallsBegun(Message, frozen=True, tag=4, array_like=True):
    """Start of a sequence of tool calls without a model."""

    calls: tuple[ToolCall, ...]


Stop: TypeAlias = Literal["done", "handed_out", "todo_limit", "todo_stuck"]
"""Reason for the end of a conversation: the model calls no more tools; it calls a tool that the caller of the run
executes; or the todo list has open items, and the agent has reached its limit of continuations, or makes no progress.
"""


class ConversationEnded(Message, frozen=True, tag="ConversationEnded"):
    """Result of a conversation: the model's reply to its last input, and the reason for the end."""

    text: str
    stop: Stop


class Replied(WorkDone, frozen=True, kw_only=True, tag=13, array_like=True):
    """Reply of a model, with its calls."""

    reply: ChatReply


class FamilyCalled(Message, frozen=True, kw_only=True, tag=30, array_like=True):
    """Permitted call of a tool that the decider executes itself (`todo__add`).

    Attributes:
        key: key of the call's work.
        name: name of the tool.
        arguments: arguments, which fit the tool's schema.
        token: eight random hex digits, for the ids of children started by the call.
        unknown: reason why no agent has the name in the arguments, or None.
        turns, tool_calls: present counts of the child named in the arguments.
    """

    key: int
    name: str
    arguments: dict[str, Any]
    token: str = ""
    unknown: str | None = None
    turns: int = 0
    tool_calls: int = 0


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text of a teammate."""

    content: str


class TaskCompleted(msgspec.Struct, frozen=True, tag="task_completed"):
    """End of a child; `task_id` is its task in the queue, or its own id without a task."""

    task_id: str
    summary: str


class ShutdownRequest(msgspec.Struct, frozen=True, tag="shutdown_request"):
    """Request to a child to finish."""

    reason: str


class ShutdownApproved(msgspec.Struct, frozen=True, tag="shutdown_approved"):
    """Consent to a `ShutdownRequest`."""


Payload: TypeAlias = Text | TaskCompleted | ShutdownRequest | ShutdownApproved


class TeamMessage(Message, frozen=True, kw_only=True, tag=32, array_like=True):
    """Team message to an agent (see `actors/work/team_messages`).

    Attributes:
        sender: name of the sending agent for the reader.
        payload: contents.
        written: time.
    """

    sender: str
    payload: Payload
    written: datetime

    def for_model(self) -> dict[str, Any]:
        """Return the message in the form that a model reads."""
        return {
            "from": self.sender,
            "payload": msgspec.to_builtins(self.payload),
            "timestamp": self.written.isoformat(timespec="seconds"),
        }


class FromBelow(Message, frozen=True, kw_only=True):
    """Base of the messages to a conversation from actors that work for it. They always fit into the mailbox.

    Attributes:
        late: True if the conversation is over and cannot react.
    """

    late: bool = False


class Partial(FromBelow, frozen=True, kw_only=True, tag=33, array_like=True):
    """Text of a reply that was interrupted."""

    text: str


class ChildEnded(FromBelow, frozen=True, kw_only=True, tag=34, array_like=True):
    """End of a child agent.

    Attributes:
        record: its record.
        failures: failures that it survived without an author's consent.
        at: time.
        token: eight random hex digits, for the ids of children started by the reaction.
    """

    record: ChildRecord
    failures: tuple[Failure, ...] = ()
    at: datetime
    token: str


class EscalationNoted(FromBelow, frozen=True, kw_only=True, tag=35, array_like=True):
    """Question of a child that its parent's model may answer.

    Attributes:
        id: id of the question for the model.
        agent: the child that asked it, or passed it on.
        question: the question.
    """

    id: str
    agent: str
    question: Question


class EscalationClosed(FromBelow, frozen=True, kw_only=True, tag=36, array_like=True):
    """End of a child's question (`EscalationNoted`).

    `answered` is True if this agent answered it, False if another party did, or if it was withdrawn or timed out.
    """

    id: str
    answered: bool


class ServersRestarted(FromBelow, frozen=True, kw_only=True, tag=39, array_like=True):
    """Notice to a resumed run: the MCP servers that it has used are now other instances.

    Attributes:
        servers: names of the servers, whose state is lost.
    """

    servers: tuple[str, ...]


class CallAnswered(Message, frozen=True, tag="CallAnswered"):
    """Result of a call that the decider executes (`FamilyCalled`), or its error if `failed`; for the call's actor."""

    value: Any
    failed: bool = False


class ToolDone(WorkDone, frozen=True, kw_only=True, tag=14, array_like=True):
    """Result of a tool call."""

    content: Content


class Summarized(WorkDone, frozen=True, kw_only=True, tag=15, array_like=True):
    """Summary of a conversation's first turns."""

    summary: str


class ResultsStored(WorkDone, frozen=True, kw_only=True, tag=16, array_like=True):
    """Files with the results of calls, in order; "" for a result that could not be stored."""

    files: tuple[str, ...]


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """Tool that a conversation was offered after its start; see `work/tools/tool`.

    Attributes:
        name: name in calls.
        listed: True if the model is offered it. It may call unlisted ones if it knows their names.
    """

    name: str
    spec: Tool
    origin: Literal["builtin", "file", "function", "family", "mcp"]
    ordered: bool
    elsewhere: bool
    waits: bool
    synonyms: dict[str, str]
    listed: bool


class ToolsChecked(WorkDone, frozen=True, kw_only=True, tag=17, array_like=True):
    """Changes of a conversation's environment.

    Attributes:
        offered: all tools that may be called from now on; None for no change.
    """

    offered: tuple[OfferedTool, ...] | None = None


class TimerFired(Message, frozen=True, tag=37, array_like=True):
    """End of a timer set by a decider; `name` is the decider's name for it."""

    name: str


class Idle(Message, frozen=True, tag=38, array_like=True):
    """No mail waits, and nothing is paused; `name` is the name in the decider's `WhenIdle`."""

    name: str
