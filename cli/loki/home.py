"""Which configuration `callboard loki` works with.

Loki itself looks at `$LOKI_CONFIG_DIR`, then for `loki` in `$XDG_CONFIG_HOME` or the platform's place for
configuration. Both programs can work on one such directory: what callboard keeps in it (sessions under `by-id`,
knowledge under `knowledge`, vault.age) has names that Loki does not use, and what Loki has kept is only read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ...actors.io.directories import config_dir


def loki_home(environ: Mapping[str, str]) -> str | None:
    """The directory that counts where no flag names one; None for callboard's own.

    `$LOKI_CONFIG_DIR` first: who sets it means it. A directory of callboard's own comes before the default one of
    Loki, since who has made it has moved in.
    """
    if named := environ.get("LOKI_CONFIG_DIR"):
        return named
    own, _ = config_dir(None, environ)
    if environ.get("CALLBOARD_CONFIG_DIR") or own.is_dir():
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
