"""What deciders want done: the other half of `messages`.

A decider (`actors/engine`) gets a message and answers with a list of these. The driver carries them out in their
order. `Work` takes its time: each is an actor of its own, whose result comes back as a message with the same `key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .chat import Turn
from .events import EventData
from .failure import Failure


class Effect(msgspec.Struct, frozen=True, tag=True):
    """Base of all effects."""


class Work(Effect, frozen=True, kw_only=True):
    """Something that takes its time, done by an actor below the driver's.

    Attributes:
        key: of its result; no two that are under way have the same.
        name: of its actor; made unique if it is taken.
        lane: of those on the same lane one is under way at a time, in the order in which they came.
    """

    key: int
    name: str
    lane: str | None = None


class InPlace(Work, frozen=True, kw_only=True):
    """Something that takes its time, done by the driver itself in the task of its own actor: its events are about that
    actor, and mail waits meanwhile. One at a time; it ends before the next message is taken.
    """

    name: str = ""


class RunNode(Work, frozen=True, kw_only=True):
    """Run a node of a graph.

    Attributes:
        node: its id.
        visit: how often it was entered, this time included.
        state: what it works on.
        item: the index of the map item that it runs for.
    """

    node: str
    visit: int
    state: Mapping[str, Any]
    item: int | None = None


class RunTask(Work, frozen=True, kw_only=True):
    """Run a task of a batch: the one of number `key`, from 0."""


class CallModel(InPlace, frozen=True, kw_only=True):
    """Ask the model of a conversation for its reply to these turns."""

    messages: tuple[Turn, ...]


class CallTool(Work, frozen=True, kw_only=True):
    """Play one call of a model.

    Attributes:
        call: its id.
        tool: name of the tool.
        arguments: they fit the tool's schema.
    """

    call: str
    tool: str
    arguments: dict[str, Any]


class Answer(Effect, frozen=True):
    """Tell the actor of a call, which waits for it, the call's result; or what is wrong with it if it has failed."""

    key: int
    value: Any
    failed: bool = False


class Spawn(Effect, frozen=True, kw_only=True):
    """Start a child agent: `ChildEnded` is told when it has ended, however that comes.

    Attributes:
        id: its own.
        agent: its name.
        prompt: what it is told.
        timeout: seconds it has, or None.
    """

    id: str
    agent: str
    prompt: str
    timeout: float | None = None


class CancelChild(Effect, frozen=True):
    """Interrupt the child agent of this id."""

    id: str


class AnswerQuestion(Effect, frozen=True):
    """Answer the question of this id, which a child has asked; `EscalationClosed` tells what came of that."""

    question: str
    value: str | list[str]


class Summarize(InPlace, frozen=True, kw_only=True):
    """Have a model write a summary of the first turns of a conversation, which it takes the place of."""

    turns: tuple[Turn, ...]


class WholeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call of `tool`, as text."""

    tool: str
    text: str


class KeepResults(InPlace, frozen=True, kw_only=True):
    """Write down these results, of which only beginning and end stay in a conversation."""

    results: tuple[WholeResult, ...]


class LookAround(InPlace, frozen=True, kw_only=True):
    """Look whether the tools that a conversation may call are others by now."""


class SetTimer(Effect, frozen=True):
    """Tell `TimerFired(name)` after so many seconds."""

    name: str
    seconds: float


class WhenIdle(Effect, frozen=True):
    """Tell `Idle(name)` as soon as no mail waits and nothing is paused. A second one takes the place of the first."""

    name: str


class Emit(Effect, frozen=True):
    """Publish an event: about the driver's actor, or about the one that did the work `about`, which has just failed.

    Attributes:
        id: of the event, where others refer to it.
    """

    event: EventData
    about: int | None = None
    id: str = ""


class Reject(Effect, frozen=True):
    """A message is not for this decider: it is a dead letter."""

    message: Any
    reason: str


class Finish(Effect, frozen=True):
    """It is over; what is still under way is interrupted.

    Attributes:
        result: what `drive` returns.
        failure: what it raises instead.
    """

    result: Any = None
    failure: Failure | None = None
