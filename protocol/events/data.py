"""What every event's payload is."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

Json = Any
"""A JSON value: str, int, float, bool, None, or lists and string-keyed dicts of them."""


class EventData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all payloads. `kind` is the dotted name that the envelope carries."""

    kind: ClassVar[str] = ""
