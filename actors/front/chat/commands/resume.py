"""`.resume`: resume an interrupted answer, or reopen a stored chat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.chat import UserTurn, text_of
from .....protocol.errors import Conflict, NotFound
from .....protocol.relative_time import age, seconds_since
from .....protocol.session import Session, turns_of
from ....runs.sessions.names import is_automatic
from ....views.money import usd
from ..chat_storage import ChatStorage, LastPrompt
from ..command_line import ChatLine, command
from ..prompting import interrupted_notice, resumable_turns, resume_turn
from .agent import begin_agent, default_agent_of
from .session import leave

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ....runs.sessions.store import SessionMeta
    from ..chat import Chat
    from ..command_line import ChatLine, SaidKind


@command(".resume", "Continue an interrupted answer, or an earlier chat")
async def _resume(line: ChatLine) -> None:
    found = resumable_turns(line)
    if not found and not line.chat.stores:
        raise Conflict("No answer of this session was interrupted.")
    if not found:
        await _reopen(line)
        return
    run = found[-1]
    await resume_turn(line, run.run, LastPrompt(run.about.prompt if run.about is not None else ""))


async def _reopen(line: ChatLine) -> None:
    if not await reopen(line, CHOOSE):
        await line.note("no chat was selected")
        return
    for kind, text in last_exchange(line.chat):
        await line.say(text, kind)
    for note in interrupted_notice(line):
        await line.note(note)


LAST, CHOOSE = "last", "choose"
"""Values in place of an id: the newest chat of this directory, and one chosen by the user."""

MOST_LISTED = 200
SHOWN_ROWS = 5
"""Rows of the last prompt shown by a reopened chat; its answer is shown completely."""

_TITLE = 60


def stores(chat: Chat, caller: Caller) -> bool:
    """Return True if a new chat is stored: not in Loki's mode, and not for a caller who may not write sessions."""
    return chat.settings.other.get("compat") != "loki" and caller.has("write:sessions")


async def stored_chats(line: ChatLine) -> list[SessionMeta]:
    """Return the sessions that were chats, newest first."""
    found = await line.root.sessions.list(line.caller)
    return [meta for meta in found if meta.cwd is not None][:MOST_LISTED]


async def reopen(line: ChatLine, which: str) -> bool:
    """Replace the state of this chat by a stored one; returns False if the user has chosen none.

    Args:
        which: the session's id, or `LAST` or `CHOOSE`.

    Raises:
        NotFound: there is no such chat.
        CallboardError: its agent cannot start.
    """
    if which == CHOOSE:
        id = await _chosen(line)
    elif which == LAST:
        id = await _newest(line)
    else:
        id = which
    if id is None:
        return False
    await _enter(line, id)
    return True


async def _newest(line: ChatLine) -> str:
    here = str(Path.cwd())
    for meta in await stored_chats(line):
        if meta.cwd == here:
            return meta.id
    raise NotFound(f"no chat of {here} is stored; list those of other directories with `callboard --resume`")


async def _chosen(line: ChatLine) -> str | None:
    known = [meta for meta in await stored_chats(line) if meta.id != line.chat.place.stored.id]
    if not known:
        raise NotFound("no earlier chat is stored")
    titles: dict[str, str] = {}
    for meta in known:
        title = " ".join((meta.alias if meta.alias and not is_automatic(meta.alias) else meta.title or meta.id).split())
        title = title if len(title) <= _TITLE else f"{title[: _TITLE - 3]}..."
        number = 2
        unique = title
        # Options are texts, so equal titles need a number to be distinguishable.
        while unique in titles:
            unique, number = f"{title} ({number})", number + 1
        titles[unique] = meta.id
    chosen = await line.choose("Which chat?", list(titles), [_about(meta) for meta in known])
    return None if chosen is None else titles[chosen]


def _about(meta: SessionMeta) -> str:
    """Return time, directory, agent or model, and cost of a stored chat."""
    where = Path(meta.cwd or "")
    home = Path.home()
    shown = f"~/{where.relative_to(home)}" if where.is_relative_to(home) and where != home else str(where)
    parts = [f"{age(seconds_since(meta.last_modified))} ago", shown, meta.agent or meta.model or ""]
    parts += [usd(meta.cost)] if meta.cost else []  # 0 may mean an unknown price
    return ", ".join(filter(None, parts))


async def _enter(line: ChatLine, id: str) -> None:
    chat = line.chat
    if chat.session is not None:
        await leave(line)
    stored = await line.root.sessions.get(line.caller, id)
    target = stored.session.other.get("target") if stored.agent is not None else None
    # `target` is the agent as the user named it, which may be a path; `stored.agent` is only its name.
    agent = target if isinstance(target, str) else stored.agent
    if agent is not None:
        await begin_agent(line, agent, None, dict(stored.session.agent_variables), own_session=False)
        chat.in_default_agent = agent == default_agent_of(chat.settings)
    else:
        chat.leave_agent()
    place = ChatStorage.of(stored, chat.settings)
    chat.last_prompt, chat.reply, chat.title = None, place.last_reply, stored.session.title
    # A named session becomes the chat's session; an unnamed one continues as the conversation outside of sessions.
    if stored.alias is not None and not is_automatic(stored.alias):
        chat.session = place
    else:
        chat.memory = place
    rag = stored.session.other.get("rag")
    if isinstance(rag, str) and rag:
        chat.rag = rag


def last_exchange(chat: Chat) -> list[tuple[SaidKind, str]]:
    """Return the output for a reopened chat: its counts, its last prompt and the answer."""
    place = chat.place
    if place.is_empty:
        return []
    session, window = place.session, chat.window_of(chat.model_in_use)
    share = f" ({100 * place.tokens // window} % of the context window)" if window else ""
    counts = [f"{place.turns} answer{'' if place.turns == 1 else 's'}", f"about {place.tokens:,} tokens{share}"]
    counts += [usd(session.meta.cost)] if session.meta.cost else []
    title = place.stored.alias if chat.session is not None else session.title
    said: list[tuple[SaidKind, str]] = [("note", f"Reopened{f' {title!r}' if title else ''}: {', '.join(counts)}.")]
    turns = turns_of(Session(messages=place.last_exchange()))
    if turns and isinstance(turns[0], UserTurn):
        rows = text_of(turns[0].content).strip().splitlines()
        shown = rows if len(rows) <= SHOWN_ROWS else [*rows[:SHOWN_ROWS], "..."]
        said.append(("echo", "\n".join(f"> {row}" for row in shown)))
    if place.last_reply:
        said.append(("markdown", place.last_reply))
    return said
