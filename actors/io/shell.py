"""Which shell the user has: for lines of the shell that a person or a model has written for it."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.environment import said


def shell_of(environ: Mapping[str, str]) -> str:
    """The program: `CALLBOARD_SHELL` or `LOKI_SHELL`, else `SHELL`, else `/bin/sh`."""
    return said("shell", environ)[1] or environ.get("SHELL") or "/bin/sh"
