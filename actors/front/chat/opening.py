"""Opening of a chat: agent, role, session and settings, from the client's request or the preludes of config.yaml.

The order of the steps matters. Preludes apply only if the request names none of agent, role and session. A stored chat
or a named agent precedes the default agent. The model is set twice: first for the checks of the agent, then in the
scope that the agent, role or session has created.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ....protocol.control import chat as frames
from ....protocol.control.errors import error_for_client
from ....protocol.errors import CallboardError, NotFound, UsageError
from ....protocol.settings.prelude import prelude_of
from ...runs.sessions.names import as_id
from .command_line import ChatLine, SaidKind
from .commands.agent import begin_agent
from .commands.rag import use_rag
from .commands.resume import last_exchange, reopen, stores
from .commands.role import use_prompt, use_role
from .commands.session import enter
from .commands.settings import set_model
from .default_agent import begin_default
from .execution import execute_line
from .prompting import interrupted_notice

if TYPE_CHECKING:
    from .chat import Chat
    from .clients import ClientPort


async def opened(chat: Chat, person: ClientPort, wanted: frames.OpenChat) -> list[str]:
    """Prepare a new chat as requested; returns the notices for the user.

    Raises:
        CallboardError: a part of the request cannot be satisfied.
    """
    line = ChatLine(chat, person, "")
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
    # Again: the first call set the chat's model, which a session, role or agent overrides.
    if wanted.model is not None and chat.scoped:
        await set_model(line, wanted.model)
    if wanted.empty_session and chat.session is not None:
        await chat.session.empty(chat.hub, person.caller)
    if wanted.save_session is not None and chat.session is not None:
        # A choice for this chat only: the session's file keeps its own setting.
        if wanted.save_session is False and chat.session.kept:
            chat.session = chat.session.apart()
        async with chat.session.change(chat.hub, person.caller) as changed:
            changed.save_session = wanted.save_session
    if wanted.rag is not None:
        await use_rag(line, wanted.rag)
    if wanted.files or wanted.attach:
        person.caller.need("run:files")
        chat.pending_files = (*wanted.files, *wanted.attach)
    if wanted.macro is not None:
        person.caller.need("write:runs")
        await execute_line(chat, f".macro {shlex.join([wanted.macro, *wanted.macro_arguments])}", person)
    gateway = chat.hub.root.gateway
    # Only for the automatic choice: a model that the user names has its own error.
    if chat.agent is None and chat.model_in_use == gateway.choice().model and (missing := gateway.lacks_model()):
        notes.append(missing)
    return [*notes, *interrupted_notice(line)]


def seen_again(chat: Chat) -> list[tuple[SaidKind, str]]:
    """Return the output for a user who reopens a session with messages, if the chat is stored."""
    return last_exchange(chat) if chat.stores else []


async def _by_default(line: ChatLine, wanted: frames.OpenChat) -> list[str] | None:
    """Begin in the default agent if it applies; returns the first lines of the screen, else None."""
    chat, session = line.chat, wanted.session
    named = wanted.role or wanted.role_prompt or wanted.macro or chat.has_role or chat.session is not None
    if not wanted.default_agent or named:
        return None
    # A session given by its id, or one outside of agents, must not be opened within the default agent.
    if session and (as_id(session) is not None or await _is_agentless(line, session)):
        return None
    first = await begin_default(line, session, wanted.variables)
    if first is not None and session is not None and not chat.in_default_agent:
        await enter(line, session, asks=False)
    return first


async def _is_agentless(line: ChatLine, session: str) -> bool:
    """Return True if a session of this name exists outside of agents."""
    try:
        await line.root.sessions.get(line.caller, session, agent=None)
    except NotFound:
        return False
    return True


async def _with_prelude(line: ChatLine) -> list[str]:
    """Apply `repl_prelude`; an error in it is returned as a notice and does not prevent the chat."""
    chat = line.chat
    try:
        prelude = prelude_of(chat.hub.root.settings, "repl_prelude")
        if prelude.session is not None:
            await enter(line, prelude.session, asks=False)
        if prelude.role is not None and (chat.session is None or chat.session.is_empty):
            await use_role(line, prelude.role)
    except CallboardError as error:
        return [f"`repl_prelude`: {error_for_client(line.caller, error)}"]
    return []
