"""How tests begin a conversation at a terminal, against a model that is scripted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from support.fake_models import FakeModels
from support.program_window import Window
from support.tmux import Tmux


def start(
    terminal: Tmux | Window,
    fake_model: FakeModels,
    tmp_path: Path,
    *arguments: str,
    configure: Callable[[Path], None] = lambda _: None,
) -> None:
    """Begins it, in a directory whose `config.yaml` names the model; `configure` may write more there.

    A model answers without an agent: what the default agent does is tested in cli/chat/test_default_agent.py.
    """
    config = without_agent(fake_model.config_dir(tmp_path / "config"))
    configure(tmp_path)
    program = [sys.executable, "-m", "callboard.cli"] if isinstance(terminal, Tmux) else []
    terminal.start([*program, *arguments], environment_of(config, tmp_path))


def without_agent(config: Path) -> Path:
    """Has chats begin without an agent."""
    return set_in(config, chat_agent="none")


def set_in(config: Path, **keys: object) -> Path:
    """Sets keys of its config.yaml."""
    file = config / "config.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))
    return config


def environment_of(config: Path, tmp_path: Path) -> dict[str, str]:
    """What the program finds in its environment."""
    return {
        "CALLBOARD_CONFIG_DIR": str(config),
        "CALLBOARD_STATE_DIR": str(tmp_path / "state"),
        "CALLBOARD_CACHE_DIR": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "TERM": "screen-256color",
        "LANG": "C.UTF-8",
    }


def allow_commands(tmp_path: Path) -> None:
    """The agent may run commands, each with permission."""
    set_in(tmp_path / "config", enabled_tools="execute_command")
