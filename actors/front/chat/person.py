"""Client port of a chat: the interface through which commands output, ask and edit."""

from __future__ import annotations

from typing import Protocol

from ....protocol.control import chat as frames
from ....protocol.control.caller import Caller

Given = str | list[str]


class ChatPerson(Protocol):
    """Sender of a line, for example a connection's client (`methods.ClientPerson`) or `callboard macro`.

    Attributes:
        caller: identity and scopes.
    """

    caller: Caller

    async def began(self, told: frames.Began) -> None:
        """Report that a run has begun to answer a prompt."""

    async def said(self, told: frames.Said) -> None:
        """Show the output of a command."""

    async def changed(self, told: frames.Changed) -> None:
        """Report a changed state of the chat."""

    async def ask(self, asked: frames.AskPerson) -> Given | None:
        """Ask a question and return the answer; None if the user declines or cannot be asked."""

    async def edit(self, asked: frames.EditText) -> str | None:
        """Open a text in an editor and return the result; None if it is unchanged or no editor is available."""

    async def copy(self, asked: frames.CopyText) -> None:
        """Copy a text to the clipboard.

        Raises:
            CallboardError: the client cannot do so.
        """
