"""Execution of a chat's lines: commands, shell lines and prompts.

A line is a command (`table`), a shell line (`!`), or a prompt. A prompt becomes a run of the hub, visible in `ps`, the
web page and `_run/*`: of an agent if the chat has one, else of a model with or without a role.

A line that arrives during another one waits for its end, so lines typed ahead stay in order. A command that only reads
state (`at_work`) does not wait. During a run, its agent receives prompts (steering). All other commands are
refused, because they could change the session, agent or role on which the run depends.

An interrupt cancels all earlier lines: one that has not begun never begins, and ends as `cancelled`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import UsageError
from ....protocol.words import unfenced
from .asked import LastPrompt
from .line import ChatLine
from .matching import bare, matched
from .prompting import ask, mentioned, steer
from .shell import play as play_shell
from .table import check

if TYPE_CHECKING:
    from .chat import Chat
    from .order import LineTurn
    from .person import ChatPerson
    from .table import ChatCommand


async def play_in_turn(chat: Chat, text: str, person: ChatPerson, turn: LineTurn) -> frames.LineDone:
    """Execute a line in order of arrival; see `Chat.play_in_turn`."""
    try:
        with turn.waiting:
            if chat.waited_for and _looks(chat, text, person):
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await turn.come()
            return await play(chat, text, person, turn=turn)
    finally:
        turn.leave()
    # Reached only if `turn.waiting` was cancelled, which means an interrupt before the line had begun.
    return frames.LineDone(chat=chat.info(), status="cancelled")


def _looks(chat: Chat, text: str, person: ChatPerson) -> bool:
    """Return True if the line is a command that only reads state."""
    found = matched(text) if text[:1] in (".", "/") else bare(text)
    return found is not None and found[0].plays_at_work(chat, person.caller, found[1])


async def play(
    chat: Chat, text: str, person: ChatPerson, *, in_macro: bool = False, turn: LineTurn | None = None
) -> frames.LineDone:
    """Execute a line; `turn` is left as soon as it has begun."""
    chat.check_open()
    text = unfenced(text)
    if not text.strip():
        return frames.LineDone(chat=chat.info())
    if text.startswith("!"):
        if in_macro:  # macros may be installed from untrusted bundles
            raise UsageError("Cannot perform this operation because you are in a macro: `!`")
        await chat.come_to_rest()
        return await _alone(play_shell, ChatLine(chat, person, text[1:].strip(), turn=turn, in_macro=in_macro))
    found = matched(text) if text[0] in "./" else None if in_macro else bare(text)
    if found is None:
        line = ChatLine(chat, person, text.strip("\n"), turn=turn, in_macro=in_macro)
        if not in_macro:
            await chat.come_to_rest()
        if chat.answering is not None and not in_macro and await steer(line):
            return frames.LineDone(chat=chat.info(), run=chat.answering, steered=True)
        return await _alone(_prompt, line)
    wanted, rest = found
    line = ChatLine(chat, person, rest, wanted, turn=turn, in_macro=in_macro)
    looks = wanted.plays_at_work(chat, person.caller, rest)
    if not (in_macro or looks):
        await chat.come_to_rest()
    _check(line, wanted)
    if looks:
        with chat.looking(line):
            await wanted.play(line)
        return _done(line)
    return await _alone(wanted.play, line)


def _check(line: ChatLine, wanted: ChatCommand) -> None:
    for scope in wanted.scopes:
        line.caller.need(scope)
    if line.rest and not wanted.usage:
        raise wanted.misused()
    if line.in_macro and not wanted.in_macros:
        raise UsageError(f"Cannot perform this operation because you are in a macro: `{wanted.name}`")
    check(line.chat, wanted)


async def _alone(play: Callable[[ChatLine], Any], line: ChatLine) -> frames.LineDone:
    """Execute a line exclusively; a macro's steps run within the macro's own line."""
    if line.in_macro and line.chat.busy:
        await play(line)
        return _done(line)
    with line.chat.taken(line) as scope:
        await play(line)
    if scope.cancelled_caught:
        line.status = "cancelled"
    await line.chat.change(line.person)
    return _done(line)


def _done(line: ChatLine) -> frames.LineDone:
    info = line.chat.info()
    return frames.LineDone(chat=info, run=line.run, status=line.status, leave=line.leave, attach=line.attach)


async def _prompt(line: ChatLine) -> None:
    chat = line.chat
    if chat.session is None and not chat.remembers:
        await chat.memory.empty(chat.hub, line.caller)
    start, chat.asked = chat.place.mark(), LastPrompt(line.rest, chat.brought)
    files, chat.brought = (*chat.brought, *await mentioned(line)), ()
    await ask(line, LastPrompt(line.rest, files), start=start)
