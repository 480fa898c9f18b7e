"""Line in execution, as its command sees it: chat, sender, and arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import Conflict, InvalidFile, UsageError
from ....protocol.kernel.questions import understood
from ...io.secret_redaction import hidden
from .clients import ClientPort, Given

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ...runs.root import Root
    from ..control.hub import Hub
    from .chat import Chat, LineTurn


SaidKind = Literal["text", "markdown", "diff", "note", "warning", "error", "echo", "shell"]


class StepExecutor(Protocol):
    """Function that executes a line of a macro: `execution.execute_line`."""

    async def __call__(
        self, chat: Chat, text: str, person: ClientPort, *, in_macro: bool = False
    ) -> frames.LineDone: ...


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
        person: ClientPort,
        rest: str,
        command: ChatCommand | None = None,
        *,
        turn: LineTurn | None = None,
        in_macro: bool = False,
        execute: StepExecutor | None = None,
    ) -> None:
        self.chat = chat
        self.person = person
        self.rest = rest
        self.command = command
        self.in_macro = in_macro
        self.scopes: tuple[str, ...] = () if command is None else command.scopes
        self._turn = turn
        # A parameter, because `execution` imports the commands, and they import this module.
        self._execute = execute
        self.run: str | None = None
        self.status: str | None = None
        self.leave = False
        self.attach: str | None = None

    def begun(self) -> None:
        """Mark the line as begun, so that the next line in the queue may begin."""
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

    async def step(self, chat: Chat, text: str) -> frames.LineDone:
        """Execute a step of a macro, in this chat or in one of the macro's own."""
        assert self._execute is not None
        return await self._execute(chat, text, self.person, in_macro=True)

    def misused(self) -> UsageError:
        """Return the usage error of the line's command."""
        assert self.command is not None
        return self.command.misused()

    async def say(self, text: str, kind: SaidKind = "text") -> None:
        """Output a text to the user and to watchers, without secrets from the vault."""
        # One frame for backlog, watchers and sender: `keep` sets its number, so it comes first.
        told = frames.Said(chat=self.chat.id, kind=kind, text=hidden(text), after=self.run)
        self.chat.backlog.keep(told, self.scopes)
        self.chat.watched("_chat/said", told, but=self.person, scopes=self.scopes)
        await self.person.show(told)

    async def say_privately(self, text: str, kind: SaidKind = "text") -> None:
        """Output a text to the user alone, without redaction."""
        await self.person.show(frames.Said(chat=self.chat.id, kind=kind, text=text))

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


Need = Literal["role", "session", "empty session", "no session", "agent", "no agent", "rag"]
"""Condition on the state of the chat."""

Completes = Callable[["Chat", "Caller", Sequence[str]], "list[tuple[str, str]]"]
"""Function that returns completions for the last argument, each with a description."""


AtWork = Callable[["Chat", "Caller", str], bool]
"""Function that returns True if the command may run during a run, for these arguments."""


@dataclass(frozen=True)
class ChatCommand:
    """Command with its conditions.

    Attributes:
        name: with its dot: `.info role`.
        about: description in one line.
        play: handler.
        usage: syntax of its arguments.
        needs: required state of the chat.
        scopes: required scopes of the caller.
        at_work: whether it may run during a run, or a function that decides.
        in_macros: whether a macro may contain it.
        completes: completions of its arguments.
    """

    name: str
    about: str
    play: Callable[[ChatLine], Awaitable[None]] = field(repr=False)
    usage: str = ""
    needs: tuple[Need, ...] = ()
    scopes: tuple[str, ...] = ()
    at_work: bool | AtWork = False
    in_macros: bool = True
    completes: Completes | None = None

    def plays_at_work(self, chat: Chat, caller: Caller, rest: str) -> bool:
        """Return True if the command may run during a run, for these arguments."""
        return self.at_work if isinstance(self.at_work, bool) else self.at_work(chat, caller, rest)

    @property
    def called(self) -> str:
        """Name and syntax: `.set <key> <value>`."""
        return f"{self.name} {self.usage}".rstrip()

    @property
    def when(self) -> str:
        """Condition for its use, in words; "" for any time except during a run."""
        needs = [need if need.startswith(("no ", "empty ")) else f"in a {need}" for need in self.needs]
        needs = [need.replace("in a agent", "in an agent") for need in needs]
        needs += ["also while an answer is written"] if self.at_work else []
        needs += ["not in macros"] if not self.in_macros else []
        return "; ".join(needs)

    def misused(self) -> UsageError:
        """Return the usage error of the command, for a line with wrong arguments."""
        return UsageError(f"Usage: {self.called}")


COMMANDS: dict[str, ChatCommand] = {}

ALIASES = {".quit": ".exit"}
"""Command names of other programs."""


def command(
    name: str,
    about: str,
    *,
    usage: str = "",
    needs: tuple[Need, ...] = (),
    scopes: tuple[str, ...] = (),
    at_work: bool | AtWork = False,
    in_macros: bool = True,
    completes: Completes | None = None,
) -> Callable[[Callable[[ChatLine], Awaitable[None]]], Callable[[ChatLine], Awaitable[None]]]:
    """Return a decorator that registers a command; the arguments are the fields of `ChatCommand`."""

    def register(play: Callable[[ChatLine], Awaitable[None]]) -> Callable[[ChatLine], Awaitable[None]]:
        COMMANDS[name] = ChatCommand(name, about, play, usage, needs, scopes, at_work, in_macros, completes)
        return play

    return register


MISSING: dict[Need, str] = {
    "role": "No role. Select one with `.role NAME`.",
    "session": "No session. Start one with `.session [NAME]`.",
    "agent": "No agent. Select one with `.agent NAME`.",
    "rag": "No RAG. Open a knowledge base with `.rag NAME`.",
    "no session": "Already in a session, please run '.exit session' first to exit the current session.",
    "no agent": "Already in an agent, please run '.exit agent' first to exit the current agent.",
    "empty session": "Cannot perform this operation because the session has messages, please `.empty session` first.",
}
"""Error messages for unmet conditions."""


def check(chat: Chat, wanted: ChatCommand) -> None:
    """Raise `Conflict` if the chat does not meet the command's conditions."""
    holds: dict[Need, bool] = {
        "role": chat.has_role,
        "session": chat.session is not None,
        "agent": chat.agent is not None,
        "rag": chat.rag is not None,
        "no session": chat.session is None,
        # The default agent does not count: it gives way to a role or another agent.
        "no agent": chat.agent is None or chat.in_default_agent,
        "empty session": chat.session is None or chat.session.is_empty,
    }
    for need in wanted.needs:
        if not holds[need]:
            raise Conflict(MISSING[need])
