"""The envelope of an event, and how it is written down."""

from __future__ import annotations

from datetime import datetime

import msgspec

from .data import EventData, Json

SCHEMA_VERSION = 1

TERMINAL = frozenset({"run.finished", "run.failed", "run.cancelled"})
"""Exactly one of these ends every run's stream."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of one event.

    Attributes:
        seq: 1, 2, 3, ... within the run, without gaps.
        ts: when, in UTC.
        run: id of the run.
        actor: path of the actor it is about; `parent` is that of its parent.
        kind: dotted name of the kind; always `data.kind`.
        id: of the thing this is about, where several events belong together (a question, a tool call).
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
    """The event as plain JSON values, `schema_version` first."""
    return {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(event)}


def encode(event: Event) -> bytes:
    """The event as one line of JSON, without the newline."""
    return _OPENING + _encoder.encode(event)[1:]
