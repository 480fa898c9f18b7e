"""Cluster gateway: the interface of a hub to runs that workers execute.

New runs go into the queue, together with the files of their agent. The gateway reads states and questions from the
database when it is notified of a change, and every second, because notifications may get lost. An answer counts once
the database has accepted it; the first one wins, at whichever gateway it arrives.

Changes are numbered before their transactions commit, so a lower number may become visible after a higher one. A poll
that reads only numbers above the highest one seen would miss such a change forever. Therefore `_read_changes` starts
from the poll before the last one. `_read_questions` starts from the newest number that is at least `LATE` seconds old,
and reads all open questions every `ALL_EVERY` seconds. After a reconnect, both go back by `LOST` numbers: a crash or
failover may have lost changes that were seen, and their numbers are assigned again.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.control.resources import RunInfo
from ....protocol.decoding import decode_json
from ....protocol.errors import CallboardError, Conflict, NotFound, Unsupported
from ....protocol.journal import encode_about
from ....protocol.kernel.questions import Answer, Question, understood
from ....protocol.requests import RunRequest
from ....supervisors.cluster import forks, queries, queue, spending, workers
from ....supervisors.cluster.queries import ClusterFigures, StoredRunState
from ....supervisors.cluster.queue import Wanted
from ....supervisors.journal.row import StoredRow
from ...io.imports import imported
from ...runs.begin import DIALECTS, check_fits, new_id
from ...runs.durable import check_goes_on
from ...runs.finding import find
from ...runs.loading import NO_HOOKS
from ...work.journal.fork_prefix import began
from ...work.journal.pending_answers import encode_answer
from ...work.library import AGENTS
from ..control.runs.running import no_run
from ..control.runs.summary import LONGEST_PROMPT, rfc3339
from .bundle import BundleLost, bundled, localize_first_row, unpacked
from .logs import GatewayLogs, info_of
from .relay import KEY, TakeChanges, ask, follow, follow_actors, tree
from .shared_limits import ProviderLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....protocol.control.resources import ActorInfo
    from ....protocol.journal import Began
    from ....supervisors.cluster.forks import Origin
    from ...runs.rerun.fork import Fork, ForkChanges, RunRead
    from ...runs.root import Root
    from ...work.journal.fork_prefix import Placed
    from ..control.hub import Hub
    from ..control.runs.live_run import HubOptions
    from .membership import ClusterMembership


LOST = 1_000
"""Upper bound of the changes that a database loses in a crash: those of a fraction of a second."""

LATE = 5.0
"""Seconds until a numbered change is visible, unless its worker was paused meanwhile."""

ALL_EVERY = 60.0
"""Seconds between two reads of all open questions, which also find those of workers that were paused for long."""

PRUNE_EVERY = 60.0
"""Seconds between two deletions of runs beyond the retention limit."""

DAYS_EVERY = 5.0
"""Seconds between two reads of the daily limits, if any are configured."""

log = logging.getLogger("callboard.cluster")


class ClusterGateway:
    """Cluster interface of a hub in a gateway process; see `control.cluster.Cluster` for the operations.

    Args:
        root: finds agents.
        seat: membership of this process.

    Attributes:
        figures: figures of the cluster from the last poll; None before the first.
    """

    plays = False
    failed = None

    def __init__(self, root: Root, seat: ClusterMembership) -> None:
        self.seat = seat
        self._root = root
        self._limits = ProviderLimits(root.gateway.gates, seat)
        self._forks = Forks(root, seat)
        self._hub: Hub
        self._logs: GatewayLogs
        self._dirty: set[str] = set()
        self._all = self._asked = True
        self._news = trio.Event()
        self._seen = self._seen_before = 0
        self._marks: deque[tuple[float, int]] = deque()  # (time, newest change of questions at that time)
        self._looks_at_all = -math.inf
        self._answered: set[str] = set()  # answered here; the next poll may still read them as open
        self.figures: ClusterFigures | None = None

    def logs(self, directory: Path, **options: object) -> GatewayLogs:
        """Return logs that read from the database."""
        return GatewayLogs(self.seat, directory, **options)

    def of_hub(self, options: HubOptions) -> HubOptions:
        """Return the hub's options unchanged."""
        return options

    async def drain(self) -> None:
        """Do nothing: a gateway claims no runs, so there is none to stop claiming."""

    async def leave(self) -> None:
        """Close the connections."""
        self.seat.close()

    async def begin(
        self,
        hub: Hub,
        nursery: trio.Nursery,
        url: str,  # noqa: ARG002  - workers never connect to a gateway
        token: str,  # noqa: ARG002  - as above
    ) -> None:
        """Load the runs of the cluster and start polling in the nursery; returns when the runs are known."""
        assert isinstance(hub.logs, GatewayLogs)
        self._hub, self._logs = hub, hub.logs
        self._logs.nursery, self._logs.follow = nursery, self._follow
        keep = hub.options.keep_runs or 10_000
        self._take_in(await self.seat.do(lambda db: queries.newest(db, keep)))
        await self._read_questions()
        nursery.start_soon(self._poll)
        nursery.start_soon(self._prune)
        nursery.start_soon(self._read_daily_limits)
        nursery.start_soon(self._limits.work)
        nursery.start_soon(self.seat.listen, self._hear, self._poll_soon)

    # --- news ---------------------------------------------------------------------------------------------------

    def _hear(self, kind: str, about: list[str]) -> None:
        if kind == "r":
            self._dirty.update(about)
        elif kind == "k":
            self._asked = True
        else:
            if kind == "l":
                self._limits.hear(about)
            return
        self._news.set()

    def _poll_soon(self, anew: bool) -> None:
        if anew:  # a new connection may be one after a crash or failover: numbers may be assigned again
            self._seen = self._seen_before = max(0, self._seen_before - LOST)
            self._marks = deque([(-math.inf, max(0, self._marks[0][1] - LOST))]) if self._marks else deque()
        self._all = self._asked = True
        self._news.set()

    async def _poll(self) -> None:
        """Read changes upon each notification."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            dirty, self._dirty = self._dirty, set()
            everything, self._all = self._all, False
            asked, self._asked = self._asked, False
            try:
                if everything:
                    await self._read_changes()
                if dirty:
                    found = await self.seat.read(partial(queries.run_states_of, runs=dirty))
                    self._take_in(found)
                    for run in dirty.difference(each.run for each in found):
                        self._logs.forget(run)
                if asked:
                    await self._read_questions()
                if everything:
                    self.figures = await self.seat.read(queries.figures)
            except CallboardError as error:
                log.warning("%s", error)
                self._dirty |= dirty
                continue
            for run in dirty:
                self._logs.wake(run)
            if everything:
                self._logs.wake_all()

    async def _prune(self) -> None:
        """Delete runs beyond the retention limits."""
        settings = self._root.settings
        prune = partial(queries.prune, keep=settings.api.keep_runs, days=settings.durable.keep_days)
        while True:
            try:
                while await self.seat.read(prune):
                    await trio.lowlevel.checkpoint()
                await self.seat.read(spending.forget)
            except CallboardError as error:
                log.warning("%s", error)
            await trio.sleep(PRUNE_EVERY)

    async def _read_daily_limits(self) -> None:
        """Read the used amounts of daily limits for metrics; workers do the spending."""
        while self._root.days is not None:
            await self._root.days.poll()
            await trio.sleep(DAYS_EVERY)

    async def _read_changes(self) -> None:
        """Read all changes since the poll before the last, because numbers are assigned before they become visible."""
        since, self._seen_before = self._seen_before, self._seen
        while True:
            found = await self.seat.read(partial(queries.changed_since, changed=since))
            self._take_in(found)
            if not found or found[-1].changed == since:
                return
            since = found[-1].changed

    def _take_in(self, found: list[StoredRunState]) -> None:
        for each in found:
            self._seen = max(self._seen, each.changed)
            info = info_of(each)
            if info is not None:
                self._logs.stands(info)

    async def _read_questions(self) -> None:
        open, now = self._hub.shown, trio.current_time()
        if now >= self._looks_at_all + ALL_EVERY:
            found = await self.seat.read(queries.open_questions)
            self._looks_at_all = now
        else:
            while len(self._marks) > 1 and self._marks[1][0] <= now - LATE:
                self._marks.popleft()
            since = self._marks[0][1] if self._marks else 0
            found = await self.seat.read(partial(queries.questions_since, changed=since))
        newest = max((each.changed for each in found), default=0)
        if not self._marks:  # first poll: start near the newest change instead of reading all past questions
            self._marks.append((now, max(LOST, newest, self._seen) - LOST))
        elif newest > self._marks[-1][1]:
            self._marks.append((now, newest))
        for each in found:
            if each.over is not None:
                self._answered.discard(each.id)
                open.release([each.id], each.over)
            elif each.id not in self._answered and each.id not in open.open:
                question = decode_json(each.data, Question)
                if not ((info := self._logs.past.get(question.run)) and info.over):
                    open.hold([question])
        for id, question in list(open.open.items()):
            if self._logs.in_cluster(question.run) and (await self._logs.is_over(question.run)):
                open.release([id], "cancelled")

    # --- operations ---------------------------------------------------------------------------------------------

    def takes(self, info: RunInfo, request: RunRequest) -> bool:
        """Return False for a turn of a session that needs no label: it runs here, where its session is."""
        return info.session is None or bool(request.needs)

    async def start(self, info: RunInfo, request: RunRequest) -> RunInfo:
        """Put a run into the queue and return its summary. Checks the owner's daily limit; the worker checks it again.

        Raises:
            Unsupported: an option names files of this machine.
            Conflict: a run with the requested id exists already.
        """
        if self._root.days is not None:
            await self._root.days.check(info.owner)
        request = msgspec.structs.replace(request, id=request.id or new_id())
        assert request.id is not None
        _check(request)
        named, bundle = request.target, None
        name = named.name if isinstance(named, Agent) else named
        if isinstance(named, str) and not request.in_role and (named or info.session is None):
            loaded = await self._root.loader.threaded(partial(self._root.loader.loaded, request, NO_HOOKS))
            check_fits(request, loaded)
            name, info = loaded.name, msgspec.structs.replace(info, dialect=DIALECTS[type(loaded)])
            found = await trio.to_thread.run_sync(partial(find, named, config_dir=self._root.config_dir))
            if not found.directory.is_relative_to(AGENTS):
                where = Path(found.file) if named.endswith((".yaml", ".yml")) else found.directory
                sent = await trio.to_thread.run_sync(bundled, where, self._root.config_dir, os.environ)
                request, bundle = msgspec.structs.replace(request, target=sent.target), sent.hash
                await self.seat.do(sent.put)
        info = msgspec.structs.replace(
            info,
            run=request.id,
            status="queued",
            target=named if isinstance(named, str) else "",
            name=name,
            prompt=request.prompt[:LONGEST_PROMPT],
            started=rfc3339(datetime.now(UTC)),
        )
        wanted = Wanted(
            run=info.run,
            request=msgspec.json.encode(request),
            info=msgspec.json.encode(info),
            bundle=bundle,
            needs=request.needs,
            subject=info.owner,
        )
        if not await self.seat.do(partial(queue.submit, wanted=wanted)):
            raise Conflict(f"the run '{info.run}' exists already")
        known = self._logs.past.get(info.run)
        if known is None:
            self._logs.stands(info)
        return known or info

    def has(self, run: str) -> bool:
        return self._logs.in_cluster(run)

    async def begun(self, run: str) -> RunInfo:
        return await self._when(run, lambda info: info.over or info.seq > 0)

    async def over(self, run: str) -> RunInfo:
        return await self._when(run, lambda info: info.over)

    async def _when(self, run: str, so: Callable[[RunInfo], bool]) -> RunInfo:
        """Wait until the summary of a run satisfies a condition, and return it."""
        while True:
            info = self._logs.past.get(run)
            if info is None:
                raise no_run(run)
            if so(info):
                return info
            await self._logs.news(run)

    async def cancel(self, run: str, by: str) -> None:
        info = self._logs.past.get(run)
        if info is not None:
            gone = msgspec.structs.replace(info, status="cancelled", ended=rfc3339(datetime.now(UTC)), exit_code=130)
            data = msgspec.json.encode(gone)
            await self.seat.at_last(lambda db: queue.cancel(db, run, by, data))

    async def resume(self, run: str, *, with_changes: bool) -> None:
        if with_changes:
            raise Unsupported(
                f"{run} can't be resumed with changed files: a cluster resumes runs with the files that they "
                "started with"
            )
        how = await self.seat.do(lambda db: queue.unpark(db, run))
        if how == "missing":
            raise NotFound(f"there is no run {run[:60]!r}")
        if how != "done":
            raise Conflict(f"{run} is {how}")

    async def rows(self, run: str, after: int, most: int) -> list[StoredRow] | None:
        return await self.seat.read(partial(queries.rows_after, run=run, after=after, most=most))

    async def read(self, run: str, *, parts: bool) -> RunRead:
        return await self._forks.read(run, parts=parts)

    async def fork(self, info: RunInfo, fork: Fork, changes: ForkChanges) -> RunInfo:
        info = await self._forks.fork(info, fork, changes)
        known = self._logs.past.get(info.run)  # a worker may have claimed it already, which is newer
        if known is None:
            self._logs.stands(info)
        return known or info

    async def delete(self, run: str) -> None:
        if not await self.seat.do(lambda db: queries.forget(db, run)):
            raise Conflict(f"{run} is active; cancel it first")
        self._logs.forget(run)

    async def _follow(self, run: str, after: int, take: Callable[[msgspec.Raw], None]) -> None:
        """Subscribe to a run's events at its worker."""
        worker = await self.seat.read(lambda db: workers.worker_of(db, run))
        if worker is not None:
            await follow(worker, os.environ.get(KEY, ""), run, after, take)

    async def ask(self, run: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
        info = self._logs.past.get(run)
        # File changes and model calls of a finished run are on its last worker.
        last = "" if info is None or not info.over else info.worker or ""
        worker = await self.seat.read(lambda db: workers.worker_of(db, run, last))
        if worker is None and last:
            raise Conflict(
                f"the file changes and model calls of {run} are stored on the worker {last!r}, which is not running now"
            )
        if worker is None:
            raise Conflict(f"no worker executes {run} now, so its actors can't be inspected or changed")
        return await ask(worker, os.environ.get(KEY, ""), method, params)

    def shows_actors(self, run: str | None) -> bool:
        return run is None or self.has(run)

    async def actors(self, run: str | None) -> list[ActorInfo]:
        return await tree(self.seat, run)

    async def watch_actors(self, run: str | None, interval: float, take: TakeChanges) -> None:
        await follow_actors(self.seat, run, interval, take)

    async def answer(self, question: str, value: str | list[str], by: str) -> bool:
        asked = self._hub.shown.open.get(question)
        if asked is None:
            return False
        if asked.secret:  # send it to the worker directly: a secret must not be in the database
            params = msgspec.Raw(msgspec.json.encode({"question": question, "value": value}))
            told = decode_json(await self.ask(asked.run, "_question/answer", params), dict[str, bool])
            return told["answered"]
        data = encode_answer(Answer(question=question, value=understood(asked, value), by=by))
        # A concurrent poll may have read the question as open already, and would show it again.
        self._answered.add(question)
        try:
            how = await self.seat.do(lambda db: queries.answer(db, question, data))
        except BaseException:  # cancellation included: let the next poll decide whether it is open
            self._answered.discard(question)
            raise
        self._hub.shown.release([question], by)
        if how == "closed":
            self._answered.discard(question)
        if how == "late":
            raise Conflict(f"question {question} is no longer open: it was answered by someone else first")
        return how == "taken"


def _check(request: RunRequest) -> None:
    """Raise `Unsupported` for options that refer to files of this machine."""
    here = [name for name in ("save", "files", "attach", "roots") if getattr(request, name)]
    if here:
        raise Unsupported(f"`{here[0]}` names files of this machine, which the workers of the cluster do not have")


class Forks:
    """Access to the cluster's runs for forks: reads the rows of a run, and puts a fork of it into the queue.

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
            raise Conflict(f"{run} has not started, so it has no steps yet")
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
            raise Conflict(f"the run '{wanted.run}' exists already")
