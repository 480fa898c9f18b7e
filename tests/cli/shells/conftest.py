"""Fixtures of the tests of shells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.starter import STARTER


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that has `callboard` on its path, a home, and a configuration with a few names."""
    programs = tmp_path / "bin"
    programs.mkdir()
    STARTER.program(programs / "callboard")
    config = tmp_path / "config"
    for kind, name in (("roles", "poet.md"), ("roles", "two words.md"), ("macros", "tidy.yaml")):
        (config / kind).mkdir(parents=True, exist_ok=True)
        (config / kind / name).write_text("x\n")
    for agent in ("mine", "minor"):
        (config / "agents" / agent).mkdir(parents=True)
        (config / "agents" / agent / "config.yaml").write_text(f"name: {agent}\n")
    for session in ("bridges", "tunnels"):
        (config / "sessions" / "by-name").mkdir(parents=True, exist_ok=True)
        (config / "sessions" / "by-name" / session).touch()
    (config / "sessions" / "viaducts.yaml").touch()  # of Loki
    for run in ("run-1a2b3c4d", "run-1aff0000"):
        (tmp_path / "state" / "callboard" / "runs" / run).mkdir(parents=True)
    models = "{name: alpha}, {name: alpine}, {name: beta}"
    (config / "config.yaml").write_text(
        f"clients: [{{type: openai-compatible, name: there, api_base: 'http://x', models: [{models}]}}]\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "TERM": "tmux-256color",
        "CALLBOARD_CONFIG_DIR": str(config),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
    }
