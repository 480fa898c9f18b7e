"""Server requests to the terminal on behalf of a command: a question, the editor, the clipboard."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from ...actors.io import temporary
from ...protocol.control import chat, own
from ...protocol.decoding import decode_json
from ...protocol.errors import UsageError
from ..editor import edit_file
from .person_asked import PersonAsked
from .screen.application import ChatScreen
from .screen_output import ScreenOutput


class ServerRequests:
    """Handler of server requests.

    Attributes:
        editor: setting `editor`.
    """

    def __init__(self, screen: ChatScreen, seen: ScreenOutput, questions: PersonAsked) -> None:
        self.editor: str | None = None
        self._screen = screen
        self._seen = seen
        self._questions = questions

    async def answer(self, method: str, params: msgspec.Raw) -> Any:
        """Return the result of a request; raises `KeyError` for an unknown method."""
        if method == "_chat/ask":
            return await self._questions.ask(decode_json(params, chat.AskPerson))
        if method == "_chat/edit":
            edit = decode_json(params, chat.EditText)
            if edit.problem:
                self._seen.print(edit.problem, "error")
            async with self._screen.aside():
                return chat.Edited(text=await self.edited(edit.name, edit.text))
        if method == "_chat/copy":
            from ..clipboard import copy

            wanted = decode_json(params, chat.CopyText)
            await asyncio.to_thread(copy, wanted.text, self._screen.output.stream)
            return own.Done()
        raise KeyError(method)

    async def edited(self, name: str, text: str) -> str | None:
        """Return the text after the user has edited it; None, after printing the error, if the editor failed."""
        try:
            return await edit_text(name, text, self.editor)
        except (UsageError, OSError) as error:
            self._seen.print(str(error), "error")
            return None


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
