"""The person at the other end of a chat, as commands see it: reads what they say, answers, edits texts."""

from __future__ import annotations

from typing import Protocol

from ....protocol.control import chat as frames
from ....protocol.control.caller import Caller

Given = str | list[str]


class Person(Protocol):
    """Who has sent a line. The client of a connection is one (`methods.ClientPerson`), `callboard macro` another.

    Attributes:
        caller: what they may do.
    """

    caller: Caller

    async def began(self, told: frames.Began) -> None:
        """A run answers a prompt."""

    async def said(self, told: frames.Said) -> None:
        """A command says something."""

    async def changed(self, told: frames.Changed) -> None:
        """The chat is now another."""

    async def ask(self, asked: frames.AskPerson) -> Given | None:
        """The answer; None if they want to give none, or can't be asked."""

    async def edit(self, asked: frames.EditText) -> str | None:
        """What they have made of the text; None if they have changed nothing, or have no editor."""

    async def copy(self, asked: frames.CopyText) -> None:
        """Put a text into their clipboard.

        Raises:
            CallboardError: it can't be done.
        """
