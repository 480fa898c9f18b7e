"""Effects: the output of deciders. `messages` has their input.

A decider (`actors/engine`) gets a message and returns a list of effects. The driver executes them in order. `Work`
takes time: a child actor executes each, except `InPlace`, which the driver's own task executes. Its result returns as a
message with the same `key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .chat import Turn
from .events import EventData
from .messages import Failure


class Effect(msgspec.Struct, frozen=True, tag=True):
    """Base of all effects."""


class Work(Effect, frozen=True, kw_only=True):
    """Effect that takes time and is executed by an actor below the driver's.

    Attributes:
        key: key of its result; unique among work under way.
        name: name of its actor; made unique if it is in use.
        lane: work on the same lane is executed one at a time, in order.
    """

    key: int
    name: str
    lane: str | None = None


class InPlace(Work, frozen=True, kw_only=True):
    """Work that the driver executes in the task of its own actor.

    Its events are about that actor, and mail waits meanwhile. One at a time; it ends before the next message is
    received.
    """

    name: str = ""


class RunNode(Work, frozen=True, kw_only=True, tag="RunNode"):
    """Run a node of a graph.

    Attributes:
        node: its id.
        visit: number of entries of the node, this one included.
        state: the state that it reads.
        item: index of the map item that it runs for.
    """

    node: str
    visit: int
    state: Mapping[str, Any]
    item: int | None = None


class RunTask(Work, frozen=True, kw_only=True, tag="RunTask"):
    """Run the task of a batch with the number `key`, from 0."""


class CallModel(InPlace, frozen=True, kw_only=True, tag="CallModel"):
    """Ask the model of a conversation for its reply to these turns."""

    messages: tuple[Turn, ...]


class CallTool(Work, frozen=True, kw_only=True, tag="CallTool"):
    """Execute one tool call of a model.

    Attributes:
        call: id of the call.
        tool: name of the tool.
        arguments: arguments, which fit the tool's schema.
    """

    call: str
    tool: str
    arguments: dict[str, Any]


class AnswerCall(Effect, frozen=True, tag="Answer"):
    """Return the result of a call, or its error if `failed`, to the waiting actor of the call."""

    key: int
    value: Any
    failed: bool = False


class Spawn(Effect, frozen=True, kw_only=True, tag="Spawn"):
    """Start a child agent. `ChildEnded` reports its end, whatever the reason.

    Attributes:
        id: id of the child.
        agent: name of the agent.
        prompt: its prompt.
        timeout: time limit in seconds, or None.
    """

    id: str
    agent: str
    prompt: str
    timeout: float | None = None


class CancelChild(Effect, frozen=True, tag="CancelChild"):
    """Interrupt the child agent with this id."""

    id: str


class AnswerChild(Effect, frozen=True, tag="AnswerQuestion"):
    """Answer the question with this id, asked by a child; `EscalationClosed` reports the result."""

    question: str
    value: str | list[str]


class Summarize(InPlace, frozen=True, kw_only=True, tag="Summarize"):
    """Ask a model for a summary that replaces the first turns of a conversation."""

    turns: tuple[Turn, ...]


class WholeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a call of `tool`, as text."""

    tool: str
    text: str


class KeepResults(InPlace, frozen=True, kw_only=True, tag="KeepResults"):
    """Store these results in files; only their beginnings and ends stay in the conversation."""

    results: tuple[WholeResult, ...]


class CheckTools(InPlace, frozen=True, kw_only=True, tag="LookAround"):
    """Check whether the tools that a conversation may call have changed."""


class SetTimer(Effect, frozen=True, tag="SetTimer"):
    """Send `TimerFired(name)` after this number of seconds."""

    name: str
    seconds: float


class WhenIdle(Effect, frozen=True, tag="WhenIdle"):
    """Send `Idle(name)` when no mail waits and nothing is paused. A second one replaces the first."""

    name: str


class Emit(Effect, frozen=True, tag="Emit"):
    """Publish an event about the driver's actor, or about the actor of the work `about`, which has just failed.

    Attributes:
        id: id of the event, if others refer to it.
    """

    event: EventData
    about: int | None = None
    id: str = ""


class Reject(Effect, frozen=True, tag="Reject"):
    """Reject a message that is not for this decider: it becomes a dead letter."""

    message: Any
    reason: str


class Finish(Effect, frozen=True, tag="Finish"):
    """End the decider; work under way is interrupted.

    Attributes:
        result: return value of `drive`.
        failure: error that it raises instead.
    """

    result: Any = None
    failure: Failure | None = None
