"""Command table of the chat: names, conditions, and handlers.

    @command(".info role", "Show the active role", needs=("role",), at_work=True)
    async def _info_role(line: ChatLine) -> None:
        await line.say(...)

Each module of `commands/` registers the commands of its family on import; `commands.load` imports them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ....protocol.errors import Conflict, UsageError

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from .chat import Chat
    from .line import ChatLine

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
        needs += ["also while a run answers"] if self.at_work else []
        needs += ["not in macros"] if not self.in_macros else []
        return "; ".join(needs)

    def misused(self) -> UsageError:
        """Return the usage error."""
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
    "role": "No role. `.role NAME` takes one on.",
    "session": "No session. `.session [NAME]` starts one.",
    "agent": "No agent. `.agent NAME` starts one.",
    "rag": "No RAG. `.rag NAME` opens one.",
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
