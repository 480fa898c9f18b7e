"""Node types of other packages: entry points of the group `callboard.workflow_nodes`.

The entry point's name is the node's `type`; its object is the node's code:

    async def run(me: Actor, job: Job) -> Said:
        return Said(outputs=(Message(role="assistant", content=job.values["greeting"]),))

`job.values` is the node's `config` from the file. The package is imported when a node of that type first runs.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from .....protocol.errors import CallboardError, GraphMistake
from .....protocol.messages import Failure
from .....protocol.workflow_messages import NODE, NodeCodeDone
from .....supervisors import Actor
from .....supervisors.user_code import failure_of, user_code
from ....work.journal.actor_journal import scope_of
from ....work.journal.unknown_outcome import once
from ....work.playback import OutsideEffect, playback, whole
from ...graph.result import NEVER_TOLERATED
from ..job import Code, Job
from ..machine.perform import Said, message_of, restored

GROUP = "callboard.workflow_nodes"


@cache
def node_types() -> dict[str, EntryPoint]:
    """Return the node types of installed packages."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _code(type: str) -> Code:
    point = node_types().get(type)
    if point is None:
        raise GraphMistake(f"no installed package provides the node type '{type}' (as an entry point of {GROUP})")
    try:
        return cast("Code", point.load())
    except BaseException as raised:  # noqa: BLE001 - a foreign package: its import may raise anything
        error = failure_of(raised)
        raise GraphMistake(f"the node type '{type}' can't be loaded: {point.value} failed with {error!r}") from error


async def run_custom_node(me: Actor, job: Job) -> Said:
    """Run the plugin's code and return its result.

    The code may have side effects: in a durable run `on_unknown` decides whether code is repeated that was running when
    a process died.

    Raises:
        GraphMistake: no installed package provides the node type, its code cannot be loaded, or it returns no `Said`.
    """
    if scope_of(me) is None and playback.get() is None:
        return await _run_custom(me, job)

    async def run() -> NodeCodeDone:
        try:
            return message_of(0, await _run_custom(me, job))
        # Not stored as the node's result, because these errors end the run.
        except NEVER_TOLERATED:
            raise
        except CallboardError as error:
            return NodeCodeDone(0, failure=Failure.of(error))

    what = f"{NODE.format(job.node.id)} ({job.node.type})"
    wanted, noted = job.shared.context.settles(None), not job.is_reported_at_once
    given = {"config": job.values, "inputs": job.inputs}
    work = partial(whole, me, OutsideEffect("node", job.node.id, given), NodeCodeDone, run)
    said = await once(me, job.node.id, what, NodeCodeDone, work, wanted=wanted, skipped=NodeCodeDone(0), noted=noted)
    return restored(said)


async def _run_custom(me: Actor, job: Job) -> Said:
    code = _code(job.node.type)
    with user_code:
        said = await code(me, job)
    if not isinstance(said, Said):
        raise GraphMistake(f"the code of the node type '{job.node.type}' returned {said!r} instead of a `Said`")
    return said
