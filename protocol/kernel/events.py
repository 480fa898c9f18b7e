"""Envelope of all events, and the event kinds of the kernel: actors, mail, questions and pools.

The layers above define further kinds; `protocol/events` lists all of them. The docstring of each kind is part of the
generated documentation of events.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

SCHEMA_VERSION = 1

Json = Any
"""A JSON value: str, int, float, bool, None, or lists and string-keyed dicts of them."""


class EventData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of all payloads. `kind` is the dotted name that the envelope carries."""

    kind: ClassVar[str] = ""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope of one event.

    Attributes:
        seq: 1, 2, 3, ... within the run, without gaps.
        ts: time, in UTC.
        run: id of the run.
        actor: path of the actor it is about; `parent` is that of its parent.
        kind: dotted name of the kind; always `data.kind`.
        id: id that related events share (of a question, of a tool call).
        corr: id of the message or event that caused this one, if that is known.
        data: the payload.
    """

    seq: int
    ts: datetime
    run: str
    actor: str
    kind: str
    data: EventData
    parent: str = ""
    id: str = ""
    corr: str = ""


_encoder = msgspec.json.Encoder()
_OPENING = b'{"schema_version":%d,' % SCHEMA_VERSION


def to_wire(event: Event) -> dict[str, Json]:
    """Return the event as plain JSON values, `schema_version` first."""
    return {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(event)}


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON, without the newline."""
    # Prepended as bytes: as a field with a default, `omit_defaults` would omit the version. The comma is valid, because
    # every event has further keys.
    return _OPENING + _encoder.encode(event)[1:]


# --- actors and mail -----------------------------------------------------------------------------------------------


class ActorSpawned(EventData, frozen=True, kw_only=True):
    """An actor has its place in the tree."""

    kind = "actor.spawned"


class ActorWaiting(EventData, frozen=True, kw_only=True):
    """An actor waits for an answer (`on` says for what)."""

    kind = "actor.waiting"
    on: str = ""


class ActorBusy(EventData, frozen=True, kw_only=True):
    """An actor that waited works again."""

    kind = "actor.busy"


class ActorPaused(EventData, frozen=True, kw_only=True):
    """The actor and all below it end the step they are in and begin nothing new, until it is resumed."""

    kind = "actor.paused"


class ActorResumed(EventData, frozen=True, kw_only=True):
    """End of a pause of an actor."""

    kind = "actor.resumed"


class ActorRestarted(EventData, frozen=True, kw_only=True):
    """A supervisor started the actor again; `restarts` counts within its intensity period."""

    kind = "actor.restarted"
    error: str
    restarts: int


class ActorStuck(EventData, frozen=True, kw_only=True):
    """An actor did not end within its time; `stack` is the stack of its task. The kernel no longer waits for it."""

    kind = "actor.stuck"
    seconds: float
    stack: str = ""


class ActorStopped(EventData, frozen=True, kw_only=True):
    """Terminal: the actor returned, or was stopped or cancelled (`reason`)."""

    kind = "actor.stopped"
    reason: str = "normal"


class ActorFailed(EventData, frozen=True, kw_only=True):
    """Terminal: the actor crashed."""

    kind = "actor.failed"
    error: str
    code: str = "error"


class DeadLetter(EventData, frozen=True, kw_only=True):
    """Undelivered message: its receiver `to` had ended, or no task waits for the reply."""

    kind = "mail.dead"
    to: str
    message: str
    reason: str


# --- questions ----------------------------------------------------------------------------------------------------


class QuestionAsked(EventData, frozen=True, kw_only=True):
    """A question needs an answer of a user. The envelope's `id` is the question's id."""

    kind = "question.asked"
    question: Json


class QuestionAnswered(EventData, frozen=True, kw_only=True):
    """A question was answered; `by` is the caller who answered it."""

    kind = "question.answered"
    value: Json
    by: str


class QuestionExpired(EventData, frozen=True, kw_only=True):
    """A question was closed without an answer (`reason`: timeout, cancelled, nobody)."""

    kind = "question.expired"
    reason: str


# --- what a root shares, and what goes wrong in it ----------------------------------------------------------------


class ResourceOpened(EventData, frozen=True, kw_only=True):
    """A pool opened a resource (a model server, an index); the actor of this event owns it."""

    kind = "pool.opened"
    key: str
    seconds: float


class ResourceClosed(EventData, frozen=True, kw_only=True):
    """A pool closes a resource (`reason`: idle, lru, room, reload, health, lost, unwanted, closed)."""

    kind = "pool.closed"
    key: str
    reason: str


class Warned(EventData, frozen=True, kw_only=True):
    """Warning for the user; the run continues. `code` is stable, `node` is the node that caused it."""

    kind = "run.warning"
    code: str
    message: str
    node: str | None = None
