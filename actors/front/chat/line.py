"""Line in execution, as its command sees it: chat, sender, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import InvalidFile, UsageError
from ....protocol.kernel.questions import understood
from ...io.secret_redaction import hidden
from .person import ChatPerson, Given

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ...runs.root import Root
    from ..control.hub import Hub
    from .chat import Chat
    from .order import LineTurn
    from .table import ChatCommand

SaidKind = Literal["text", "markdown", "diff", "note", "warning", "error", "echo", "shell"]


class ChatLine:
    """Line of input with its output functions.

    Attributes:
        chat: the chat.
        person: sender of the line.
        rest: text after the command's name; the whole text of a prompt.
        command: None for a prompt.
        in_macro: whether the line is a step of a macro.
        scopes: scopes required to execute the line, and to see its output.
        run, status: last run that it started, and that run's status.
        leave: whether the chat must end.
        attach: id of the chat to which the sender changes.
    """

    def __init__(
        self,
        chat: Chat,
        person: ChatPerson,
        rest: str,
        command: ChatCommand | None = None,
        *,
        turn: LineTurn | None = None,
        in_macro: bool = False,
    ) -> None:
        self.chat = chat
        self.person = person
        self.rest = rest
        self.command = command
        self.in_macro = in_macro
        self.scopes: tuple[str, ...] = () if command is None else command.scopes
        self._turn = turn
        self.run: str | None = None
        self.status: str | None = None
        self.leave = False
        self.attach: str | None = None

    def begun(self) -> None:
        """Let the next line begin."""
        if self._turn is not None:
            self._turn.leave()

    @property
    def caller(self) -> Caller:
        """Sender's identity and scopes."""
        return self.person.caller

    @property
    def hub(self) -> Hub:
        return self.chat.hub

    @property
    def root(self) -> Root:
        return self.chat.hub.root

    def need(self, scope: str) -> None:
        """Require a scope of the caller; from here on, watchers need it too to see the output.

        Raises:
            Denied: the caller lacks the scope.
        """
        self.caller.need(scope)
        self.scopes = (*self.scopes, scope)

    def shows(self, scope: str) -> bool:
        """Return True if the caller has a scope. Watchers then need it too to see the further output."""
        if self.caller.has(scope):
            self.need(scope)
            return True
        return False

    def misused(self) -> UsageError:
        """Return the usage error of the command."""
        assert self.command is not None
        return self.command.misused()

    async def say(self, text: str, kind: SaidKind = "text") -> None:
        """Output a text to the user and to watchers, without secrets from the vault."""
        # One frame for backlog, watchers and sender: `keep` sets its number, so it comes first.
        told = frames.Said(chat=self.chat.id, kind=kind, text=hidden(text), after=self.run)
        self.chat.told.keep(told, self.scopes)
        self.chat.watched("_chat/said", told, but=self.person, scopes=self.scopes)
        await self.person.said(told)

    async def tell(self, text: str, kind: SaidKind = "text") -> None:
        """Output a text to the user alone, without redaction."""
        await self.person.said(frames.Said(chat=self.chat.id, kind=kind, text=text))

    async def note(self, text: str) -> None:
        """Output a remark that is not the command's result."""
        await self.say(text, "note")

    async def warn(self, text: str) -> None:
        """Output a warning."""
        await self.say(text, "warning")

    async def confirm(self, text: str, *, default: bool = False) -> bool:
        """Return True if the user confirms; no answer counts as a no. `default` is the preselected answer."""
        return await self._asked("confirm", text, default="yes" if default else "no") == "yes"

    async def choose(
        self, text: str, options: list[str], about: list[str] | None = None, *, default: str | None = None
    ) -> str | None:
        """Return the option that the user chooses, or None. `default` is preselected."""
        answer = await self._asked("choice", text, options=options, about=about or [], default=default)
        return answer if isinstance(answer, str) and answer in options else None

    async def choose_several(self, text: str, options: list[str], about: list[str] | None = None) -> list[str]:
        """Return the options that the user chooses."""
        answer = await self._asked("checkbox", text, options=options, about=about or [])
        chosen = [answer] if isinstance(answer, str) else answer or []
        # A client may answer anything: ignore values that were not offered.
        return [each for each in chosen if each in options]

    async def ask(self, text: str, *, default: str | None = None, secret: bool = False) -> str | None:
        """Return a text from the user, or None."""
        answer = await self._asked("text", text, default=default, secret=secret)
        return answer if isinstance(answer, str) else None

    async def _asked(
        self,
        kind: Literal["confirm", "choice", "checkbox", "text"],
        text: str,
        *,
        options: list[str] | None = None,
        about: list[str] | None = None,
        default: str | None = None,
        secret: bool = False,
    ) -> Given | None:
        asked = frames.AskPerson(
            chat=self.chat.id,
            text=text,
            kind=kind,
            options=options or [],
            about=about or [],
            default=default,
            secret=secret,
        )
        given = await self.person.ask(asked)
        return None if given is None else understood(asked.question(), given)

    async def edit(self, name: str, text: str, problem: str | None = None) -> str | None:
        """Open a text in the user's editor and return the result; None if it is unchanged."""
        edited = await self.person.edit(frames.EditText(chat=self.chat.id, name=name, text=text, problem=problem))
        # After a problem, an unchanged text is still an answer: the user insists, and the check decides again.
        return None if edited is None or (edited == text and problem is None) else edited

    async def edit_until(self, name: str, text: str, keep: Callable[[str], object]) -> str | None:
        """Open a text in the user's editor until `keep` accepts it; returns the text, or None if it is unchanged.

        Args:
            keep: stores the text, in a worker thread; raises `InvalidFile` to open the editor again with its message.
        """
        problem: str | None = None
        while (edited := await self.edit(name, text, problem)) is not None:
            try:
                await trio.to_thread.run_sync(keep, edited)
            except InvalidFile as error:
                # Reopen the editor with the user's text, so that an error does not cost the edit.
                text, problem = edited, str(error)
                continue
            break
        return edited

    async def copy(self, text: str) -> None:
        """Copy a text to the user's clipboard."""
        await self.person.copy(frames.CopyText(chat=self.chat.id, text=text))
