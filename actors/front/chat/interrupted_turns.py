"""Interrupted turns of a chat's session, whose process was killed, and the notice for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..control.runs.running import sees

if TYPE_CHECKING:
    from ...runs.orphaned_runs import InterruptedRun
    from .line import ChatLine

SHOWN = 60
"""Characters of a prompt in the notice."""


def resumable_turns(line: ChatLine) -> list[InterruptedRun]:
    """Return the interrupted turns of the chat's session that can be resumed, oldest first."""
    place = line.chat.place
    if not place.kept:
        return []
    return [
        run
        for run in line.hub.logs.interrupted.values()
        if run.about is not None
        and run.about.session == place.stored.id
        and not run.why_not
        # Already resumed here, or about to be.
        and run.run not in line.hub.running.live
        and sees(line.caller, run.about.owner)
    ]


def interrupted_notice(line: ChatLine) -> list[str]:
    """Return the notice for a user who opens the session; empty without interrupted turns."""
    found = resumable_turns(line)
    if not found:
        return []
    about = found[-1].about
    words = " ".join(about.prompt.split()) if about is not None else ""
    shown = words if len(words) <= SHOWN else f"{words[: SHOWN - 3]}..."
    return [f"The answer to '{shown}' was interrupted ({found[-1].run}); `.resume` goes on with it."]
