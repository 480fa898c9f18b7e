"""`.resume`: continues an answer whose process was killed, or a stored chat."""

from __future__ import annotations

from .....protocol.errors import Conflict
from ..asked import Prompt
from ..interrupted_turns import interrupted_here, told_of_interrupted
from ..line import Line
from ..prompting import go_on
from ..reopening import CHOOSE, last_exchange, reopen
from ..table import command


@command(".resume", "Continue the answer that the end of its process has interrupted, or else an earlier chat")
async def _resume(line: Line) -> None:
    found = interrupted_here(line)
    if not found and not line.chat.stores:
        raise Conflict("No answer of this session was interrupted by the end of its process.")
    if not found:
        await _reopen(line)
        return
    run = found[-1]
    await go_on(line, run.run, Prompt(run.about.prompt if run.about is not None else ""))


async def _reopen(line: Line) -> None:
    if not await reopen(line, CHOOSE):
        await line.note("nothing was chosen")
        return
    for kind, text in last_exchange(line.chat):
        await line.say(text, kind)
    for note in told_of_interrupted(line):
        await line.note(note)
