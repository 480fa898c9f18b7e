"""What becomes of a line of a chat: a command, a line for the shell, or a prompt; when it is at work.

A line is a command (`table`), a line for the shell (`!`), or a prompt. A prompt is a run of the hub, as `ps`, the page
and `_run/*` show it: of an agent if the chat is in one, else of a model, in a role or without.

A line that comes while another is at work waits for its end, so that lines typed ahead keep their order; a command that
only looks (`at_work`) does not. While a run answers, its agent reads a prompt (steering), and what would change
the ground that the run stands on is refused.

An interrupt concerns all lines that came before it: one that has not begun never will, and ends as `cancelled`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import UsageError
from ....protocol.words import unfenced
from .asked import Prompt
from .line import Line
from .matching import bare, matched
from .prompting import ask, mentioned, steer
from .shell import play as play_shell
from .table import check

if TYPE_CHECKING:
    from .chat import Chat
    from .order import Turn
    from .person import Person
    from .table import Command


async def play_in_turn(chat: Chat, text: str, person: Person, turn: Turn) -> frames.LineDone:
    """See `Chat.play_in_turn`."""
    try:
        with turn.waiting:
            if chat.waited_for and _looks(chat, text, person):
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await turn.come()
            return await play(chat, text, person, turn=turn)
    finally:
        turn.leave()
    return frames.LineDone(chat=chat.info(), status="cancelled")  # interrupted before it had begun


def _looks(chat: Chat, text: str, person: Person) -> bool:
    """Whether a line is a command that may be played at any time."""
    found = matched(text) if text[:1] in (".", "/") else bare(text)
    return found is not None and found[0].plays_at_work(chat, person.caller, found[1])


async def play(
    chat: Chat, text: str, person: Person, *, in_macro: bool = False, turn: Turn | None = None
) -> frames.LineDone:
    """See `Chat.play`; `turn` is left as soon as the line has begun."""
    chat.check_open()
    text = unfenced(text)
    if not text.strip():
        return frames.LineDone(chat=chat.info())
    if text.startswith("!"):
        if in_macro:  # which may have come from others, in a bundle
            raise UsageError("Cannot perform this operation because you are in a macro: `!`")
        await chat.come_to_rest()
        return await _alone(play_shell, Line(chat, person, text[1:].strip(), turn=turn, in_macro=in_macro))
    found = matched(text) if text[0] in "./" else None if in_macro else bare(text)
    if found is None:
        line = Line(chat, person, text.strip("\n"), turn=turn, in_macro=in_macro)
        if not in_macro:
            await chat.come_to_rest()
        if chat.answering is not None and not in_macro:
            return await _steer(line)
        return await _alone(_prompt, line)
    wanted, rest = found
    line = Line(chat, person, rest, wanted, turn=turn, in_macro=in_macro)
    looks = wanted.plays_at_work(chat, person.caller, rest)
    if not (in_macro or looks):
        await chat.come_to_rest()
    _check(line, wanted)
    if looks:
        with chat.looking(line):
            await wanted.play(line)
        return _done(line)
    return await _alone(wanted.play, line)


def _check(line: Line, wanted: Command) -> None:
    for scope in wanted.scopes:
        line.caller.need(scope)
    if line.rest and not wanted.usage:
        raise wanted.misused()
    if line.in_macro and not wanted.in_macros:
        raise UsageError(f"Cannot perform this operation because you are in a macro: `{wanted.name}`")
    check(line.chat, wanted)


async def _alone(play: Callable[[Line], Any], line: Line) -> frames.LineDone:
    """Play what no other line may be at work beside; a macro's lines are at work within the line that plays it."""
    if line.in_macro and line.chat.busy:
        await play(line)
        return _done(line)
    with line.chat.taken(line) as scope:
        await play(line)
    if scope.cancelled_caught:
        line.status = "cancelled"
    await line.chat.change(line.person)
    return _done(line)


def _done(line: Line) -> frames.LineDone:
    info = line.chat.info()
    return frames.LineDone(chat=info, run=line.run, status=line.status, leave=line.leave, attach=line.attach)


async def _prompt(line: Line) -> None:
    chat = line.chat
    if chat.session is None and not chat.remembers:
        await chat.memory.empty(chat.hub, line.caller)
    start, chat.asked = chat.place.mark(), Prompt(line.rest, chat.brought)
    files, chat.brought = (*chat.brought, *await mentioned(line)), ()
    await ask(line, Prompt(line.rest, files), start=start)


async def _steer(line: Line) -> frames.LineDone:
    await steer(line)
    return frames.LineDone(chat=line.chat.info(), run=line.chat.answering, steered=True)
