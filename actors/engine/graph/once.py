"""One node, once, whatever it does and whatever comes of it: entered, timed, told, and left.

A node's own code may return, fail with one of our errors, or have a bug. All three become a way of leaving the node,
which is the caller's business (`execute` for graphs, `workflow.play` for workflows): the run's own rule says what a
failure means. Only an interruption goes through, with its time counted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import trio

from ....protocol.errors import CallboardError, NodeFailed, code_of
from ....protocol.events import NodeEntered, NodeExited

if TYPE_CHECKING:
    from ....supervisors import Actor

log = logging.getLogger("callboard.graph")

L = TypeVar("L")
Timed: TypeAlias = Callable[[str, float], None]
"""Told a node's id and the seconds that one execution took."""


async def once(
    me: Actor,
    id: str,
    kind: str,
    work: Callable[[], Awaitable[L]],
    failed: Callable[[CallboardError], L],
    leads: Callable[[L], tuple[Iterable[str], CallboardError | None]],
    *,
    visit: int = 1,
    item: int | None = None,
    timed: Timed | None = None,
) -> L:
    """Enter a node, do its work, leave it.

    Args:
        failed: what an error of its work comes to.
        leads: where it goes from there, and what it failed with, also if that is tolerated.
        visit: how often it was entered, this time included.
        item: its index, if it runs for an item of a map.
        timed: told how many seconds it took, also if it was interrupted.
    """
    if me.root.pauses is not None:
        await me.root.pauses.passed(me)
    heard = me.stream.heard
    began = trio.current_time()
    if heard:
        me.emit(NodeEntered(node=id, type=kind, visit=visit, item=item))
    try:
        left = await work()
    except CallboardError as error:
        left = failed(error)
    except Exception as error:  # a bug in a node's code must cost that node, with its traceback in the log
        log.exception("node '%s' crashed", id)
        left = failed(NodeFailed(f"{type(error).__name__}: {error}"))
    finally:
        seconds = trio.current_time() - began
        if timed is not None:
            timed(id, seconds)
    if heard:
        targets, why = leads(left)
        told, code = (None, "") if why is None else (str(why), code_of(why))
        me.emit(NodeExited(node=id, seconds=seconds, next=list(targets), item=item, error=told, code=code))
    return left
