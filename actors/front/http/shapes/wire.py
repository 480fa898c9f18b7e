"""An event as the log has it, as far as those who tell it in other words need to know it."""

from __future__ import annotations

from typing import Any

import msgspec

Json = Any


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """See `protocol.events.Event`; `data` is what its kind says."""

    seq: int
    kind: str
    ts: str = ""
    run: str = ""
    actor: str = ""
    parent: str = ""
    id: str = ""
    data: dict[str, Json] = {}


_decoder = msgspec.json.Decoder(Wire)


def wire(data: bytes) -> Wire:
    """The event of a line of the log."""
    return _decoder.decode(data)
