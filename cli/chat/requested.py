"""Server requests to the terminal on behalf of a command: a question, the editor, the clipboard."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...protocol.control import chat, own
from ...protocol.decoding import decode_json
from ...protocol.errors import UsageError
from .person_asked import PersonAsked
from .screen.application import ChatScreen
from .seen import Seen


class Requested:
    """Handler of server requests.

    Attributes:
        editor: setting `editor`.
    """

    def __init__(self, screen: ChatScreen, seen: Seen, questions: PersonAsked) -> None:
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
        from .editing import edit_text

        try:
            return await edit_text(name, text, self.editor)
        except (UsageError, OSError) as error:
            self._seen.print(str(error), "error")
            return None
