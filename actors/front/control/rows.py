"""Journal rows of a durable run, for callers that may control the run."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.control.durable import Rows
from ....protocol.control.things import Row
from ....protocol.errors import NotFound, UsageError
from ....protocol.journal import decode
from ....protocol.journal_as_json import row_as_json
from ...io.directories import journal_dir
from ...io.imports import imported

if TYPE_CHECKING:
    from ....supervisors.journal.row import StoredRow as Kept
    from .hub import Hub

LONGEST_PAGE = 256 * 1024
"""Bytes of a page, unless a single row is longer."""


async def rows_of(hub: Hub, caller: Caller, run: str, after: int, limit: int) -> Rows:
    """Return a page of the rows after a number, without secrets; long texts are cut.

    Raises:
        NotFound, Denied: as `Hub.get`; or the run has no journal.
        UsageError: `after` is negative.
        Damaged: the journal is corrupt.
    """
    caller.need("write:runs")
    if after < 0:
        raise UsageError(f"`after` is the number of a row, 0 for before the first, not {after}")
    info = await hub.look(caller, run)
    if hub.cluster is not None and hub.cluster.has(info.run):
        found = await hub.cluster.rows(info.run, after, limit + 1)
    else:
        await imported(".supervisors.journal.reading")
        from ....supervisors.journal.reading import read_rows

        found = await trio.to_thread.run_sync(read_rows, journal_dir(os.environ), info.run, after, limit + 1)
    return await trio.to_thread.run_sync(partial(_page, hub, info.run, found, limit))


def _page(hub: Hub, run: str, found: list[Kept] | None, limit: int) -> Rows:
    if found is None:
        raise NotFound(f"nothing is kept of {run} to go on with: it is not durable, or that was removed")
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
