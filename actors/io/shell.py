"""Shell of the user, for command lines written for it by users or models."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.environment import variable_value


def shell_of(environ: Mapping[str, str]) -> str:
    """Return the shell: `CALLBOARD_SHELL` or `LOKI_SHELL`, else `SHELL`, else `/bin/sh`."""
    return variable_value("shell", environ)[1] or environ.get("SHELL") or "/bin/sh"
