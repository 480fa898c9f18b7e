"""What is taken back at one path: pure, so that its law can be tested.

The changes of a path are walked from the newest to the oldest. Where the path holds what a change has left, it may go
back to what stood there before, and the walk goes on from there. Where it holds the content that stood there before the
change, that change never happened (the process was killed), or was taken back already. Where it holds neither, another
program has changed it in between: the walk ends, and what is there by then stays. So it does where there is nothing, or
a directory, as before the change: no content shows there that no other program has removed the file or made the
directory. The walk ends as well at a change of a run that is not asked for, and at one whose earlier
content is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .record import Change, State, same

BY_OTHERS = "it was changed since by another program"
IN_BETWEEN = "it was changed in between by another program; only what came after that was taken back"
LATER = "it was changed later by {run}"


class Step(msgspec.Struct, frozen=True):
    """A change of a path, the run that has made it, and whether it is to be taken back."""

    change: Change
    run: str
    chosen: bool


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a path is to hold, and why not more is taken back; empty if all of it is.

    Attributes:
        anew: the file was made anew in between, so that the mode it has is not the one it had. Else it keeps the mode
            that it has, which is its old one, or one that a person gave it.
    """

    state: State | None
    left: str = ""
    anew: bool = False


def goal_of(steps: Sequence[Step], now: State | None) -> Goal:
    """What becomes of a path.

    Args:
        steps: all its changes, the oldest first, with those of runs that are not asked for.
        now: what it holds.
    """
    first = next((at for at, step in enumerate(steps) if step.chosen), len(steps))
    state, anew = now, False
    for step in reversed(steps[first:]):
        change = step.change
        if same(change.after, state):
            if not step.chosen:
                return Goal(state=state, left=LATER.format(run=step.run), anew=anew)
            if change.lost:
                return Goal(state=state, left=f"what it was before is not kept: {change.lost}", anew=anew)
            state = change.before
            anew = anew or state is None or state.kind != "file"
        elif not (same(change.before, state) and state is not None and state.kind in ("file", "link")):
            if same(state, steps[first].change.before):  # all is as it was
                return Goal(state=state, anew=anew)
            return Goal(state=state, left=BY_OTHERS if same(state, now) else IN_BETWEEN, anew=anew)
    return Goal(state=state, anew=anew)
