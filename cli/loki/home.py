"""Configuration directory of `callboard loki`.

Loki itself uses `$LOKI_CONFIG_DIR`, then `loki` in `$XDG_CONFIG_HOME` or in the platform's configuration directory.
Both programs can share one directory: Callboard's files in it (sessions under `by-id`, knowledge under `knowledge`,
vault.age) have names that Loki does not use, and Loki's own data is only read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ...actors.io.directories import config_dir


def loki_home(environ: Mapping[str, str]) -> str | None:
    """Return the default configuration directory; None for Callboard's own.

    `$LOKI_CONFIG_DIR` comes first, because it is explicit. A `config.yaml` of Callboard's own precedes Loki's default
    directory: a user who wrote it has switched. The directory alone does not: `callboard vault add` and `install`
    create it, and must not hide clients, roles and sessions.
    """
    if named := environ.get("LOKI_CONFIG_DIR"):
        return named
    own, _ = config_dir(None, environ)
    if environ.get("CALLBOARD_CONFIG_DIR") or (own / "config.yaml").is_file():
        return None
    theirs = _default(environ)
    return str(theirs) if theirs.is_dir() else None


def _default(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    if xdg := environ.get("XDG_CONFIG_HOME"):
        return Path(xdg) / "loki"
    if sys.platform == "darwin" and not (home / ".config" / "loki").is_dir():
        return home / "Library" / "Application Support" / "loki"
    return home / ".config" / "loki"
