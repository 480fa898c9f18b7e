"""Messages to actors of runs, beside the kernel's own messages (`protocol/kernel/messages`).

What deciders are told is also what a durable run is on disk (`journal`): those messages are arrays with a number as
tag. So a number is never given to another message, and a new field comes last and has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from .chat import ChatReply, Content, Tool, ToolCall, Turn
from .failure import Failure
from .kernel.messages import Down, Message
from .kernel.questions import Question
from .outcome import ChildRecord, ErrorReport, Status

__all__ = ["Down", "Message"]  # of the kernel; what is defined here is public as well


class PersonSays(Message, frozen=True, kw_only=True, tag=31, array_like=True):
    """Sent to an agent at work by a person who watches it; its model reads it with the next request.

    Attributes:
        text: what they say.
        by: who they are.
    """

    text: str
    by: str = ""


# --- messages to deciders about work that they have had done (see `actors/engine`) -------------------------


class WorkDone(Message, frozen=True):
    """Base of the results of work: `key` is the number that the decider gave to it."""

    key: int


class WorkFailed(WorkDone, frozen=True, kw_only=True, tag=11, array_like=True):
    """It came to no result: its actor crashed, or was cancelled from outside.

    Attributes:
        failure: the crash, or that it was cancelled.
        crashed: it was not cancelled.
        seconds: how long it was under way.
    """

    failure: Failure
    crashed: bool = False
    seconds: float = 0.0


class Interrupted(WorkDone, frozen=True, kw_only=True, tag=12, array_like=True):
    """It was under way when the decider finished, or was ended itself. Nothing can be done about it any more.

    Attributes:
        seconds: how long it was under way.
    """

    seconds: float


class GraphBegun(Message, frozen=True, kw_only=True, tag=1, array_like=True):
    """A graph is to run: `prompt` becomes `initial_prompt`, `state` replaces keys of `initial_state`."""

    prompt: str
    state: dict[str, Any] = msgspec.field(default_factory=dict)


class StateSet(Message, frozen=True, kw_only=True, tag=6, array_like=True):
    """Of a fork: a person has set these keys of a graph's state, and nodes that were under way begin again."""

    state: dict[str, Any]


class Follows(Message, frozen=True):
    """Base of what a decider begins with that is kept empty: it is large, and known when the decider begins again."""

    def emptied(self) -> Message:
        """It without what it holds."""
        raise NotImplementedError


class MapBegun(Follows, frozen=True, kw_only=True, tag=2, array_like=True):
    """A map is to run over these items, on this state."""

    items: list[Any]
    state: Mapping[str, Any]

    def emptied(self) -> Message:
        """See `Follows`."""
        return MapBegun(items=[], state={})


class MapEnded(Message, frozen=True, kw_only=True):
    """What a map has come to: the results of its items in their order, and what nodes of them went on over."""

    collected: list[Any]
    unaccepted: tuple[Failure, ...] = ()


class NodeLeft(WorkDone, frozen=True, kw_only=True, tag=10, array_like=True):
    """A node of a graph was left, failed or not.

    Attributes:
        node: its id.
        writes: state keys that it set.
        targets: where its lane goes; None after an error that fails the run.
        output: its primary result.
        failure: what it failed with, also if that was tolerated.
        unaccepted: failures that it, or what it played, went on over without the author's word.
        seconds: how long it was under way.
    """

    node: str
    writes: dict[str, Any]
    targets: tuple[str, ...] | None
    output: Any = None
    failure: Failure | None = None
    unaccepted: tuple[Failure, ...] = ()
    seconds: float = 0.0


class BatchBegun(Message, frozen=True, kw_only=True, tag=5, array_like=True):
    """A batch of so many tasks is to run; `with_vars` are those that have variables of their own, by number."""

    tasks: int
    with_vars: frozenset[int] = frozenset()


class TaskEnded(WorkDone, frozen=True, kw_only=True, tag=18, array_like=True):
    """A task of a batch was run, and its result is on disk.

    Attributes:
        status: that of its outcome; one that was `cancelled` has no result.
        error: what it failed with.
        exit_code: what its run would have exited with.
        lost: why its result could not be kept, or None.
    """

    status: Status
    error: ErrorReport | None = None
    exit_code: int = 0
    lost: str | None = None


class Todo(msgspec.Struct, kw_only=True):
    """One item of a todo list; `id` counts from 1."""

    id: int
    desc: str
    done: bool = False


class Todos(msgspec.Struct, kw_only=True):
    """An agent's todo list, which goes on from turn to turn: what is reached when all is done, and the steps to it."""

    goal: str = ""
    items: list[Todo] = []


class Shortening(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """When the history of a conversation is shortened.

    Attributes:
        threshold: tokens from which on; None for never.
        keep_last: turns that stay then.
        window: tokens that its model takes in; None if that is not known.
        fixed: tokens, roughly, of what each request has beside the history.
        model: the one it is held with.
    """

    threshold: int | None = None
    keep_last: int | None = None
    window: int | None = None
    fixed: int = 0
    model: str = ""


class ConversationBegun(Message, frozen=True, tag=3, array_like=True):
    """A model is to reply to these turns.

    Attributes:
        todos: what is on its todo list.
        shortening: as it was settled then: a run that goes on, perhaps with another model, was shortened by that.
    """

    turns: tuple[Turn, ...]
    todos: Todos | None = None
    shortening: Shortening | None = None


class CallsBegun(Message, frozen=True, tag=4, array_like=True):
    """These calls are to be played."""

    calls: tuple[ToolCall, ...]


Stop: TypeAlias = Literal["done", "handed_out", "todo_limit", "todo_stuck"]
"""Why a conversation is over: the model calls no more tools, or a tool that the caller of the run plays; the todo list
had open items still, and the model has gone on as often as it may, or does nothing any more."""


class ConversationEnded(Message, frozen=True):
    """What a conversation has come to: what the model said to its last input, and why it is over."""

    text: str
    stop: Stop


class Replied(WorkDone, frozen=True, kw_only=True, tag=13, array_like=True):
    """A model's reply, with its calls."""

    reply: ChatReply


class FamilyCalled(Message, frozen=True, kw_only=True, tag=30, array_like=True):
    """A call over what the conversation itself remembers (`todo__add`) may go ahead: the decider answers it.

    Attributes:
        key: of the call's work.
        name: of the tool, by its own name.
        arguments: they fit the tool's schema.
        token: eight random hex digits, for the ids of children that are started now.
        unknown: why there is no agent of the name that the arguments say, or None.
        turns, tool_calls: of the child that the arguments say, until now.
    """

    key: int
    name: str
    arguments: dict[str, Any]
    token: str = ""
    unknown: str | None = None
    turns: int = 0
    tool_calls: int = 0


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words of a teammate."""

    content: str


class TaskCompleted(msgspec.Struct, frozen=True, tag="task_completed"):
    """A child has ended; `task_id` is its task in the queue, or its own id if it has none."""

    task_id: str
    summary: str


class ShutdownRequest(msgspec.Struct, frozen=True, tag="shutdown_request"):
    """Please come to an end."""

    reason: str


class ShutdownApproved(msgspec.Struct, frozen=True, tag="shutdown_approved"):
    """The answer to that."""


Payload: TypeAlias = Text | TaskCompleted | ShutdownRequest | ShutdownApproved


class Letter(Message, frozen=True, kw_only=True, tag=32, array_like=True):
    """A letter of a teammate (see `actors/work/letters`).

    Attributes:
        sender: what its reader calls the agent that wrote it.
        payload: what it says.
        written: when.
    """

    sender: str
    payload: Payload
    written: datetime

    def shown(self) -> dict[str, Any]:
        """As a model reads it."""
        return {
            "from": self.sender,
            "payload": msgspec.to_builtins(self.payload),
            "timestamp": self.written.isoformat(timespec="seconds"),
        }


class FromBelow(Message, frozen=True, kw_only=True):
    """Base of what a conversation is told by what works for it. It always fits into the mailbox.

    Attributes:
        late: the conversation is over, and can do nothing about it any more.
    """

    late: bool = False


class Partial(FromBelow, frozen=True, kw_only=True, tag=33, array_like=True):
    """What the model had said of a reply that does not come to its end."""

    text: str


class ChildEnded(FromBelow, frozen=True, kw_only=True, tag=34, array_like=True):
    """A child agent has ended.

    Attributes:
        record: what has become of it.
        failures: those that it went on over although no author has accepted them.
        at: when.
        token: eight random hex digits, for the ids of children that are started now.
    """

    record: ChildRecord
    failures: tuple[Failure, ...] = ()
    at: datetime
    token: str


class EscalationNoted(FromBelow, frozen=True, kw_only=True, tag=35, array_like=True):
    """A child asks what its parent's model may answer.

    Attributes:
        id: how the model calls the question.
        agent: the child that it came from, or by.
        question: it.
    """

    id: str
    agent: str
    question: Question


class EscalationClosed(FromBelow, frozen=True, kw_only=True, tag=36, array_like=True):
    """Such a question is open no more: `answered` by this agent, else by others, withdrawn or timed out."""

    id: str
    answered: bool


class ServersAnew(FromBelow, frozen=True, kw_only=True, tag=39, array_like=True):
    """The run goes on in another process: these MCP servers, which it has used, are other instances by now.

    Attributes:
        servers: their names; what they remembered is gone.
    """

    servers: tuple[str, ...]


class CallAnswered(Message, frozen=True):
    """Told to the actor of such a call: its result, or what is wrong with it if it has failed."""

    value: Any
    failed: bool = False


class ToolDone(WorkDone, frozen=True, kw_only=True, tag=14, array_like=True):
    """A tool call came to a result."""

    content: Content


class Summarized(WorkDone, frozen=True, kw_only=True, tag=15, array_like=True):
    """The summary of a conversation's first turns."""

    summary: str


class ResultsKept(WorkDone, frozen=True, kw_only=True, tag=16, array_like=True):
    """The files that results of calls were written into, in their order; "" for one that could not be kept."""

    files: tuple[str, ...]


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation knows of a tool that it was offered after it had begun; see `work/tools/tool`.

    Attributes:
        name: as calls have it.
        listed: the model is offered it; it may call the others if it knows of them.
    """

    name: str
    spec: Tool
    origin: Literal["builtin", "file", "function", "family", "mcp"]
    ordered: bool
    elsewhere: bool
    waits: bool
    synonyms: dict[str, str]
    listed: bool


class LookedAround(WorkDone, frozen=True, kw_only=True, tag=17, array_like=True):
    """What has changed around a conversation.

    Attributes:
        offered: all that may be called from now on; None for what there was.
    """

    offered: tuple[OfferedTool, ...] | None = None


class TimerFired(Message, frozen=True, tag=37, array_like=True):
    """The time that a decider has set is over; `name` is what it calls it."""

    name: str


class Idle(Message, frozen=True, tag=38, array_like=True):
    """No mail waits, and nothing is paused; `name` is what the decider calls it."""

    name: str
