"""How a chat begins: in an agent, a role, a session, as its client or the preludes of config.yaml say."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ....protocol.control import chat as frames
from ....protocol.control.errors import told_to
from ....protocol.errors import CallboardError, NotFound, UsageError
from ....protocol.settings.prelude import prelude_of
from ...runs.sessions.names import as_id
from .commands.agent import begin_agent
from .commands.rag import use_rag
from .commands.role import use_prompt, use_role
from .commands.session import enter
from .commands.settings import set_model
from .default_agent import begin_default
from .interrupted_turns import told_of_interrupted
from .line import Line, SaidKind
from .reopening import last_exchange, reopen, stores

if TYPE_CHECKING:
    from .chat import Chat
    from .person import Person


async def opened(chat: Chat, person: Person, wanted: frames.OpenChat) -> list[str]:
    """Bring a new chat into what is wanted of it; what the person should know first.

    Raises:
        CallboardError: that can't be.
    """
    line = Line(chat, person, "")
    notes = [str(problem) for problem in chat.hub.root.problems]
    chat.warned.update(notes)
    role, session = wanted.role, wanted.session
    named = (role, wanted.role_prompt, session, wanted.agent)
    if wanted.preludes and all(each is None for each in named):
        notes += await _with_prelude(line)
    if role is not None and wanted.role_prompt is not None:
        raise UsageError(f"a chat begins in a role ('{role}') or with a prompt for one, not in both")
    if wanted.model is not None:
        await set_model(line, wanted.model)
    chat.stores = wanted.store and stores(chat, person.caller)
    if wanted.reopen is not None and await reopen(line, wanted.reopen):
        pass
    elif wanted.agent is not None:
        if role is not None or wanted.role_prompt is not None:
            raise UsageError(f"a role is for a chat without an agent, and in this one '{wanted.agent}' answers")
        await begin_agent(line, wanted.agent, session, wanted.variables)
    elif (first := await _by_default(line, wanted)) is not None:
        notes = [*first, *notes]
    elif session is not None:
        await enter(line, session, asks=False)
    if role is not None and (chat.session is None or chat.session.is_empty):
        await use_role(line, role)
    if wanted.role_prompt is not None:
        await use_prompt(line, wanted.role_prompt)
    if wanted.model is not None and chat.scoped:
        await set_model(line, wanted.model)
    if wanted.empty_session and chat.session is not None:
        await chat.session.empty(chat.hub, person.caller)
    if wanted.save_session is not None and chat.session is not None:
        if wanted.save_session is False and chat.session.kept:  # which is for this chat; its file says nothing of it
            chat.session = chat.session.apart()
        async with chat.session.change(chat.hub, person.caller) as changed:
            changed.save_session = wanted.save_session
    if wanted.rag is not None:
        await use_rag(line, wanted.rag)
    if wanted.files or wanted.attach:
        person.caller.need("run:files")
        chat.brought = (*wanted.files, *wanted.attach)
    if wanted.macro is not None:
        person.caller.need("write:runs")
        await chat.play(f".macro {shlex.join([wanted.macro, *wanted.macro_arguments])}", person)
    gateway = chat.hub.root.gateway
    if chat.agent is None and chat.model_in_use == gateway.choice().model and (missing := gateway.lacks_model()):
        notes.append(missing)
    return [*notes, *told_of_interrupted(line)]


def seen_again(chat: Chat) -> list[tuple[SaidKind, str]]:
    """What the person sees of a session in which something was said, if the chat is one that is stored."""
    return last_exchange(chat) if chat.stores else []


async def _by_default(line: Line, wanted: frames.OpenChat) -> list[str] | None:
    """Begin in the default agent, if it is the chat's turn to have one: the first lines of the screen, else None."""
    chat, session = line.chat, wanted.session
    named = wanted.role or wanted.role_prompt or wanted.macro or chat.has_role or chat.session is not None
    if not wanted.default_agent or named:
        return None
    if session and (as_id(session) is not None or await _is_agentless(line, session)):
        return None
    first = await begin_default(line, session, wanted.variables)
    if first is not None and session is not None and not chat.in_default_agent:
        await enter(line, session, asks=False)
    return first


async def _is_agentless(line: Line, session: str) -> bool:
    """Whether there is a session of this name that no agent has."""
    try:
        await line.root.sessions.get(line.caller, session, agent=None)
    except NotFound:
        return False
    return True


async def _with_prelude(line: Line) -> list[str]:
    """What `repl_prelude` says; what is wrong with it, or with what it names, keeps no chat from beginning."""
    chat = line.chat
    try:
        prelude = prelude_of(chat.hub.root.settings, "repl_prelude")
        if prelude.session is not None:
            await enter(line, prelude.session, asks=False)
        if prelude.role is not None and (chat.session is None or chat.session.is_empty):
            await use_role(line, prelude.role)
    except CallboardError as error:
        return [f"`repl_prelude`: {told_to(line.caller, error)}"]
    return []
