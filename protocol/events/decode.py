"""Events read back from how they are written down."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..decoding import json_decoder
from . import KINDS, Event


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


_WIRE = json_decoder(_Wire)
_DATA = {name: json_decoder(kind) for name, kind in KINDS.items()}


def decode(line: bytes) -> Event | None:
    """The event of a line; None if it is of a kind that this callboard does not know, or no event at all."""
    try:
        wire = _WIRE.decode(line)
        data = _DATA[wire.kind].decode(wire.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    envelope = msgspec.structs.asdict(wire)
    return Event(**{**envelope, "data": data})
