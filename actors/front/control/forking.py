"""The steps of a durable run as people know them, and runs that go on from one of them otherwise (forks).

Both are for those who may steer the run. A fork belongs to whom the run does.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control import durable
from ....protocol.control.caller import Caller
from ....protocol.control.things import RunInfo, Step
from ....protocol.decoding import decode_json
from ....protocol.errors import UsageError
from ...io.directories import journal_dir
from ...io.imports import imported
from .requests import check_model

if TYPE_CHECKING:
    from ...runs.rerun.fork import Fork
    from .hub import Hub


async def steps_of_run(hub: Hub, caller: Caller, run: str, after: int, limit: int) -> durable.Steps:
    """Those behind the one of number `after`, without secrets; long texts are cut.

    Raises:
        NotFound, Denied: as `Hub.get`; or nothing is kept of this run.
        Damaged, CannotGoOn: it is not as it was written, or of another version.
    """
    caller.need("write:runs")
    if after < 0:
        raise UsageError(f"`after` is the number of a step, 0 for before the first, not {after}")
    info = await hub.look(caller, run)
    await _written(hub)
    return await trio.to_thread.run_sync(partial(_page, hub, info.run, after, limit))


def _page(hub: Hub, run: str, after: int, limit: int) -> durable.Steps:
    from ...runs.rerun.fork import kept_rows, nodes_of
    from ...runs.rerun.steps import steps

    rows, _ = kept_rows(journal_dir(os.environ), run)
    nodes = nodes_of(rows, hub.root.config_dir)
    places = {each.row: f"{each.node}#{each.visit}" for each in nodes}
    found = steps(rows, nodes)
    page = found[after : after + limit]
    shown = [Step(place=places.get(step.row, ""), **msgspec.structs.asdict(step)) for step in page]
    told = hub.running.without_secrets(msgspec.json.encode(shown))
    ends = after + len(page)
    return durable.Steps(steps=decode_json(told, list[Step]), next=ends if ends < len(found) else None)


async def fork_run(hub: Hub, caller: Caller, wanted: durable.ForkRun) -> durable.Forked:
    """Begin another run with the first steps of one, or say what it would do to the world again.

    Raises:
        NotFound, Denied: as `Hub.get`; nothing is kept of this run; there is no such place in it.
        UsageError: there is nothing that could be changed so.
        CannotGoOn, Damaged: it can't go on from there.
        Saturated, ShuttingDown: nothing may begin now.
    """
    caller.need("write:runs")
    caller.need("run:agents")
    if wanted.model is not None:
        check_model(caller, wanted.model, hub.root)
    info = await hub.look(caller, wanted.run)
    await imported(".actors.runs.rerun.fork", ".supervisors.journal.journal", ".supervisors.journal.store")
    from ...runs.rerun.fork import read_fork

    fork = await read_fork(hub.root, info.run, wanted.at)
    if wanted.dry_run:
        return durable.Forked(run=None, at=fork.at, again=list(fork.again))
    hub.check_open()
    hub.running.check_room()
    return durable.Forked(run=await _begun(hub, caller, info, fork, wanted), at=fork.at, again=list(fork.again))


async def _begun(hub: Hub, caller: Caller, info: RunInfo, fork: Fork, wanted: durable.ForkRun) -> RunInfo:
    from ...runs.rerun.changes import Changes

    changes = Changes(
        model=wanted.model,
        prompt=wanted.prompt,
        state=dict(wanted.state),
        answers=dict(wanted.answers),
        with_changes=wanted.with_changes,
    )
    new = RunInfo(run="", owner=info.owner, title=wanted.title or info.title)
    return hub.get(caller, await hub.running.fork(new, fork, changes))


async def _written(hub: Hub) -> None:
    """All that runs of this process have done is on the disk, where it is read."""
    await imported(".supervisors.journal.reading", ".actors.runs.rerun.fork")
    if hub.root.journal_in_use is not None:
        await hub.root.journal_in_use.barrier()
