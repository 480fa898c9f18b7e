"""The directories of configuration, cache, state and data."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ...protocol.environment import said

Kind = Literal["roles", "macros", "sessions", "rags", "functions"]
"""What has a directory of its own in the configuration directory, which a variable may name elsewhere."""


def config_dir(given: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> tuple[Path, str]:
    """The configuration directory, and where that came from.

    `given` (the flag), else `$CALLBOARD_CONFIG_DIR`, else `$LOKI_CONFIG_DIR`, else `$XDG_CONFIG_HOME/callboard`, else
    `~/.config/callboard`. An empty variable counts as unset. The directory need not exist.
    """
    if given is not None and os.fspath(given):
        return Path(given).expanduser().absolute(), "--config-dir"
    variable, named = said("config_dir", environ)
    if variable:
        return Path(named).expanduser().absolute(), variable
    if xdg := environ.get("XDG_CONFIG_HOME"):
        return Path(xdg).expanduser().absolute() / "callboard", "XDG_CONFIG_HOME"
    home = Path(environ.get("HOME") or Path.home())
    return home / ".config" / "callboard", "default"


def config_file(config_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The settings: `$CALLBOARD_CONFIG_FILE` or `$LOKI_CONFIG_FILE`, else `config.yaml` in the directory."""
    return _named("config_file", environ) or config_dir / "config.yaml"


def user_folder(kind: Kind, config_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's own are: `$CALLBOARD_<KIND>_DIR` or `$LOKI_<KIND>_DIR`, else that folder in the directory."""
    return _named(f"{kind}_dir", environ) or config_dir / kind


def cache_dir(environ: Mapping[str, str]) -> Path:
    """What may be deleted at any time: `$XDG_CACHE_HOME/callboard`, else `~/.cache/callboard`.

    As the standard wants it, a relative `XDG_CACHE_HOME` counts as unset.
    """
    return _of_standard("XDG_CACHE_HOME", ".cache", environ)


def state_dir(environ: Mapping[str, str]) -> Path:
    """For files that callboard writes and keeps: `$XDG_STATE_HOME/callboard`, else `~/.local/state/callboard`.

    As the standard wants it, a relative `XDG_STATE_HOME` counts as unset.
    """
    return _of_standard("XDG_STATE_HOME", ".local/state", environ)


def socket_dir(environ: Mapping[str, str], cache: Path) -> Path:
    """Where the sockets of MCP pools are: `$XDG_RUNTIME_DIR/callboard`, else `run` below `cache`."""
    runtime = environ.get("XDG_RUNTIME_DIR") or ""
    return Path(runtime) / "callboard" if os.path.isabs(runtime) else cache / "run"  # noqa: PTH117 - a text is at hand


def journal_dir(environ: Mapping[str, str]) -> Path:
    """Where durable runs are kept."""
    return state_dir(environ) / "journal"


def durable_dir(environ: Mapping[str, str]) -> Path:
    """Where durable runs have what they need beside their journal, each in a directory of its own."""
    return state_dir(environ) / "durable"


def data_dir(environ: Mapping[str, str]) -> Path:
    """For data that is fetched and kept: `$XDG_DATA_HOME/callboard`, else `~/.local/share/callboard`.

    As the standard wants it, a relative `XDG_DATA_HOME` counts as unset.
    """
    return _of_standard("XDG_DATA_HOME", ".local/share", environ)


def _named(key: str, environ: Mapping[str, str]) -> Path | None:
    text = said(key, environ)[1]
    return Path(text).expanduser().absolute() if text else None


def _of_standard(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    return _made_of(environ.get(variable) or "", environ.get("HOME") or "", default)


@lru_cache(maxsize=64)
def _made_of(given: str, home: str, default: str) -> Path:
    """Cached: each run asks for four such paths, and pathlib takes 15 microseconds for each."""
    if os.path.isabs(given):  # noqa: PTH117 - a text is at hand
        return Path(given) / "callboard"
    return Path(home or Path.home()) / default / "callboard"


def root_dir(config: Path, agent: Path | None) -> Path:
    """What tools and scripts find as `LLM_ROOT_DIR`: the configuration directory.

    Files of agents read `$LLM_ROOT_DIR/agents/.shared/…` there. An agent that lies elsewhere beside an
    `agents/.shared`, such as one in a checkout that is run by its path, brings a configuration directory of its own.
    """
    if agent is None:
        return config
    agents = agent.parent
    if agents.name == "agents" and agents != config / "agents" and (agents / ".shared").is_dir():
        return agents.parent
    return config


def sweep(directory: Path, seconds: float) -> None:
    """Remove the directories in it that nothing has changed for so long: of runs that were killed. Errors are none."""
    import shutil  # takes 5 ms, and most programs never need it

    with suppress(OSError):  # there is no such directory; or what can't be removed is tried again
        for path in directory.iterdir():
            if path.stat().st_mtime < time.time() - seconds:
                shutil.rmtree(path, ignore_errors=True)


def private_directory(folder: Path) -> None:
    """Make a directory if it is not there, for its owner alone, and so those above it (`mkdir` asks the umask).

    Raises:
        OSError: it can't be made, or is none.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        private_directory(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
