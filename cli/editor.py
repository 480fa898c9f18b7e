"""Opens a file in the user's editor: `$VISUAL`, else `$EDITOR`, else `editor` of config.yaml, else vi."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from ..protocol.errors import UsageError


def edit_file(file: Path, configured: str | None = None) -> None:
    """Open the file and wait until the editor is closed.

    Raises:
        UsageError: there is no such editor, or it has failed.
    """
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or configured or "vi"
    try:
        code = subprocess.run([*shlex.split(chosen), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"the editor '{chosen}' can't be started: {why}; set $EDITOR, or edit {file}") from error
    if code:
        raise UsageError(f"the editor '{chosen}' ended with exit code {code}; {file} is as it has left it")
