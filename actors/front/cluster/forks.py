"""Forks of cluster runs: a new run enters the queue with the first rows of another, and a worker recovers from these.

A fork has the files, labels and owner of its original. The rows contain the file paths of the machine on which the
original began; the worker replaces them by paths in its own cache (`bundle.moved`).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.things import RunInfo
from ....protocol.decoding import decode_json
from ....protocol.errors import Conflict, NotFound
from ....protocol.journal import encode_about
from ....protocol.requests import RunRequest
from ....supervisors.cluster import forks, queries
from ....supervisors.cluster.queue import Wanted
from ...io.imports import imported
from ...runs.begin import new_id
from ...runs.durable import check_goes_on
from ...work.journal.fork_prefix import began
from ..control.runs.running import no_run
from ..control.runs.summary import LONGEST_PROMPT, rfc3339
from .bundle import BundleLost, localize_first_row, unpacked

if TYPE_CHECKING:
    from ....protocol.journal import Began
    from ....supervisors.cluster.forks import Origin
    from ....supervisors.journal.row import StoredRow
    from ...runs.rerun.fork import Fork, ForkChanges, RunRead
    from ...runs.root import Root
    from ...work.journal.fork_prefix import Placed
    from .membership import ClusterMembership


class Forks:
    """Reads runs for forks, and submits forks.

    Args:
        root: finds agents.
        seat: membership of this process.
    """

    def __init__(self, root: Root, seat: ClusterMembership) -> None:
        self._root = root
        self._seat = seat

    async def read(self, run: str, *, parts: bool) -> RunRead:
        await imported(".actors.runs.rerun.fork")
        from ...runs.rerun.fork import RunRead, nodes_of, rows_in

        of = await self._origin(run)
        if not of.past.rows:
            raise Conflict(f"{run} has not begun: there is nothing yet that it has done")
        rows = await trio.to_thread.run_sync(rows_in, of.past)
        first = await self._first_row(of, rows)
        nodes = await self._root.loader.threaded(partial(nodes_of, rows, self._root.config_dir, first))
        done = await self._done_by_parts(run) if parts else {}
        return RunRead(run=run, rows=rows, about=of.past.kept.about, nodes=nodes, parts=done)

    async def fork(self, info: RunInfo, fork: Fork, changes: ForkChanges) -> RunInfo:
        of = await self._origin(fork.run)
        request = decode_json(of.request, RunRequest)
        of_info = decode_json(of.info, RunInfo)
        # A fork spends like a new run, so the daily limit applies.
        if self._root.days is not None:
            await self._root.days.check(info.owner)
        run = new_id()
        rows, past = await trio.to_thread.run_sync(fork.begins, run, changes)
        # Checked here, so that the caller gets the error instead of a parked run later.
        check_goes_on(run, past)
        first = past.began.request
        request = msgspec.structs.replace(request, id=run, prompt=first.prompt, model=first.model, state=first.state)
        info = msgspec.structs.replace(
            info,
            run=run,
            status="queued",
            target=of_info.target,
            name=of_info.name,
            dialect=of_info.dialect,
            prompt=first.prompt[:LONGEST_PROMPT],
            started=rfc3339(datetime.now(UTC)),
        )
        wanted = Wanted(
            run=run,
            request=msgspec.json.encode(request),
            info=msgspec.json.encode(info),
            bundle=of.bundle,
            needs=of.needs,
            priority=of.priority,
            subject=of.subject,
        )
        await self._submit(of.run, wanted, encode_about(fork.about_it(past)), rows)
        return info

    async def _origin(self, run: str) -> Origin:
        of = await self._seat.read(partial(forks.origin, run=run))
        if of is None:
            raise no_run(run)
        return of

    async def _done_by_parts(self, run: str) -> dict[str, list[str]]:
        """Return the external effects of remote children, begun or done, by the id of the run's direct child."""
        from ...runs.rerun.fork import done_behind, rows_in

        def words(part: Origin) -> list[str]:
            name = decode_json(part.info, RunInfo).name
            return [f"{name}: {each}" for each in done_behind(rows_in(part.past), 0)] if part.past.rows else []

        done: dict[str, list[str]] = {}
        for id, of in await self._seat.read(partial(forks.parts_of, run=run)):
            part = await self._seat.read(partial(forks.origin, run=id))
            if part is not None:
                done.setdefault(of, []).extend(await trio.to_thread.run_sync(words, part))
        return done

    async def _first_row(self, of: Origin, rows: list[Placed]) -> Began | None:
        """Return the first row with the file paths of this machine, after unpacking the bundle here.

        Returns None if the files are not available; then the nodes of the graph have no names.
        """
        if (hash := of.bundle) is None:
            return None
        request = decode_json(of.request, RunRequest)
        try:
            here = await unpacked(request, hash, partial(self._seat.read, partial(queries.blob, hash=hash)), os.environ)
        except (BundleLost, OSError):  # not fatal: steps can be identified by their numbers
            return None
        return localize_first_row(began(rows), request.target, here.target)

    async def _submit(self, origin: str, wanted: Wanted, about: bytes, rows: list[StoredRow]) -> None:
        submit = partial(forks.submit, origin=origin, wanted=wanted, about=about, rows=rows)
        how = await self._seat.do(submit)
        if how == "gone":
            raise NotFound(f"{origin} was removed")
        if how == "taken":
            raise Conflict(f"there is a run '{wanted.run}' already")
