"""The user's editor for a file: `editor` of config.yaml, else `$VISUAL`, else `$EDITOR`, else vi."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from ..protocol.errors import UsageError


def edit_new(file: Path, configured: str | None = None) -> bool:
    """Open a new file in the editor. Remove it and return False if the user does not change it.

    Raises:
        UsageError: there is no such editor, or it failed. An unchanged file is removed then too.
    """
    before = file.read_bytes()
    try:
        edit_file(file, configured)
    finally:
        unchanged = file.exists() and file.read_bytes() == before
        if unchanged:
            file.unlink()
    return not unchanged


def edit_file(file: Path, configured: str | None = None) -> None:
    """Open the file in the editor and wait until it is closed.

    Raises:
        UsageError: there is no such editor, or it failed.
    """
    chosen = configured or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(chosen), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"the editor '{chosen}' can't be started: {why}; set $EDITOR, or write {file}") from error
    if code:
        raise UsageError(f"the editor '{chosen}' ended with exit code {code}; what it has written to {file} stays")
