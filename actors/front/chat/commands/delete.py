"""`.delete`: delete roles, sessions, knowledge bases, macros, and sessions of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from .....protocol.errors import Conflict, NotFound
from .....protocol.problems import did_you_mean
from ....io.named_files import NamedFiles
from ....work.knowledge import registry
from ....work.macros import FILES as MACROS
from ....work.roles import FILES as ROLES
from ..command_line import ChatLine, command

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat

T = TypeVar("T")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of object that `.delete` can delete, with its names and its function.

    Attributes:
        called: name of the kind for users.
        names: returns the existing names.
        delete: deletes the object of a name.
        scopes: required scopes of the caller.
        of: prefix for users if only a part is deleted; "" for all of it.
    """

    called: str
    names: Callable[[ChatLine], Awaitable[list[str]]]
    delete: Callable[[ChatLine, str], Awaitable[None]]
    scopes: tuple[str, ...]
    of: str = ""


def _files(files: NamedFiles[T], scope: str) -> Kind:
    async def names(line: ChatLine) -> list[str]:
        places = await trio.to_thread.run_sync(files.places, line.root.config_dir)
        # Built-in files belong to the program and cannot be deleted.
        return [place.name for place in places if not place.built_in]

    async def delete(line: ChatLine, name: str) -> None:
        if files is ROLES and name == line.chat.role:
            raise Conflict(f"the chat uses the role '{name}'; leave it first with `.exit role`")
        await trio.to_thread.run_sync(files.delete, name, line.root.config_dir)

    return Kind(called=files.kind, names=names, delete=delete, scopes=(scope,))


async def _sessions(line: ChatLine) -> list[str]:
    agent = line.chat.agent
    found = await line.root.sessions.list(line.caller, agent=agent, everywhere=False)
    return [meta.alias or meta.id for meta in found]


async def _delete_session(line: ChatLine, name: str) -> None:
    if line.chat.session is not None and name in (line.chat.session.name, line.chat.session.stored.id):
        raise Conflict(f"the chat uses the session '{name}'; leave it first with `.exit session`")
    await line.root.sessions.delete(line.caller, name, agent=line.chat.agent)


async def _bases(line: ChatLine) -> list[str]:
    return await trio.to_thread.run_sync(registry.names, line.root.config_dir)


async def _delete_base(line: ChatLine, name: str) -> None:
    if name == line.chat.rag:
        raise Conflict(f"the chat uses the knowledge base '{name}'; leave it first with `.exit rag`")
    recipe = await trio.to_thread.run_sync(registry.named, name, line.root.config_dir)
    # The index first: if this fails, the recipe file still names the base.
    await line.root.knowledge.drop(recipe)
    file = registry.file_of(name, line.root.config_dir)
    if file is not None:
        await trio.to_thread.run_sync(partial(file.unlink, missing_ok=True))


async def _agents(line: ChatLine) -> list[str]:
    """Return the agents with sessions."""
    found = await line.root.sessions.list(line.caller)
    return sorted({meta.agent for meta in found if meta.agent is not None})


async def _delete_agent_data(line: ChatLine, name: str) -> None:
    if name == line.chat.agent:
        raise Conflict(f"the chat uses the agent '{name}'; leave it first with `.exit agent`")
    for meta in await line.root.sessions.list(line.caller, agent=name):
        await line.root.sessions.delete(line.caller, meta.id, agent=name)


KINDS: dict[str, Kind] = {
    "role": _files(ROLES, "write:roles"),
    "session": Kind(called="session", names=_sessions, delete=_delete_session, scopes=("write:sessions",)),
    "rag": Kind(called="knowledge base", names=_bases, delete=_delete_base, scopes=("run:files",)),
    "macro": _files(MACROS, "run:files"),
    "agent-data": Kind(
        called="agent with sessions",
        of="the sessions of ",
        names=_agents,
        delete=_delete_agent_data,
        scopes=("write:sessions",),
    ),
}


_ABOUT = {"rag": "a knowledge base, with its built index", "agent-data": "the sessions of an agent"}


def _completed(_chat: Chat, _caller: Caller, words: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, _ABOUT.get(name, "")) for name in KINDS] if len(words) == 1 else []


@command(
    ".delete",
    "Delete a role, session, macro or knowledge base permanently",
    usage="<role|session|rag|macro|agent-data> [name]",
    completes=_completed,
)
async def _delete(line: ChatLine) -> None:
    word, _, name = line.rest.partition(" ")
    kind, name = KINDS.get(word), name.strip()
    if kind is None:
        raise line.misused()
    for scope in kind.scopes:
        line.caller.need(scope)
    known = await kind.names(line)
    if not known:
        raise NotFound(f"there is no {kind.called} to delete")
    if name and name not in known:
        hint = did_you_mean(name, known) or f"list the names with .delete {word}"
        raise NotFound(f"there is no {kind.called} '{name[:60]}' to delete; {hint}")
    which = f"Delete {kind.of}which {word.partition('-')[0] if kind.of else kind.called}?"
    chosen = [name] if name else await line.choose_several(which, known)
    if not chosen:
        await line.note("nothing was deleted")
        return
    # Always confirmed, even for a name on the command line: nothing deleted here can be restored.
    if not await line.confirm(f"Delete {kind.of}{', '.join(chosen)} for good?"):
        await line.note("nothing was deleted")
        return
    for each in chosen:
        await kind.delete(line, each)
        await line.note(f"deleted {kind.of or f'{kind.called} '}'{each}'")
