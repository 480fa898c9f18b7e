"""What the server asks of the terminal for a command: an answer, a text in the editor, the clipboard."""

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
    """See the module.

    Attributes:
        editor: `editor` of the settings.
    """

    def __init__(self, screen: ChatScreen, seen: Seen, questions: PersonAsked) -> None:
        self.editor: str | None = None
        self._screen = screen
        self._seen = seen
        self._questions = questions

    async def answer(self, method: str, params: msgspec.Raw) -> Any:
        """The result of a request; a method that it does not know is a `KeyError`."""
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
        """The text as the person's editor leaves it; None if nothing was written."""
        from .editing import edit_text

        try:
            return await edit_text(name, text, self.editor)
        except (UsageError, OSError) as error:
            self._seen.print(str(error), "error")
            return None
