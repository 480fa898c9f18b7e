"""`!command`: a line of the shell, run in the working directory because the person typed it.

The rules of the person's own permissions for `execute_command` count: what they deny is refused. What it writes is
shown as it comes, and the next prompt brings the end of it along, up to `LONGEST` characters, for the model. Of a long
output the first `SHOWN` characters are shown as they come, and what the tool keeps of the rest at its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ....protocol.errors import Denied, ShuttingDown, ToolFailed, UsageError
from ....protocol.events import Event, ToolDelta
from ...io.handed_out import hidden
from ...runs.root import result_of
from ...work.tools.permissions import Permissions
from ...work.tools.registry import ToolOptions
from ...work.tools.tool import Tool, shortened

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .line import Line

LONGEST = 8_000
"""Characters of the output that go along with the next prompt."""

SHOWN = 32 * 1024
"""Characters of the output that are shown as they come; the tool keeps more of its beginning."""

_PIECE = 2 * 1024
"""Characters; of a line that is much longer events tell pieces, so this one and what follows waits for the end."""

_GATHER = 0.1
"""Seconds in which lines gather."""

NEEDS = ("run:files", "admin:mcp")
"""Scopes: with them a caller may have this machine run programs of their own anyway."""


async def play(line: Line) -> None:
    """Run it, and wait for its end. Interrupting ends the process and all that it has started.

    Raises:
        Denied: the permissions, or the caller's scopes, do not allow it.
        ToolFailed: it could not be run.
    """
    line.scopes = NEEDS
    for scope in NEEDS:
        line.caller.need(scope)
    if not line.rest:
        raise UsageError("Usage: !<command>")
    tool, arguments = _tool(line), {"command": line.rest}
    rules = line.root.registry.permissions(line.root.settings.permissions)
    if Permissions(rules, once=True).verdict(tool, arguments) == "deny":
        raise Denied(f"the permissions of {line.root.settings.file} deny this command")

    coming = _Coming(line)

    async def run(me: Actor) -> str:
        telling = me.spawn(coming.tell, name="lines")
        try:
            with me.stream.listen(lambda event: coming.hear(event, me.path)):
                return str(await tool.run(me, arguments))
        finally:
            coming.ended.set()
            await telling.wait()

    try:
        said = await result_of(line.root, run, name="shell")
    except (ToolFailed, ShuttingDown):
        raise
    except Exception as error:  # whatever the tool crashed with, the person reads which line could not be run
        raise ToolFailed(f"`{line.rest[:200]}` could not be run: {error}") from error
    written = "" if said == "DONE" else said
    if (rest := written.removeprefix(coming.told)) or not coming.told:
        await line.say(hidden(rest), "shell")
    shown = shortened(hidden(written), LONGEST) or "(it wrote nothing)"
    line.chat.shell.append(f"I ran `{line.rest}` in the shell. It wrote:\n\n```\n{shown}\n```")
    del line.chat.shell[:-5]


class _Coming:
    """What the command writes, told a few times a second until `ended`.

    Attributes:
        told: what was told, which is the beginning of all.
    """

    def __init__(self, line: Line) -> None:
        self.told = ""
        self.ended = trio.Event()
        self._line = line
        self._lines: list[str] = []
        self._room = SHOWN

    def hear(self, event: Event, actor: str) -> None:
        """Takes in an event that may be a line of this command."""
        if not isinstance(event.data, ToolDelta) or event.actor != actor or self._room < 0:
            return
        text = event.data.text
        self._room = self._room - len(text) - 1 if len(text) < _PIECE else -1
        if self._room >= 0:
            self._lines.append(text)

    async def tell(self, _: Actor) -> None:
        """Tells it as it comes."""
        while not self.ended.is_set():
            with trio.move_on_after(_GATHER):
                await self.ended.wait()
            full = len(self._lines)
            while full and not self._lines[full - 1]:
                full -= 1  # empty lines go with the next one
            if full and not self.ended.is_set():
                text = "\n".join(self._lines[:full]) + "\n"
                del self._lines[:full]
                await self._line.say(hidden(text), "shell")
                self.told += text


def _tool(line: Line) -> Tool:
    home = line.root.registry.home(directory=None, agent=None, values={}, options=ToolOptions())
    found = line.root.registry.named(["execute_command"], home, ToolOptions(cwd=Path.cwd()))
    if not found:
        raise Denied("`visible_tools` leaves out `execute_command`, so no line of the shell is run")
    return found[0]
