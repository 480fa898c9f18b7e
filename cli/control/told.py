"""Events as they come over the wire, made what the renderers know."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ...protocol.events import KINDS, Event


class _Wire(msgspec.Struct):
    seq: int
    ts: datetime
    run: str
    actor: str
    kind: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    parent: str = ""
    id: str = ""
    corr: str = ""


_WIRE = msgspec.json.Decoder(_Wire)


def read_event(line: bytes) -> Event | None:
    """The event; None if it is of a kind that this callboard does not know, or no event at all."""
    try:
        wire = _WIRE.decode(line)
        kind = KINDS.get(wire.kind)
        if kind is None:
            return None
        data = msgspec.json.decode(wire.data, type=kind)
    except msgspec.MsgspecError:
        return None
    return Event(
        seq=wire.seq,
        ts=wire.ts,
        run=wire.run,
        actor=wire.actor,
        kind=wire.kind,
        data=data,
        parent=wire.parent,
        id=wire.id,
        corr=wire.corr,
    )
