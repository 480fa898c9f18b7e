"""Execution of a chat's lines: commands, shell lines and prompts.

A line is a command (`command_line`), a shell line (`!`), or a prompt. A prompt becomes a run of the hub, visible in
`ps`, the web page and `_run/*`: of an agent if the chat has one, else of a model with or without a role.

A line that arrives during another one waits for its end, so lines typed ahead stay in order. A command that only reads
state (`at_work`) does not wait. During a run, its agent receives prompts (steering). All other commands are
refused, because they could change the session, agent or role on which the run depends.

An interrupt cancels all earlier lines: one that has not begun never begins, and ends as `cancelled`.

`!command` is executed in the working directory. The user's permission rules for `execute_command` apply: a denied
command is refused, but the user is not asked, because the user typed it. The output is shown as it arrives. Of a long
output, the first `SHOWN_SHELL_OUTPUT` characters are shown at once, and the remainder that the tool retains at the end.
The next prompt includes up to `LONGEST_SHELL_OUTPUT` characters of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control import chat as frames
from ....protocol.control.chat import unfenced
from ....protocol.errors import Denied, ShuttingDown, ToolFailed, UsageError
from ....protocol.events import Event, ToolDelta
from ....protocol.problems import did_you_mean
from ...io.secret_redaction import hidden
from ...runs.root import result_of
from ...work.tools.permissions import Permissions
from ...work.tools.registry import ToolOptions
from ...work.tools.tool import Tool, shortened
from .chat_storage import LastPrompt
from .command_line import ALIASES, COMMANDS, ChatCommand, ChatLine, check
from .commands import load
from .prompting import ask, mentioned, steer

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .chat import Chat, LineTurn
    from .clients import ClientPort
    from .command_line import ChatCommand


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
        return await _execute_alone(
            execute_shell, ChatLine(chat, person, text[1:].strip(), turn=turn, in_macro=in_macro)
        )
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


LONGEST_SHELL_OUTPUT = 8_000
"""Characters of the output that the next prompt includes."""

SHOWN_SHELL_OUTPUT = 32 * 1024
"""Characters of the output shown as they arrive; the tool retains more of the beginning."""

_PIECE = 2 * 1024
"""Characters of a line from which on events contain pieces of it; the output from there on is shown at the end."""

_GATHER = 0.1
"""Seconds to collect lines before they are shown."""

SHELL_SCOPES = ("run:files", "admin:mcp")
"""Required scopes; a caller with both can run programs on this machine anyway."""


async def execute_shell(line: ChatLine) -> None:
    """Run the command and wait for its end. An interrupt ends the process and all its children.

    Raises:
        Denied: the permission rules or the caller's scopes do not allow it.
        ToolFailed: the command could not be run.
        UsageError: the line has no command.
    """
    # Watchers need the same scopes to see the output.
    line.scopes = SHELL_SCOPES
    for scope in SHELL_SCOPES:
        line.caller.need(scope)
    if not line.rest:
        raise UsageError("Usage: !<command>")
    tool, arguments = _shell_tool(line), {"command": line.rest}
    rules = line.root.registry.permissions(line.root.settings.permissions)
    # "ask" counts as allowed: the user who would be asked has typed the command.
    if Permissions(rules, once=True).verdict(tool, arguments) == "deny":
        raise Denied(f"`permissions` in {line.root.settings.file} denies this command")

    coming = _ShellOutput(line)

    async def run(me: Actor) -> str:
        sending = me.spawn(coming.send_lines, name="lines")
        try:
            with me.stream.listen(lambda event: coming.hear(event, me.path)):
                return str(await tool.run(me, arguments))
        finally:
            coming.ended.set()
            await sending.wait()

    try:
        said = await result_of(line.root, run, name="shell")
    except (ToolFailed, ShuttingDown):
        raise
    except Exception as error:  # any crash of the tool: the message must name the line
        raise ToolFailed(f"`{line.rest[:200]}` could not be run: {error}") from error
    written = "" if said == "DONE" else said
    # The result repeats the streamed lines, so show only the remainder.
    if (rest := written.removeprefix(coming.sent)) or not coming.sent:
        await line.say(hidden(rest), "shell")
    shown = shortened(hidden(written), LONGEST_SHELL_OUTPUT) or "(there was no output)"
    line.chat.shell.append(f"I ran `{line.rest}` in the shell. Its output:\n\n```\n{shown}\n```")
    # Five commands at most, so that many shell lines do not fill the next prompt.
    del line.chat.shell[:-5]


class _ShellOutput:
    """Output of the command, sent to the user several times a second until `ended`.

    Attributes:
        sent: text sent so far, which is the beginning of the output.
    """

    def __init__(self, line: ChatLine) -> None:
        self.sent = ""
        self.ended = trio.Event()
        self._line = line
        self._lines: list[str] = []
        self._room = SHOWN_SHELL_OUTPUT

    def hear(self, event: Event, actor: str) -> None:
        """Collect an event that may be a line of this command."""
        if not isinstance(event.data, ToolDelta) or event.actor != actor or self._room < 0:
            return
        text = event.data.text
        # -1 from here on: the rest is shown with the result.
        self._room = self._room - len(text) - 1 if len(text) < _PIECE else -1
        if self._room >= 0:
            self._lines.append(text)

    async def send_lines(self, _: Actor) -> None:
        """Send the collected lines until the end."""
        while not self.ended.is_set():
            with trio.move_on_after(_GATHER):
                await self.ended.wait()
            full = len(self._lines)
            while full and not self._lines[full - 1]:
                full -= 1  # hold empty lines back until a line with text follows
            if full and not self.ended.is_set():
                text = "\n".join(self._lines[:full]) + "\n"
                del self._lines[:full]
                await self._line.say(hidden(text), "shell")
                self.sent += text


def _shell_tool(line: ChatLine) -> Tool:
    home = line.root.registry.home(directory=None, agent=None, values={}, options=ToolOptions())
    found = line.root.registry.named(["execute_command"], home, ToolOptions(cwd=Path.cwd()))
    if not found:
        raise Denied(
            "`visible_tools` in config.yaml excludes `execute_command`, so lines that begin with `!` can't be run"
        )
    return found[0]
