"""Events about a base that is being built: a few a second at most, and one when it is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ....protocol.events import KnowledgeBuilding, KnowledgeBuilt, Warned
from .base.model import BuildReport, Progress

if TYPE_CHECKING:
    from ....supervisors.actor import Actor
    from .recipe import Recipe

EVERY = 0.3
"""Seconds between two events of one phase."""

SHOWN = 3
"""Names that a warning lists."""


def telling(me: Actor, what: str, also: Callable[[Progress], None] | None = None) -> Callable[[Progress], None]:
    """An `on_progress` that turns reports into events.

    Args:
        me: whose events they are.
        what: is built.
        also: gets every report, at once.
    """
    last, since = "", -math.inf

    def tell(progress: Progress) -> None:
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

    return tell


def tell_built(me: Actor, recipe: Recipe, report: BuildReport) -> None:
    """The base is up to date; what could not be read is warned about."""
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
        message = f"{recipe.what}: {len(report.unreadable)} could not be read: {told}"
        me.emit(Warned(code="knowledge_unreadable", message=message, node=recipe.node))


def listed(names: list[str] | tuple[str, ...], between: str = ", ") -> str:
    """The first of them, and how many more there are."""
    rest = len(names) - SHOWN
    return between.join([*names[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])])
