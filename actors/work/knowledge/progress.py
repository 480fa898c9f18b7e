"""Events of knowledge base builds: progress, at most once in `EVERY` seconds of a phase, and the result at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ....protocol.events import KnowledgeBuilding, KnowledgeBuilt, Warned
from .base.model import BuildProgress, BuildReport

if TYPE_CHECKING:
    from ....supervisors.actor import Actor
    from .recipe import Recipe

EVERY = 0.3
"""Seconds between two events of one phase."""

SHOWN = 3
"""Most names that a warning lists."""


def telling(
    me: Actor, what: str, also: Callable[[BuildProgress], None] | None = None
) -> Callable[[BuildProgress], None]:
    """Return an `on_progress` callback that emits progress events of a build, while the actor's stream has listeners.

    Args:
        me: actor whose events they are.
        what: name of the base.
        also: called with every report, without a rate limit.
    """
    last, since = "", -math.inf

    def report(progress: BuildProgress) -> None:
        nonlocal last, since
        if also is not None:
            also(progress)
        now = trio.current_time()
        if me.stream.heard and (progress.phase != last or now - since >= EVERY):
            last, since = progress.phase, now
            me.emit(
                KnowledgeBuilding(
                    what=what,
                    phase=progress.phase,
                    done=progress.done,
                    total=progress.total,
                    seconds_left=progress.seconds_left,
                )
            )

    return report


def report_built(me: Actor, recipe: Recipe, report: BuildReport) -> None:
    """Emit the event that the base is up to date, and a warning about unreadable sources."""
    me.emit(
        KnowledgeBuilt(
            what=recipe.what,
            added=report.added,
            changed=report.changed,
            removed=report.removed,
            unchanged=report.unchanged,
            unreadable=len(report.unreadable),
            embedded=report.embedded,
            chunks=report.chunks,
            seconds=report.seconds,
        )
    )
    if report.unreadable:
        told = listed([f"{each.source} ({each.reason})" for each in report.unreadable], "; ")
        message = f"{recipe.what}: {len(report.unreadable)} of the documents could not be read: {told}"
        me.emit(Warned(code="knowledge_unreadable", message=message, node=recipe.node))


def listed(names: list[str] | tuple[str, ...], between: str = ", ") -> str:
    """Join the first `SHOWN` names, and add how many more there are."""
    rest = len(names) - SHOWN
    return between.join([*names[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])])
