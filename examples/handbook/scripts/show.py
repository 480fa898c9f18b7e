"""Makes two texts of what was found: the best passage for the model, and for people where it stands, and the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def place(chunk: dict[str, Any]) -> str:
    """File and lines, from where the run was started: sources are relative to the agent's directory."""
    first, last = chunk["lines"]
    path = os.path.relpath(Path(os.environ["LLM_AGENT_DATA_DIR"]) / chunk["source"])
    return f"{path}:{first}-{last}  (score {chunk['score']:.2f})"


file = os.environ.get("GRAPH_STATE_FILE")
state = json.loads(Path(file).read_text(encoding="utf-8") if file else os.environ["GRAPH_STATE"])
chunks = state["chunks"]
best = chunks[0]["text"].strip() if chunks else ""
lines = [place(chunk) for chunk in chunks]
lines[1:1] = ["", *(f"    {line}".rstrip() for line in best.splitlines()), "", "See also"] if best else []
print(json.dumps({"best": best, "passages": "\n".join(lines) or "Nothing was found."}))
