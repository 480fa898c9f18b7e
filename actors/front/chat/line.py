"""A line that is being played, as its command sees it: the chat, who has sent it, what stands behind the name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import InvalidFile, UsageError
from ....protocol.kernel.questions import understood
from ...io.handed_out import hidden
from .person import Given, Person

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ...runs.root import Root
    from ..control.hub import Hub
    from .chat import Chat
    from .order import Turn
    from .table import Command

SaidKind = Literal["text", "markdown", "diff", "note", "warning", "error", "echo", "shell"]


class Line:
    """See the module.

    Attributes:
        chat: whose line it is.
        person: who has sent it.
        rest: what stands behind the name of its command; of a prompt all of it.
        command: None for a prompt.
        in_macro: whether a macro plays it.
        scopes: what it takes to play it, and to see what it says.
        run, status: of the last run that it has begun.
        leave: whether the chat is to end.
        attach: the chat that its sender goes over to.
    """

    def __init__(
        self,
        chat: Chat,
        person: Person,
        rest: str,
        command: Command | None = None,
        *,
        turn: Turn | None = None,
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
        """It is at work: the line after it may begin."""
        if self._turn is not None:
            self._turn.leave()

    @property
    def caller(self) -> Caller:
        """Who has sent it."""
        return self.person.caller

    @property
    def hub(self) -> Hub:
        """The chat's hub."""
        return self.chat.hub

    @property
    def root(self) -> Root:
        """The hub's root."""
        return self.chat.hub.root

    def need(self, scope: str) -> None:
        """Check that the caller has a scope, which those who watch need, too, to see what the line says from now on.

        Raises:
            Denied: they don't.
        """
        self.caller.need(scope)
        self.scopes = (*self.scopes, scope)

    def shows(self, scope: str) -> bool:
        """Whether the caller has a scope; if so, those who watch need it, too, to see what the line says next."""
        if self.caller.has(scope):
            self.need(scope)
            return True
        return False

    def misused(self) -> UsageError:
        """What to raise where the words behind the command's name make no sense."""
        assert self.command is not None
        return self.command.misused()

    async def say(self, text: str, kind: SaidKind = "text") -> None:
        """Say something to the person, and to those who watch: without what the vault has handed out."""
        told = frames.Said(chat=self.chat.id, kind=kind, text=hidden(text))
        self.chat.told.keep(told, self.scopes)
        self.chat.watched("_chat/said", told, but=self.person, scopes=self.scopes)
        await self.person.said(told)

    async def tell(self, text: str, kind: SaidKind = "text") -> None:
        """Say something to the person alone, and as it is."""
        await self.person.said(frames.Said(chat=self.chat.id, kind=kind, text=text))

    async def note(self, text: str) -> None:
        """Say what is not the answer to the command."""
        await self.say(text, "note")

    async def warn(self, text: str) -> None:
        """Say what the person should look at."""
        await self.say(text, "warning")

    async def confirm(self, text: str, *, default: bool = False) -> bool:
        """Yes or no; the default where no answer is given."""
        answer = await self._asked("confirm", text, default="yes" if default else "no")
        return default if answer is None else answer == "yes"

    async def choose(self, text: str, options: list[str], about: list[str] | None = None) -> str | None:
        """One of the options; None for none."""
        answer = await self._asked("choice", text, options=options, about=about or [])
        return answer if isinstance(answer, str) and answer in options else None

    async def choose_several(self, text: str, options: list[str], about: list[str] | None = None) -> list[str]:
        """Any of the options."""
        answer = await self._asked("checkbox", text, options=options, about=about or [])
        chosen = [answer] if isinstance(answer, str) else answer or []
        return [each for each in chosen if each in options]

    async def ask(self, text: str, *, default: str | None = None, secret: bool = False) -> str | None:
        """A text; None for none."""
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
        """What the person makes of a text in their editor; None for nothing new."""
        edited = await self.person.edit(frames.EditText(chat=self.chat.id, name=name, text=text, problem=problem))
        return None if edited is None or (edited == text and problem is None) else edited

    async def edit_until(self, name: str, text: str, keep: Callable[[str], object]) -> str | None:
        """The text that `keep` takes, which the person edits until it does; None for nothing new.

        Args:
            keep: takes a text, in a thread; raises `InvalidFile` to have it edited again.
        """
        problem: str | None = None
        while (edited := await self.edit(name, text, problem)) is not None:
            try:
                await trio.to_thread.run_sync(keep, edited)
            except InvalidFile as error:
                text, problem = edited, str(error)
                continue
            break
        return edited

    async def copy(self, text: str) -> None:
        """Put a text into the person's clipboard."""
        await self.person.copy(frames.CopyText(chat=self.chat.id, text=text))
