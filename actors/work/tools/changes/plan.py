"""Undo decision for one path: pure, so that its law can be tested.

The decision walks the changes of a path from the newest to the oldest:

- If the path has the state that a change left, it may return to the state before that change, and the walk continues
  from there.
- If it has the file or link that was there before the change, that change never happened (the process was killed) or
  was already undone. The walk continues.
- If it has neither, another program changed it in between. The walk ends, and the current state remains. The same holds
  where nothing or a directory exists now as before the change: another program may have removed the file or created the
  directory, and no content proves the opposite.

The walk also ends at a change of a run that is not undone, and at a change whose earlier content is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .record import PathChange, PathState, same

BY_OTHERS = "it was changed since by another program"
IN_BETWEEN = "it was changed in between by another program; only what came after that was taken back"
LATER = "it was changed later by {run}"


class UndoStep(msgspec.Struct, frozen=True):
    """A change of a path, with its run; `chosen` if it is to be undone."""

    change: PathChange
    run: str
    chosen: bool


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Target state of a path.

    Attributes:
        state: the state to restore; None to remove the path.
        left: why not every change is undone; empty if all are.
        anew: the file was recreated in between, so its current mode is not the original one. Otherwise the current mode
            is kept, which is the original mode or one that a user has set.
    """

    state: PathState | None
    left: str = ""
    anew: bool = False


def goal_of(steps: Sequence[UndoStep], now: PathState | None) -> Goal:
    """Return the target state of a path.

    Args:
        steps: all its changes, the oldest first, including changes by runs that are not undone.
        now: its current state.
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
            if same(state, steps[first].change.before):  # Everything is already as it was before the first change.
                return Goal(state=state, anew=anew)
            return Goal(state=state, left=BY_OTHERS if same(state, now) else IN_BETWEEN, anew=anew)
    return Goal(state=state, anew=anew)
