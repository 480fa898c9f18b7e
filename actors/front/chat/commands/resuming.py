"""`.resume`: goes on with an answer whose process was killed; and what is said of it when its session is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import Conflict
from ...control.runs.running import sees
from ..asked import Prompt
from ..line import Line
from ..prompting import go_on
from ..table import command

if TYPE_CHECKING:
    from ....runs.interrupted import Interrupted

SHOWN = 60
"""Characters of a prompt that a note has."""


@command(".resume", "Go on with the answer that was interrupted by the end of its process", needs=("session",))
async def _resume(line: Line) -> None:
    found = interrupted_here(line)
    if not found:
        raise Conflict("No answer of this session was interrupted by the end of its process.")
    run = found[-1]
    await go_on(line, run.run, Prompt(run.about.prompt if run.about is not None else ""))


def interrupted_here(line: Line) -> list[Interrupted]:
    """The turns of the chat's session that may go on, the oldest first."""
    place = line.chat.session
    if place is None or not place.kept:
        return []
    return [
        run
        for run in line.hub.logs.interrupted.values()
        if run.about is not None
        and run.about.session == place.stored.id
        and not run.why_not
        and run.run not in line.hub.running.live
        and sees(line.caller, run.about.owner)
    ]


def told_of_interrupted(line: Line) -> list[str]:
    """What to say of them to who has opened the session."""
    found = interrupted_here(line)
    if not found:
        return []
    about = found[-1].about
    words = " ".join(about.prompt.split()) if about is not None else ""
    shown = words if len(words) <= SHOWN else f"{words[: SHOWN - 3]}..."
    return [f"The answer to '{shown}' was interrupted ({found[-1].run}); `.resume` goes on with it."]
