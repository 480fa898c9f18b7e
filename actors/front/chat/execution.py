"""Execution of a chat's lines: commands, shell lines and prompts.

A line is a command (`command_line`), a shell line (`!`), or a prompt. A prompt becomes a run of the hub, visible in
`ps`, the web page and `_run/*`: of an agent if the chat has one, else of a model with or without a role.

A line that arrives during another one waits for its end, so lines typed ahead stay in order. A command that only reads
state (`at_work`) does not wait. During a run, its agent receives prompts (steering). All other commands are
refused, because they could change the session, agent or role on which the run depends.

An interrupt cancels all earlier lines: one that has not begun never begins, and ends as `cancelled`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import UsageError
from ....protocol.problems import did_you_mean
from ....protocol.words import unfenced
from .chat_storage import LastPrompt
from .command_line import ALIASES, COMMANDS, ChatCommand, ChatLine, check
from .commands import load
from .prompting import ask, mentioned, steer
from .shell import play as play_shell

if TYPE_CHECKING:
    from .chat import Chat
    from .clients import ClientPort
    from .command_line import ChatCommand
    from .input_queue import LineTurn


# Fills the registry: commands register on import.
load()

UNKNOWN = 'Unknown command. Type ".help" for additional help.'

BARE = ("exit", "quit", "clear", "help")
"""Words that are commands even without a dot if they are the whole line. No user wants to pay for an answer to them."""

_WORD = re.compile(r"[./][A-Za-z][A-Za-z0-9_-]*$")


def find_bare_command(text: str) -> tuple[ChatCommand, str] | None:
    """Return the command of a line that is one of `BARE`, else None."""
    word = text.strip().casefold()
    return find_command(f".{word}") if word in BARE else None


def find_command(text: str) -> tuple[ChatCommand, str] | None:
    """Return the command of a line and its arguments; None for a prompt.

    Names of two words take precedence over names of one, and `/name` is the same as `.name`. `.prompt last` is a
    command, and `.prompt last of them` is a prompt: if two commands fit, the one that accepts arguments gets them.
    A line that begins with a path is a prompt (`./run.sh fails`, `/etc/hosts is odd`).

    Raises:
        UsageError: the line looks like a command, but there is none of this name.
    """
    known = COMMANDS
    first, _, rest = text.strip().partition(" ")
    first, newline, more = first.partition("\n")
    rest = (newline + more + " " + rest).strip() if newline else rest.strip()
    if not _WORD.match(first):
        return None
    name = ALIASES.get("." + first[1:], "." + first[1:])
    second, _, behind = rest.partition(" ")
    longer = f"{name} {second}"
    if second and longer in known and not (behind and name in known and known[name].usage and not known[longer].usage):
        return known[longer], behind.strip()
    if name in known:
        return known[name], rest
    longer_ones = [each.removeprefix(f"{name} ") for each in known if each.startswith(f"{name} ")]
    if longer_ones:
        wanted = longer_ones[0] if len(longer_ones) == 1 else f"<{'|'.join(longer_ones)}>"
        raise UsageError(f"Usage: {name} {wanted}")
    first_words = [each.partition(" ")[0] for each in known]
    near = did_you_mean(name, list(dict.fromkeys([*known, *first_words, *ALIASES])))
    # Several words without a similar command: more likely a prompt, such as `/etc is odd`, than a typing error.
    if rest and not near:
        return None
    raise UsageError(f"{UNKNOWN} ({name}: {near})" if near else UNKNOWN)


async def execute_in_turn(chat: Chat, text: str, person: ClientPort, turn: LineTurn) -> frames.LineDone:
    """Execute a line in order of arrival; a command that only reads state may overtake a waiting line."""
    try:
        with turn.waiting:
            if chat.waited_for and _only_reads(chat, text, person):
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await turn.come()
            return await execute_line(chat, text, person, turn=turn)
    finally:
        turn.leave()
    # Reached only if `turn.waiting` was cancelled, which means an interrupt before the line had begun.
    return frames.LineDone(chat=chat.info(), status="cancelled")


def _only_reads(chat: Chat, text: str, person: ClientPort) -> bool:
    """Return True if the line is a command that only reads state."""
    found = find_command(text) if text[:1] in (".", "/") else find_bare_command(text)
    return found is not None and found[0].plays_at_work(chat, person.caller, found[1])


async def execute_line(
    chat: Chat, text: str, person: ClientPort, *, in_macro: bool = False, turn: LineTurn | None = None
) -> frames.LineDone:
    """Execute a line and return when all that it started has ended.

    Args:
        in_macro: whether the line is a step of a macro.
        turn: place of the line in the input queue, which is left as soon as the line has begun.

    Raises:
        CallboardError: the line failed. The chat remains usable.
    """
    chat.check_open()
    text = unfenced(text)
    if not text.strip():
        return frames.LineDone(chat=chat.info())
    if text.startswith("!"):
        if in_macro:  # macros may be installed from untrusted bundles
            raise UsageError("Cannot perform this operation because you are in a macro: `!`")
        await chat.come_to_rest()
        return await _execute_alone(play_shell, ChatLine(chat, person, text[1:].strip(), turn=turn, in_macro=in_macro))
    found = find_command(text) if text[0] in "./" else None if in_macro else find_bare_command(text)
    if found is None:
        line = ChatLine(chat, person, text.strip("\n"), turn=turn, in_macro=in_macro)
        if not in_macro:
            await chat.come_to_rest()
        if chat.answering is not None and not in_macro and await steer(line):
            return frames.LineDone(chat=chat.info(), run=chat.answering, steered=True)
        return await _execute_alone(_prompt, line)
    wanted, rest = found
    line = ChatLine(chat, person, rest, wanted, turn=turn, in_macro=in_macro, execute=execute_line)
    only_reads = wanted.plays_at_work(chat, person.caller, rest)
    if not (in_macro or only_reads):
        await chat.come_to_rest()
    _check_allowed(line, wanted)
    if only_reads:
        line.begun()
        with chat.looking() as scope:
            await wanted.play(line)
        if scope.cancelled_caught:
            line.status = "cancelled"
        return _done(line)
    return await _execute_alone(wanted.play, line)


def _check_allowed(line: ChatLine, wanted: ChatCommand) -> None:
    for scope in wanted.scopes:
        line.caller.need(scope)
    if line.rest and not wanted.usage:
        raise wanted.misused()
    if line.in_macro and not wanted.in_macros:
        raise UsageError(f"Cannot perform this operation because you are in a macro: `{wanted.name}`")
    check(line.chat, wanted)


async def _execute_alone(handler: Callable[[ChatLine], Any], line: ChatLine) -> frames.LineDone:
    """Execute a line exclusively; a macro's steps run within the macro's own line."""
    if line.in_macro and line.chat.busy:
        await handler(line)
        return _done(line)
    with line.chat.taken(line.caller) as scope:
        line.begun()
        await handler(line)
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
        # A macro's own conversation has no memory: each of its prompts is independent, as in Loki.
        await chat.memory.empty(chat.hub, line.caller)
    start, chat.last_prompt = chat.place.mark(), LastPrompt(line.rest, chat.pending_files)
    files, chat.pending_files = (*chat.pending_files, *await mentioned(line)), ()
    await ask(line, LastPrompt(line.rest, files), start=start)
