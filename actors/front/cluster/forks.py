"""Forks of runs of a cluster: another run is put into its queue with the first rows of one, and a worker goes on from
there as if it had taken the run over.

What a worker needs to play it is that of the run that it comes from: its files, its labels, whose it is. The rows say
where these files lay on the machine where the run began; who goes on finds them in its own cache (`bundle.moved`).
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
from ....supervisors.cluster import forks, telling
from ....supervisors.cluster.queue import Wanted
from ...io.imports import imported
from ...runs.begin import new_id
from ...runs.durable import check_goes_on
from ...work.journal.prefix import began
from ..control.runs.running import no_run
from ..control.runs.summary import LONGEST_PROMPT, rfc3339
from .bundle import BundleLost, first_row_here, unpacked

if TYPE_CHECKING:
    from ....protocol.journal import Began
    from ....supervisors.cluster.forks import Origin
    from ....supervisors.journal.row import Row
    from ...runs.rerun.changes import Changes
    from ...runs.rerun.fork import Fork, RunRead
    from ...runs.root import Root
    from ...work.journal.prefix import Placed
    from .seat import Seat


class Forks:
    """See the module.

    Args:
        root: finds agents; seat: of this process.
    """

    def __init__(self, root: Root, seat: Seat) -> None:
        self._root = root
        self._seat = seat

    async def read(self, run: str, *, parts: bool) -> RunRead:
        """See `control.cluster.Cluster`."""
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

    async def fork(self, info: RunInfo, fork: Fork, changes: Changes) -> RunInfo:
        """See `control.cluster.Cluster`."""
        of = await self._origin(fork.run)
        request = decode_json(of.request, RunRequest)
        of_info = decode_json(of.info, RunInfo)
        if self._root.days is not None:
            await self._root.days.check(info.owner)
        run = new_id()
        rows, past = await trio.to_thread.run_sync(fork.begins, run, changes)
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
        """What the parts of a run have done to the world, or were about to do, by the ids of those that are its own."""
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
        """The first row, with the run's files where this machine has them, which are brought here; None if they can't
        be: then the nodes of its graph have no names."""
        if (hash := of.bundle) is None:
            return None
        request = decode_json(of.request, RunRequest)
        try:
            here = await unpacked(request, hash, partial(self._seat.read, partial(telling.blob, hash=hash)), os.environ)
        except (BundleLost, OSError):  # steps have numbers as well
            return None
        return first_row_here(began(rows), request.target, here.target)

    async def _submit(self, origin: str, wanted: Wanted, about: bytes, rows: list[Row]) -> None:
        submit = partial(forks.submit, origin=origin, wanted=wanted, about=about, rows=rows)
        how = await self._seat.do(submit)
        if how == "gone":
            raise NotFound(f"{origin} was removed")
        if how == "taken":
            raise Conflict(f"there is a run '{wanted.run}' already")
