"""How the scripts of this agent read the state of the graph, and say what comes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def graph_state() -> dict[str, Any]:
    """The state, from whichever of the two variables is set."""
    file = os.environ.get("GRAPH_STATE_FILE")
    text = Path(file).read_text(encoding="utf-8") if file else os.environ.get("GRAPH_STATE", "{}")
    state: dict[str, Any] = json.loads(text)
    return state


def go(target: str, **writes: Any) -> None:
    """Print the script's one object: the keys to write, and the node that is next."""
    print(json.dumps({**writes, "_next": target}))
