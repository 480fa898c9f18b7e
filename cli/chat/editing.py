"""A text in the person's editor, on the side of the terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...actors.io import temporary
from ..editor import edit_file


async def edit_text(name: str, text: str, editor: str | None) -> str:
    """The text as the editor leaves it.

    Args:
        name: of its file, for the suffix; its directory is ours, whatever it says.
        editor: `editor` of the settings.

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
