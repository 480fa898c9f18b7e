"""Sessions: `.session`, commands for the current session, and `.exit`, which leaves the session with the chat."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import Conflict, NotFound, UsageError
from .....protocol.session import Session, read_session, turns_of, write_session
from ....io.secret_redaction import without_secrets
from ....runs.session_run import keep_unnamed
from ....runs.sessions.names import TEMP, checked_alias
from ....runs.sessions.roles import change_role, name_of, prompt_of
from ....runs.sessions.session_locks import forget_all
from ....runs.sessions.summary import compressed
from ....work.agent.history import turn_as_text
from .. import completion
from ..chat_storage import ChatStorage, wish
from ..command_line import MISSING, ChatLine, command
from ..prompting import about_chat, announce_shortening, interrupted_notice, shortened_by
from .info import table

if TYPE_CHECKING:
    from ..chat import Chat


CARRY_OVER = "Start a session that incorporates the last question and answer?"


@command(
    ".session",
    "Start a session, or continue one",
    usage="[name]",
    needs=("no session",),
    completes=lambda chat, caller, words: completion.sessions(chat, caller) if len(words) < 2 else [],
)
async def _session(line: ChatLine) -> None:
    await enter(line, line.rest)
    for note in interrupted_notice(line):
        await line.note(note)


async def enter(line: ChatLine, name: str, *, asks: bool = True) -> None:
    """Enter a session; "" is a temporary one.

    Args:
        asks: whether to ask the user if the last exchange is copied into the session.
    """
    chat = line.chat
    memory = chat.memory
    place = await _opened(line, name)
    last = memory.last_exchange()
    if asks and last and place.is_empty and not line.in_macro and await line.confirm(CARRY_OVER):
        async with place.change(line.hub, line.caller) as session:
            session.messages = [*session.messages, *last]
    if place.is_empty and chat.agent is None and chat.has_role:
        role, prompt = chat.role, chat.role_prompt
        async with place.change(line.hub, line.caller) as session:
            change_role(session, role, prompt)
    chat.session, chat.last_prompt = place, None
    if place.session.agent_variables and chat.agent is not None:
        # Values given on the command line override the session's.
        chat.variables = {**place.session.agent_variables, **chat.variables}
    rag = place.session.other.get("rag")
    if isinstance(rag, str) and rag and chat.rag is None:
        chat.rag = rag


async def _opened(line: ChatLine, name: str) -> ChatStorage:
    chat = line.chat
    scope = chat.memory.stored.agent
    if not name or name == TEMP:
        return ChatStorage.in_memory(scope, temporary=True)
    sessions = line.root.sessions
    line.caller.need("write:sessions")
    try:
        stored = await sessions.get(line.caller, name, agent=scope)
    except NotFound:
        if _wish(chat, Session()) is False:
            return ChatStorage.in_memory(scope, alias=checked_alias(name))
        store = sessions.store
        stored = await trio.to_thread.run_sync(
            lambda: store.open_or_create_by_alias(name, scope, lambda: _new(chat), caller=line.caller)
        )
    return ChatStorage.of(stored, chat.settings)


def _new(chat: Chat) -> Session:
    return Session(other=about_chat(chat) if chat.stores else {})


def _wish(chat: Chat, session: Session) -> bool | None:
    return wish(session, chat.settings)


def _to_keep(chat: Chat, session: Session) -> None:
    """Set the session to be saved, because naming it expresses that wish; this overrides an earlier choice."""
    if _wish(chat, session) is False:
        session.save_session = None
    if _wish(chat, session) is False:  # the configuration disables it, too
        session.save_session = True


@command(".clear", "Begin a new conversation; the present one stays stored")
async def _clear(line: ChatLine) -> None:
    chat = line.chat
    if line.rest:  # a typing error in `.clear todo` must not end the conversation
        raise UsageError("Usage: .clear, or .clear todo")
    stored = chat.place.kept and not chat.place.is_empty
    if chat.session is not None:
        await leave(line)
    memory = deepcopy(chat.memory.session)  # a copy: model, role and settings remain
    forget_all(memory)
    memory.meta, memory.title = type(memory.meta)(), None
    chat.memory = ChatStorage.in_memory(chat.memory.stored.agent, memory)
    chat.last_prompt = chat.reply = chat.title = None
    await line.note("A new conversation begins." + (" List the earlier ones with `.resume`." if stored else ""))


@command(".empty session", "Remove all messages of the session", needs=("session",))
async def _empty(line: ChatLine) -> None:
    await _now(line.chat).empty(line.hub, line.caller)


def _now(chat: Chat) -> ChatStorage:
    assert chat.session is not None
    return chat.session


@command(".compress session", "Replace the messages of the session by a summary", needs=("session",))
async def _compress_session(line: ChatLine) -> None:
    await _compress(line)


@command(".compact", "Replace the messages by a summary, also without a session")
async def _compress(line: ChatLine) -> None:
    chat, place, before = line.chat, line.chat.place, line.chat.place.tokens
    try:
        await announce_shortening(line)
        if place.kept:
            done = await line.root.sessions.compress(line.caller, place.stored.id)
            await place.refresh(line.hub, line.caller)
        else:
            model, payer = chat.model_in_use or None, line.caller.subject
            done = await compressed(line.root, place.session, place.stored.agent, model, payer=payer)
    finally:
        chat.doing = None
    place.starts.clear()
    await line.note(shortened_by(before, place.tokens) if done else "The conversation is too short to be compressed.")


@command(".info session", "Show the session", needs=("session",), at_work=True)
async def _info(line: ChatLine) -> None:
    place = _now(line.chat)
    session = place.session
    rows: list[tuple[str, object]] = [
        ("session", place.name),
        ("id", place.stored.id if place.kept else None),
        ("title", session.title),
        ("agent", place.stored.agent),
        ("role", name_of(session) or ("temp" if prompt_of(session) else None)),
        ("model", session.model),
        ("answers", place.turns),
        ("tokens", place.tokens),
        *((key, getattr(session, key)) for key in _SHOWN),
    ]
    said = "\n\n".join(turn_as_text(turn) for turn in turns_of(session))
    await line.say(table((name, value) for name, value in rows if value is not None) + (f"\n\n{said}" if said else ""))


_SHOWN = (
    "temperature",
    "top_p",
    "enabled_tools",
    "enabled_mcp_servers",
    "save_session",
    "compression_threshold",
    "auto_continue",
    "max_auto_continues",
)


@command(".edit session", "Edit the session's file", needs=("session",), scopes=("run:files",), in_macros=False)
async def _edit(line: ChatLine) -> None:
    place = _now(line.chat)
    called = f"session '{place.name}'"
    text = write_session(without_secrets(place.session))  # exactly as in its file
    edited = await line.edit_until(f"{place.name}.yaml", text, lambda edited: read_session(edited, called))
    if edited is None:
        return
    new = read_session(edited, called)
    async with place.change(line.hub, line.caller) as session:
        for key in Session.__struct_fields__:
            if key != "meta":
                setattr(session, key, getattr(new, key))
    place.starts.clear()


@command(".save session", "Save the session under a name", usage="[name]")
async def _save(line: ChatLine) -> None:
    chat = line.chat
    if chat.session is None and chat.memory.kept:  # a name turns a stored chat into a session
        chat.session, chat.memory = chat.memory, ChatStorage.in_memory(chat.memory.stored.agent)
    if chat.session is None:
        raise Conflict(MISSING["session"])
    await save(line, line.rest)


async def save(line: ChatLine, name: str) -> None:
    """Save the chat's session under a name; without one, a model chooses it."""
    place = _now(line.chat)
    line.caller.need("write:sessions")
    sessions = line.root.sessions
    if place.kept:
        if not name:
            await line.note(f"The session was saved as '{place.name}'.")
        elif name != place.name:
            await sessions.rename(line.caller, place.stored.id, name)
            before = place.name
            await place.refresh(line.hub, line.caller)
            await line.note(
                f"The session was renamed from '{before}' to '{place.name}'; to make a copy, use `.fork NAME`."
            )
        return
    session = deepcopy(place.session)
    _to_keep(line.chat, session)
    agent = place.stored.agent
    if not name:
        model = line.chat.model_in_use or None
        stored = await keep_unnamed(line.root, session, agent=agent, model=model, caller=line.caller)
    else:
        stored = await trio.to_thread.run_sync(lambda: sessions.store.create(agent, name, session, caller=line.caller))
    starts, line.chat.session = place.starts, ChatStorage(stored, kept=True)
    line.chat.session.starts = starts
    await line.note(f"The session was saved as '{line.chat.session.name}'.")


@command(".exit session", "Leave the session", needs=("session",))
async def _exit(line: ChatLine) -> None:
    await leave(line)


async def leave(line: ChatLine) -> None:
    """Leave the session; a temporary one is saved according to `save_session`, or as the user decides."""
    chat = line.chat
    place = _now(chat)
    keeps = _wish(chat, place.session)
    ends = place.temporary and not place.is_empty and keeps is not False
    if ends and not line.caller.has("write:sessions"):
        await line.note("The session was not saved, because the scope 'write:sessions' is missing.")
    elif ends:
        name: str | None = ""
        if keeps is None:
            if line.in_macro or not await line.confirm("Save session?"):
                name = None
            else:
                name = await line.ask("Session name (leave empty to get one automatically):", default="")
        if name is not None:
            await save(line, name)
    # A named session that was not saved at first.
    elif keeps is True and place.stored.id == TEMP and not place.is_empty:
        await save(line, place.name)
    chat.session = chat.last_prompt = None
    if chat.agent is None:
        chat.rag = None if chat.rag and chat.rag == place.session.other.get("rag") else chat.rag


@command(".fork", "Continue in a copy of the conversation", usage="[name]")
async def _fork(line: ChatLine) -> None:
    chat, place = line.chat, line.chat.place
    if place.is_empty:
        raise Conflict("there is nothing to fork: the conversation has no messages yet")
    # A round trip through the file format copies exactly the fields that a session file stores.
    copy = read_session(write_session(place.session), "the session")
    copy.meta = type(copy.meta)()
    if not line.rest:
        chat.session = ChatStorage.in_memory(place.stored.agent, copy, temporary=True)
    else:
        line.caller.need("write:sessions")
        _to_keep(chat, copy)
        store = line.root.sessions.store
        stored = await trio.to_thread.run_sync(
            lambda: store.create(place.stored.agent, line.rest, copy, caller=line.caller)
        )
        chat.session = ChatStorage(stored, kept=True)
    chat.session.starts = [replace(each) for each in place.starts]
    await line.note(f"This chat now continues in a copy: session '{chat.session.name}'.")


@command(".exit", "Leave the chat", usage="[role|session|agent|rag]")
async def _exit_chat(line: ChatLine) -> None:
    if line.rest:
        raise line.misused()
    if line.chat.session is not None:
        await leave(line)
    line.leave = True
