"""A scripted person for the tests of chats."""

from __future__ import annotations

from callboard.protocol.control import chat as frames
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import UsageError


class Scripted:
    """Answers questions in order, and keeps all that it is told."""

    def __init__(self, *answers: str | list[str] | None, caller: Caller = LOCAL) -> None:
        self.caller = caller
        self.answers = list(answers)
        self.edits: list[str | None] = []
        self.told: list[frames.Said] = []
        self.runs: list[frames.Began] = []
        self.asked: list[frames.AskPerson] = []
        self.edited: list[frames.EditText] = []
        self.copied: list[str] = []
        self.chat: frames.ChatInfo | None = None

    @property
    def text(self) -> str:
        """All that was said."""
        return "\n".join(each.text for each in self.told)

    async def began(self, told: frames.Began) -> None:
        self.runs.append(told)

    async def show(self, told: frames.Said) -> None:
        self.told.append(told)

    async def changed(self, told: frames.Changed) -> None:
        self.chat = told.chat

    async def ask(self, asked: frames.AskPerson) -> str | list[str] | None:
        self.asked.append(asked)
        if not self.answers:
            raise UsageError(f"no answer is left for: {asked.text}")
        return self.answers.pop(0)

    async def edit(self, asked: frames.EditText) -> str | None:
        self.edited.append(asked)
        return self.edits.pop(0)

    async def copy(self, asked: frames.CopyText) -> None:
        self.copied.append(asked.text)
