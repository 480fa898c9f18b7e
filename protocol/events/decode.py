"""Decoder of stored events."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..decoding import json_decoder
from . import KINDS, Event


# Decoded in two passes: `kind`, next to `data`, determines its type, and msgspec reads a tag only inside of the struct.
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
    """Return the event of a line; None if its kind is unknown to this version, or if the line is no event."""
    try:
        wire = _WIRE.decode(line)
        data = _DATA[wire.kind].decode(wire.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    envelope = msgspec.structs.asdict(wire)
    return Event(**{**envelope, "data": data})
