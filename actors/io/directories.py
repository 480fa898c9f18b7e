"""Directories for configuration, cache, state and data."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ...protocol.environment import variable_value
from .tenancy import environ

Kind = Literal["roles", "macros", "sessions", "rags", "functions"]
"""Kinds of user files with a directory of their own in the configuration directory; a variable may move each."""


def config_dir(given: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> tuple[Path, str]:
    """Return the configuration directory, and the name of its source.

    `given` (the flag), else `$CALLBOARD_CONFIG_DIR`, else `$LOKI_CONFIG_DIR`, else `$XDG_CONFIG_HOME/callboard`, else
    `~/.config/callboard`. An empty variable counts as unset. The directory need not exist.
    """
    if given is not None and os.fspath(given):
        return Path(given).expanduser().absolute(), "--config-dir"
    variable, named = variable_value("config_dir", environ)
    if variable:
        return Path(named).expanduser().absolute(), variable
    if xdg := environ.get("XDG_CONFIG_HOME"):
        return Path(xdg).expanduser().absolute() / "callboard", "XDG_CONFIG_HOME"
    home = Path(environ.get("HOME") or Path.home())
    return home / ".config" / "callboard", "default"


def config_file(config_dir: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return the settings file:

    `$CALLBOARD_CONFIG_FILE` or `$LOKI_CONFIG_FILE`, else `config.yaml` in the directory.
    """
    return _named("config_file", _or_current(environ)) or config_dir / "config.yaml"


def user_folder(kind: Kind, config_dir: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's directory for files of one kind: `$CALLBOARD_<KIND>_DIR` or `$LOKI_<KIND>_DIR`, else a
    subdirectory of the configuration directory.
    """
    return _named(f"{kind}_dir", _or_current(environ)) or config_dir / kind


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for files that may be deleted at any time:

    `$XDG_CACHE_HOME/callboard`, else `~/.cache/callboard`.

    As the XDG specification demands, a relative `XDG_CACHE_HOME` counts as unset.
    """
    return _of_standard("XDG_CACHE_HOME", ".cache", environ)


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for persistent state: `$XDG_STATE_HOME/callboard`, else `~/.local/state/callboard`.

    As the XDG specification demands, a relative `XDG_STATE_HOME` counts as unset.
    """
    return _of_standard("XDG_STATE_HOME", ".local/state", environ)


def socket_dir(environ: Mapping[str, str], cache: Path) -> Path:
    """Return the directory for sockets of MCP pools: `$XDG_RUNTIME_DIR/callboard`, else `run` below `cache`."""
    runtime = environ.get("XDG_RUNTIME_DIR") or ""
    return Path(runtime) / "callboard" if os.path.isabs(runtime) else cache / "run"  # noqa: PTH117 - a text is at hand


def journal_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for journals of durable runs."""
    return state_dir(environ) / "journal"


def durable_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for other files of durable runs, with a subdirectory for each."""
    return state_dir(environ) / "durable"


def data_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for downloaded data: `$XDG_DATA_HOME/callboard`, else `~/.local/share/callboard`.

    As the XDG specification demands, a relative `XDG_DATA_HOME` counts as unset.
    """
    return _of_standard("XDG_DATA_HOME", ".local/share", environ)


def _or_current(given: Mapping[str, str] | None) -> Mapping[str, str]:
    return environ() if given is None else given


def _named(key: str, environ: Mapping[str, str]) -> Path | None:
    text = variable_value(key, environ)[1]
    return Path(text).expanduser().absolute() if text else None


def _of_standard(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    return _made_of(environ.get(variable) or "", environ.get("HOME") or "", default)


@lru_cache(maxsize=64)
def _made_of(given: str, home: str, default: str) -> Path:
    """Return the directory. Cached, because each run needs four, and pathlib takes 15 microseconds for each."""
    if os.path.isabs(given):  # noqa: PTH117 - a text is at hand
        return Path(given) / "callboard"
    return Path(home or Path.home()) / default / "callboard"


def root_dir(config: Path, agent: Path | None) -> Path:
    """Return the value of `LLM_ROOT_DIR` for tools and scripts: the configuration directory.

    Files of agents read `$LLM_ROOT_DIR/agents/.shared/…` there. An agent in another `agents` directory with a
    `.shared`, for example in a checkout, has its own configuration directory: the parent of that `agents`.
    """
    if agent is None:
        return config
    agents = agent.parent
    if agents.name == "agents" and agents != config / "agents" and (agents / ".shared").is_dir():
        return agents.parent
    return config


def sweep(directory: Path, seconds: float) -> None:
    """Remove subdirectories that have not changed for `seconds`, which killed runs left behind. Errors are ignored."""
    import shutil  # takes 5 ms, and most programs never need it

    with suppress(OSError):  # the directory does not exist; or a later call retries
        for path in directory.iterdir():
            if path.stat().st_mtime < time.time() - seconds:
                shutil.rmtree(path, ignore_errors=True)


def private_directory(folder: Path) -> None:
    """Create a directory and missing parents with mode 0700 (the modes of `mkdir`'s parents depend on the umask).

    Raises:
        OSError: it can't be created, or is not a directory.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        private_directory(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
