"""Editing a text in the user's editor, on the terminal's machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...actors.io import temporary
from ..editor import edit_file


async def edit_text(name: str, text: str, editor: str | None) -> str:
    """Return the text after the user has edited it. The editor runs in a worker thread.

    Args:
        name: file name, for its suffix; the directory is a private temporary one.
        editor: setting `editor`.
    Raises:
        UsageError: there is no editor, or it failed.
        OSError: the file can't be written or read.
    """

    def edit() -> str:
        with temporary.directory("text-") as directory:
            file = directory / (Path(name.replace("\0", "")).name.lstrip(".") or "text")
            file.write_text(text, "utf-8")
            edit_file(file, editor)
            return file.read_text("utf-8", "replace")

    return await asyncio.to_thread(edit)
