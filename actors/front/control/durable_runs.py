"""Steps and journal rows of a durable run, and forks: new runs that repeat steps up to one and continue with changes.

All need the permission to control the run. A fork has the owner of its original.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control import method_structs
from ....protocol.control.caller import Caller
from ....protocol.control.method_structs import Rows
from ....protocol.control.resources import Row, RunInfo, Step
from ....protocol.decoding import decode_json
from ....protocol.errors import NotFound, Unsupported, UsageError
from ....protocol.journal import decode, row_as_json
from ...io.directories import journal_dir
from ...io.imports import imported
from .requests import check_model

if TYPE_CHECKING:
    from ....supervisors.journal.row import StoredRow as Kept
    from ...runs.rerun.fork import Fork, RunRead
    from .hub import Hub


async def steps_of_run(hub: Hub, caller: Caller, run: str, after: int, limit: int) -> method_structs.Steps:
    """Return at most `limit` steps after number `after`, without secrets; long texts are cut.

    Raises:
        NotFound, Denied: as `Hub.get`; or the run has no journal.
        UsageError: `after` is negative.
        Damaged, CannotGoOn: the journal is corrupt, or was written by an incompatible version.
    """
    caller.need("write:runs")
    if after < 0:
        raise UsageError(f"`after` must be the number of a step, or 0 for all steps, not {after}")
    info = await hub.read_run(caller, run)
    read = await _read(hub, info.run)
    return await trio.to_thread.run_sync(partial(_page, hub, read, after, limit))


def _page(hub: Hub, read: RunRead, after: int, limit: int) -> method_structs.Steps:
    places = {each.row: f"{each.node}#{each.visit}" for each in read.nodes}
    found = read.steps()
    page = found[after : after + limit]
    shown = [Step(place=places.get(step.row, ""), **msgspec.structs.asdict(step)) for step in page]
    told = hub.running.without_secrets(msgspec.json.encode(shown))
    ends = after + len(page)
    return method_structs.Steps(steps=decode_json(told, list[Step]), next=ends if ends < len(found) else None)


async def fork_run(hub: Hub, caller: Caller, wanted: method_structs.ForkRun) -> method_structs.Forked:
    """Start a fork of a run, or with `dry_run` list the side effects that it would repeat.

    Raises:
        NotFound, Denied: as `Hub.get`; the run has no journal; the step does not exist.
        UsageError: a change does not fit the run.
        CannotGoOn, Damaged: the run cannot continue from that step.
        Conflict, Unsupported: the cluster's run has not begun; the cluster does not support this fork.
        Saturated, ShuttingDown: no run may start now.
    """
    caller.need("write:runs")
    caller.need("run:agents")
    if wanted.answers:
        caller.need("answer:questions")
    if wanted.model is not None:
        check_model(caller, wanted.model, hub.root)
    info = await hub.read_run(caller, wanted.run)
    if hub.cluster is not None and hub.cluster.has(info.run):
        _check_in_cluster(info, wanted)
    read = await _read(hub, info.run, parts=True)
    fork = await trio.to_thread.run_sync(read.fork, wanted.at)
    if wanted.dry_run:
        return method_structs.Forked(run=None, at=fork.at, again=list(fork.again))
    # After the dry run, which starts nothing: the limits do not apply to it.
    hub.check_open()
    hub.running.check_room()
    return method_structs.Forked(run=await _begun(hub, caller, info, fork, wanted), at=fork.at, again=list(fork.again))


def _check_in_cluster(info: RunInfo, wanted: method_structs.ForkRun) -> None:
    """Raise `Unsupported` for forks that a cluster does not support."""
    if info.parent is not None:
        raise Unsupported(f"{info.run} is a child of {info.parent}, which can be forked instead")
    if info.session is not None:
        raise Unsupported(f"{info.run} is a turn of a session, and a cluster can't fork such turns")
    if wanted.with_changes:
        why = "its workers use the files that the run started with"
        raise Unsupported(f"a cluster can't fork a run `with_changes`: {why}")


async def _begun(hub: Hub, caller: Caller, info: RunInfo, fork: Fork, wanted: method_structs.ForkRun) -> RunInfo:
    from ...runs.rerun.fork import ForkChanges

    changes = ForkChanges(
        model=wanted.model,
        prompt=wanted.prompt,
        state=dict(wanted.state),
        answers=dict(wanted.answers),
        with_changes=wanted.with_changes,
    )
    new = RunInfo(run="", owner=info.owner, title=wanted.title or info.title)
    if hub.cluster is not None and hub.cluster.has(info.run):
        return await hub.cluster.fork(new, fork, changes)
    await imported(".supervisors.journal.journal", ".supervisors.journal.store")
    return hub.get(caller, await hub.running.fork(new, fork, changes))


async def _read(hub: Hub, run: str, *, parts: bool = False) -> RunRead:
    """Return the recorded steps of a run, from the cluster's database or from the journal on this machine's disk.

    Args:
        parts: include the steps of remote children.
    """
    await imported(".supervisors.journal.reading", ".actors.runs.rerun.fork")
    if hub.cluster is not None and hub.cluster.has(run):
        return await hub.cluster.read(run, parts=parts)
    from ...runs.rerun.fork import read_run

    if hub.root.journal_in_use is not None:
        # The journal writes in the background; a live run's newest rows may not be on disk yet.
        await hub.root.journal_in_use.barrier()
    return await hub.root.loader.threaded(partial(read_run, journal_dir(os.environ), run, hub.root.config_dir))


LONGEST_PAGE = 256 * 1024
"""Bytes of a page of rows, unless a single row is longer."""


async def rows_of(hub: Hub, caller: Caller, run: str, after: int, limit: int) -> Rows:
    """Return the rows after number `after`, without secrets, long texts cut: at most `limit` and `LONGEST_PAGE` bytes.

    Raises:
        NotFound, Denied: as `Hub.get`; or the run has no journal.
        UsageError: `after` is negative.
        Damaged: the journal is corrupt.
    """
    caller.need("write:runs")
    if after < 0:
        raise UsageError(f"`after` must be the number of a row, or 0 for all rows, not {after}")
    info = await hub.read_run(caller, run)
    if hub.cluster is not None and hub.cluster.has(info.run):
        found = await hub.cluster.rows(info.run, after, limit + 1)
    else:
        await imported(".supervisors.journal.reading")
        from ....supervisors.journal.reading import read_rows

        found = await trio.to_thread.run_sync(read_rows, journal_dir(os.environ), info.run, after, limit + 1)
    return await trio.to_thread.run_sync(partial(_page_of_rows, hub, info.run, found, limit))


def _page_of_rows(hub: Hub, run: str, found: list[Kept] | None, limit: int) -> Rows:
    if found is None:
        raise NotFound(f"{run} has no stored rows: it is not durable, or its journal was removed")
    page: list[Row] = []
    size = 0
    for kept in found[:limit]:
        row, data = _row(hub, kept)
        size += len(data)
        if page and size > LONGEST_PAGE:
            break
        page.append(row)
    return Rows(rows=page, next=page[-1].seq if len(page) < len(found) else None)


def _row(hub: Hub, kept: Kept) -> tuple[Row, bytes]:
    try:
        row = decode(kept.data)
    except (msgspec.MsgspecError, ValueError):  # written by a later version
        return Row(seq=kept.seq, path=kept.actor, at=0, kind="unknown"), b""
    told = row_as_json(row)
    value = hub.running.without_secrets(msgspec.json.encode(told.value))
    made = Row(
        seq=kept.seq, path=kept.actor, at=row.at, kind=told.kind, name=told.name, value=msgspec.Raw(value), cut=told.cut
    )
    return made, value
