"""`!command`: a shell line of the user, executed in the working directory.

The user's permission rules for `execute_command` apply: a denied command is refused, but the user is not asked, because
the user typed it. The output is shown as it arrives. Of a long output, the first `SHOWN` characters are shown at once,
and the remainder that the tool retains at the end. The next prompt includes up to `LONGEST` characters of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ....protocol.errors import Denied, ShuttingDown, ToolFailed, UsageError
from ....protocol.events import Event, ToolDelta
from ...io.secret_redaction import hidden
from ...runs.root import result_of
from ...work.tools.permissions import Permissions
from ...work.tools.registry import ToolOptions
from ...work.tools.tool import Tool, shortened

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .command_line import ChatLine

LONGEST = 8_000
"""Characters of the output that the next prompt includes."""

SHOWN = 32 * 1024
"""Characters of the output shown as they arrive; the tool retains more of the beginning."""

_PIECE = 2 * 1024
"""Characters of a line from which on events contain pieces of it; the output from there on is shown at the end."""

_GATHER = 0.1
"""Seconds to collect lines before they are shown."""

NEEDS = ("run:files", "admin:mcp")
"""Required scopes; a caller with both can run programs on this machine anyway."""


async def play(line: ChatLine) -> None:
    """Run the command and wait for its end. An interrupt ends the process and all its children.

    Raises:
        Denied: the permission rules or the caller's scopes do not allow it.
        ToolFailed: the command could not be run.
        UsageError: the line has no command.
    """
    # Watchers need the same scopes to see the output.
    line.scopes = NEEDS
    for scope in NEEDS:
        line.caller.need(scope)
    if not line.rest:
        raise UsageError("Usage: !<command>")
    tool, arguments = _tool(line), {"command": line.rest}
    rules = line.root.registry.permissions(line.root.settings.permissions)
    # "ask" counts as allowed: the user who would be asked has typed the command.
    if Permissions(rules, once=True).verdict(tool, arguments) == "deny":
        raise Denied(f"the permissions of {line.root.settings.file} deny this command")

    coming = _Coming(line)

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
    shown = shortened(hidden(written), LONGEST) or "(it wrote nothing)"
    line.chat.shell.append(f"I ran `{line.rest}` in the shell. It wrote:\n\n```\n{shown}\n```")
    # Five commands at most, so that many shell lines do not fill the next prompt.
    del line.chat.shell[:-5]


class _Coming:
    """Output of the command, sent to the user several times a second until `ended`.

    Attributes:
        sent: text sent so far, which is the beginning of the output.
    """

    def __init__(self, line: ChatLine) -> None:
        self.sent = ""
        self.ended = trio.Event()
        self._line = line
        self._lines: list[str] = []
        self._room = SHOWN

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


def _tool(line: ChatLine) -> Tool:
    home = line.root.registry.home(directory=None, agent=None, values={}, options=ToolOptions())
    found = line.root.registry.named(["execute_command"], home, ToolOptions(cwd=Path.cwd()))
    if not found:
        raise Denied("`visible_tools` leaves out `execute_command`, so no line of the shell is run")
    return found[0]
