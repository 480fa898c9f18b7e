"""MCP servers for the tests of agents: `mcp.json` entries that start tests/actors/work/mcp/servers/scripted.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTED = Path(__file__).parents[1] / "actors" / "work" / "mcp" / "servers" / "scripted.py"


def scripted(*flags: str, **entry: Any) -> dict[str, Any]:
    """An entry; `flags` are those of the program, `entry` more keys."""
    return {"command": sys.executable, "args": ["-S", str(SCRIPTED), *flags], **entry}


def mcp_json(config_dir: Path, **servers: dict[str, Any]) -> Path:
    """Write the file; the counter of starts is beside it."""
    entries = {
        name: {**entry, "env": {"STARTS": str(config_dir / f"{name}.starts"), **entry.get("env", {})}}
        if "command" in entry
        else entry
        for name, entry in servers.items()
    }
    file = config_dir / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}, indent=1))
    return file


def starts(config_dir: Path, name: str) -> int:
    """How often the server was started so far."""
    file = config_dir / f"{name}.starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogues and sockets of a test are its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
