"""Turns of a chat's session whose process was killed, and what the person is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..control.runs.running import sees

if TYPE_CHECKING:
    from ...runs.interrupted import Interrupted
    from .line import Line

SHOWN = 60
"""Characters of a prompt that a note has."""


def interrupted_here(line: Line) -> list[Interrupted]:
    """The turns of the chat's session that may go on, the oldest first."""
    place = line.chat.place
    if not place.kept:
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
