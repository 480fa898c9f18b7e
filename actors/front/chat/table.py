"""The commands of a chat: what each is called, when it may be used, what it does.

    @command(".info role", "Show the active role", needs=("role",), at_work=True)
    async def _info_role(line: Line) -> None:
        await line.say(...)

A module of `commands/` registers those of its family when it is imported; `commands.load` imports them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ....protocol.errors import Conflict, UsageError

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from .chat import Chat
    from .line import Line

Need = Literal["role", "session", "empty session", "no session", "agent", "no agent", "rag"]
"""What a chat has to be in, or not to be in."""

Completes = Callable[["Chat", "Caller", Sequence[str]], "list[tuple[str, str]]"]
"""What may stand in the place of the last of these words behind the name, with what lists say of each."""


AtWork = Callable[["Chat", "Caller", str], bool]
"""Whether a command may be played while a run is under way, with these words behind its name."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: with its dot: `.info role`.
        about: what it does, in one line.
        play: does it.
        usage: what stands behind the name.
        needs: what the chat has to be in.
        scopes: what the caller needs.
        at_work: whether it may be played while a run is under way, or what says so.
        in_macros: whether a macro may play it.
        completes: what may stand behind the name.
    """

    name: str
    about: str
    play: Callable[[Line], Awaitable[None]] = field(repr=False)
    usage: str = ""
    needs: tuple[Need, ...] = ()
    scopes: tuple[str, ...] = ()
    at_work: bool | AtWork = False
    in_macros: bool = True
    completes: Completes | None = None

    def plays_at_work(self, chat: Chat, caller: Caller, rest: str) -> bool:
        """Whether it may be played while a run is under way, with these words behind its name."""
        return self.at_work if isinstance(self.at_work, bool) else self.at_work(chat, caller, rest)

    @property
    def called(self) -> str:
        """The name with what stands behind it: `.set <key> <value>`."""
        return f"{self.name} {self.usage}".rstrip()

    @property
    def when(self) -> str:
        """When it may be used, in words; "" for at any time but while a run answers."""
        needs = [need if need.startswith(("no ", "empty ")) else f"in a {need}" for need in self.needs]
        needs = [need.replace("in a agent", "in an agent") for need in needs]
        needs += ["also while a run answers"] if self.at_work else []
        needs += ["not in macros"] if not self.in_macros else []
        return "; ".join(needs)

    def misused(self) -> UsageError:
        """What to raise where the words behind the name make no sense."""
        return UsageError(f"Usage: {self.called}")


COMMANDS: dict[str, Command] = {}

ALIASES = {".quit": ".exit"}
"""Names that commands have in other programs, where ours have others."""


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
) -> Callable[[Callable[[Line], Awaitable[None]]], Callable[[Line], Awaitable[None]]]:
    """Register a function as a command; the arguments are those of `Command`."""

    def register(play: Callable[[Line], Awaitable[None]]) -> Callable[[Line], Awaitable[None]]:
        COMMANDS[name] = Command(name, about, play, usage, needs, scopes, at_work, in_macros, completes)
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
"""What to say where a chat is not in what is needed."""


def check(chat: Chat, wanted: Command) -> None:
    """Raise `Conflict` where the chat is not in what the command needs."""
    holds: dict[Need, bool] = {
        "role": chat.has_role,
        "session": chat.session is not None,
        "agent": chat.agent is not None,
        "rag": chat.rag is not None,
        "no session": chat.session is None,
        "no agent": chat.agent is None or chat.in_default_agent,
        "empty session": chat.session is None or chat.session.is_empty,
    }
    for need in wanted.needs:
        if not holds[need]:
            raise Conflict(MISSING[need])
