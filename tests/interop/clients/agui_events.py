"""AG-UI's own models (`.venv/interop/control`) read each line of stdin as an event; prints their types, or fails."""

from __future__ import annotations

import json
import sys

from ag_ui.core import Event
from pydantic import TypeAdapter

reader: TypeAdapter[Event] = TypeAdapter(Event)

if __name__ == "__main__":
    found = []
    for line in sys.stdin:
        event = reader.validate_json(line)
        extra = set(event.model_extra or ())
        assert not extra, f"fields that the protocol does not know: {extra} in {line}"
        found.append(event.type.value)
    print(json.dumps(found))
