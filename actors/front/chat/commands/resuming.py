"""`.resume`: resume an interrupted answer, or reopen a stored chat."""

from __future__ import annotations

from .....protocol.errors import Conflict
from ..asked import LastPrompt
from ..interrupted_turns import interrupted_notice, resumable_turns
from ..line import ChatLine
from ..prompting import resume_turn
from ..reopening import CHOOSE, last_exchange, reopen
from ..table import command


@command(".resume", "Continue an interrupted answer, or an earlier chat")
async def _resume(line: ChatLine) -> None:
    found = resumable_turns(line)
    if not found and not line.chat.stores:
        raise Conflict("No answer of this session was interrupted by the end of its process.")
    if not found:
        await _reopen(line)
        return
    run = found[-1]
    await resume_turn(line, run.run, LastPrompt(run.about.prompt if run.about is not None else ""))


async def _reopen(line: ChatLine) -> None:
    if not await reopen(line, CHOOSE):
        await line.note("nothing was chosen")
        return
    for kind, text in last_exchange(line.chat):
        await line.say(text, kind)
    for note in interrupted_notice(line):
        await line.note(note)
