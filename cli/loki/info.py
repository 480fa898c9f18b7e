"""Flag `--info`: settings and paths in Loki's form, a key and its value per line, for users, `grep` and `awk`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...actors.io.directories import Kind, config_file, state_dir, user_folder
from ...actors.io.directories import config_dir as configured
from ...actors.io.environment import env_file
from ...actors.io.saved_replies import last_reply_file
from ...actors.io.settings import load_settings
from ...actors.runs.sessions.summary import THRESHOLD
from ...actors.work.knowledge.base.base import TOP_K
from ...actors.work.models.catalog import ModelCatalog
from ...protocol.agent import Agent
from ...protocol.settings import Settings
from ...protocol.version import VERSION
from ..render.text import one_line

_WIDTH = 24
_FOLDERS: tuple[Kind, ...] = ("roles", "macros", "sessions", "functions")
_OF_SETTINGS = ("temperature", "top_p", "max_output_tokens", "enabled_tools", "enabled_mcp_servers")
_OF_OTHER: dict[str, Any] = {
    "save": False,
    "save_session": None,
    "compression_threshold": THRESHOLD,
    "auto_continue": False,
    "max_auto_continues": Agent(name="-").max_auto_continues,
    "keybindings": "emacs",
    "wrap": "auto",
    "wrap_code": False,
    "highlight": True,
    "theme": None,
    "cmd_prelude": None,
    "repl_prelude": None,
    "agent_session": None,
    "save_shell_history": True,
}
"""Keys and their default values."""


def as_text(config_dir: str | None) -> str:
    """Return all settings and paths.

    Raises:
        ConfigError: config.yaml can't be read.
    """
    home, named_by = configured(config_dir, os.environ)
    settings, _ = load_settings(home)
    rows = [("version", VERSION), *_settings(settings), *_paths(home, settings), ("config_named_by", named_by)]
    return "".join(f"{key:<{_WIDTH}}{_value_text(value)}\n" for key, value in rows)


def _settings(settings: Settings) -> Iterator[tuple[str, Any]]:
    yield "model", ModelCatalog(settings, os.environ).choice().model
    for key in _OF_SETTINGS:
        yield key, getattr(settings, key)
    for key, default in _OF_OTHER.items():
        yield key, settings.other.get(key, default)
    yield "rag_reranker_model", settings.rag_reranker_model
    yield "rag_top_k", settings.rag_top_k or TOP_K
    yield "dry_run", settings.dry_run
    yield "stream", settings.stream
    yield "function_calling", settings.calls_functions
    yield "mcp_server_support", settings.mcp_server_support


def _paths(home: Path, settings: Settings) -> Iterator[tuple[str, Path]]:
    yield "config_dir", home
    yield "config_file", config_file(home)
    yield "env_file", env_file(home, os.environ)
    yield "agents_dir", home / "agents"
    for kind in _FOLDERS:
        yield f"{kind}_dir", user_folder(kind, home)
    rags = user_folder("rags", home)
    yield "rags_dir", rags if rags.is_dir() else home / "knowledge"
    yield (
        "mcp_file",  # not `mcp_config_file`: scripts search for lines with `config_file`
        next(
            (file for file in (home / "mcp.json", home / "functions" / "mcp.json") if file.is_file()), home / "mcp.json"
        ),
    )
    yield "vault_file", home / (settings.vault.file or "vault.age")
    yield "runs_dir", state_dir(os.environ) / "runs"
    yield "last_reply_file", last_reply_file(os.environ)


def _value_text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return str(value).lower() if isinstance(value, bool) else one_line(str(value), 400)
