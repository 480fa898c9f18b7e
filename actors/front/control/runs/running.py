"""Runs under way in this process, whatever program part started them: registration, logging and removal.

Each run that the hub starts has its own task in the hub's nursery, and outlives the connection that requested it.
`hear` receives every event in the task that emits it, so its work must be quick.

A run passes through three tables: `_starting` until `run.started` or `run.resumed`, `live` from the first event until
its log is complete on disk, and then `RunLogs.past`.

A program that executes a run itself, without a hub, logs it in the same directory:

    async with keep_runs(root, note, logged=True) as recorder:
        await perform(request, RunCallbacks(recorder=recorder), root)

So `callboard runs`, `logs` and `show`, and a server's web page, list such runs like any other. A scan of that directory
would delay each run by a tenth of a second. So old runs are pruned only at the end, and only if clearly more than the
limit exist.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.control.caller import LOCAL, Caller
from .....protocol.control.resources import RunInfo
from .....protocol.errors import ActorCancelled, CallboardError, ConfigError, Conflict, Denied, NotFound, Saturated
from .....protocol.events import Event, RunResumed, RunStarted, Warned
from .....protocol.outcome import ErrorReport
from .....protocol.requests import RunRequest
from ....io.directories import state_dir
from ....io.secret_redaction import Redactor, secrets_of
from ....runs.begin import new_id, perform
from ....runs.durable import play
from ....runs.loading import NO_HOOKS, RunCallbacks
from ....views.run_view import RunView
from ..logs.run_logs import CLOSE_WITHIN, RunLogs
from .live_run import HubOptions, LiveRun
from .summary import rfc3339

if TYPE_CHECKING:
    from .....protocol.chat import Turn
    from .....protocol.outcome import Outcome
    from ....runs.durable import TakenRun
    from ....runs.rerun.fork import Fork, ForkChanges
    from ....runs.root import Root
    from ....work.models.recorder import Recorder


log = logging.getLogger("callboard.control")


class Running:
    """Registry of the runs under way.

    Args:
        root: services that the runs share.
        logs: storage of the events and summaries.
        options: limits of the hub.
        redact: removes secrets from an encoded event.

    Attributes:
        live: runs that are not yet completely on disk, by id.
        nursery: nursery of the runs that the hub starts.
    """

    def __init__(
        self, root: Root, logs: RunLogs, options: HubOptions, redact: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.live: dict[str, LiveRun] = {}
        self.nursery: trio.Nursery
        self._root = root
        self._logs = logs
        self._options = options
        self._redact = redact
        self._over: dict[str, trio.Event] = {}
        self._playing: set[str] = set()
        self._starting: dict[str, tuple[RunInfo, trio.TaskStatus[None] | None]] = {}

    @property
    def under_way(self) -> int:
        """Number of runs that are starting or have not ended. Dormant runs do not count."""
        return len(self._starting) + sum(not record.over for record in self.live.values())

    def check_room(self) -> None:
        """Raise `Saturated` if the maximum number of runs is under way."""
        most = self._options.max_runs
        if most and self.under_way >= most:
            raise Saturated(f"{most} runs are active, which is the limit of this server; try again later")

    @property
    def at_work(self) -> int:
        """Number of runs under way, without durable ones that wait for users."""
        kept = self._root.kept
        return self.under_way - sum(
            record.info.status == "waiting" and not record.over and id in kept for id, record in self.live.items()
        )

    def leave(self) -> int:
        """Interrupt all runs at the end of the process, and leave durable ones to the next process.

        Returns the number of runs that no process can resume.
        """
        cancelled = len(self._starting)
        for id, record in list(self.live.items()):
            actor = self._root.kernel.actor.child(id)
            if record.over or actor is None or actor.end is not None:
                continue
            kept = self._root.kept.get(id)
            if kept is not None:
                kept.hand_over()
            cancelled += kept is None or not kept.handed_over
            actor.interrupt()
        return cancelled

    def owner_of(self, run: str) -> str:
        """Return the subject that owns a run; the local user owns runs that were not started through the hub."""
        info = self.known(run)
        return info.owner if info is not None else LOCAL.subject

    def known(self, run: str) -> RunInfo | None:
        """Return the summary of a run of any process; None if it is not in memory. Never reads the disk."""
        record = self.live.get(run)
        return record.info if record is not None else self._logs.past.get(run)

    def plays(self, run: str) -> bool:
        """Return True if the hub executes the run, rather than a program outside the hub."""
        return run in self._playing

    def followed(self) -> set[str]:
        """Return the ids of runs with a subscription."""
        return {reader.run for reader in self._logs.readers}

    def over(self, run: str) -> trio.Event:
        """Return an event that is set when the hub stops executing the run."""
        return self._over.setdefault(run, trio.Event())

    async def flush(self) -> None:
        """Wait until all log lines are written."""
        await self._logs.flush()

    def view_of(self, run: str) -> RunView | None:
        """Return the state derived from the events of a run in `live`; None for other runs."""
        record = self.live.get(run)
        return record.view if record is not None else None

    async def start(self, info: RunInfo, request: RunRequest, hooks: RunCallbacks, *, durable: bool = True) -> str:
        """Start a run, wait until it has begun, and return its id: that of `info` if it has one, else a new one.

        Args:
            durable: false to make this run not durable, even if the hub's runs are.

        Raises:
            ActorCancelled: the run ended before it began.
            CallboardError: the run could not begin, as for `callboard.run`.
        """
        id = info.run or self._new_id()
        info, request = msgspec.structs.replace(info, run=id), msgspec.structs.replace(request, id=id)
        hooks = self._with_options(info, hooks, durable=durable)
        return await self._begin(info, lambda: perform(request, hooks, self._root))

    async def fork(self, info: RunInfo, fork: Fork, changes: ForkChanges) -> str:
        """Start a fork like `start`. Raises as `Fork.play` does."""
        info = msgspec.structs.replace(info, run=self._new_id())
        hooks = self._with_options(info, NO_HOOKS)
        changes = msgspec.structs.replace(changes, id=info.run)
        return await self._begin(info, lambda: fork.play(self._root, changes, hooks))

    def _new_id(self) -> str:
        id = new_id()
        while id in self.live or id in self._starting or not self._logs.is_free(id):
            id = new_id()
        return id

    async def _begin(self, info: RunInfo, plays: Callable[[], Awaitable[Outcome]]) -> str:
        self._starting[info.run] = info, None  # counts against `max_runs` from here on
        try:
            # Returns when `hear` gets `run.started`, or raises the error that prevented it.
            await self.nursery.start(self._keep, info, plays)
        finally:
            self._starting.pop(info.run, None)
        return info.run

    def expect(self, info: RunInfo) -> None:
        """Register a run that is about to resume here. Its followers wait for its new events."""
        info = msgspec.structs.replace(info, status="running", ended=None, error=None, resumable=False)
        record = self._record(info)
        record.goes_on()
        record.log.summarise(info)

    async def resume(
        self,
        info: RunInfo,
        taken: TakenRun,
        hooks: RunCallbacks,
        history: tuple[Turn, ...] = (),
        *,
        with_changes: bool = False,
    ) -> None:
        """Resume a run of an earlier process and wait until it has begun. Raises as `durable.play` does."""
        if info.run not in self.live:
            self.expect(info)
        record = self.live[info.run]
        hooks = self._with_options(info, hooks)
        self._starting[info.run] = info, None

        async def perform_again() -> Outcome:
            after = record.earlier
            return await play(self._root, taken, hooks, with_changes=with_changes, history=history, after=after)

        try:
            await self.nursery.start(self._keep, info, perform_again)
        except BaseException as error:  # on any failure, cancellation included, the run stays interrupted
            self.stays(info.run, error)
            raise
        finally:
            self._starting.pop(info.run, None)

    def stays(self, run: str, why: BaseException | None = None) -> None:
        """End the record of an expected run that this process does not resume; `why` has the reason."""
        record = self.live.get(run)
        if record is not None:
            record.stay(ErrorReport.of(why) if isinstance(why, CallboardError) else None)

    def _with_options(self, info: RunInfo, hooks: RunCallbacks, *, durable: bool = True) -> RunCallbacks:
        options = self._options
        keeps = options.durable if durable else False
        hooks = msgspec.structs.replace(hooks, owner=info.owner, durable=keeps, by=options.by)
        wanted = self._root.settings.keep_requests
        if (options.keep_requests if wanted is None else wanted) and hooks.recorder is None:
            hooks = msgspec.structs.replace(hooks, recorder=self.recorder)
        return hooks

    def recorder(self, run: str) -> Recorder:
        """Return a recorder of the run's model calls."""
        return self._logs.recorder(run, self._redactor())

    def without_secrets(self, data: bytes) -> bytes:
        """Return JSON data with secrets redacted."""
        return self._redactor()(data)

    def _redactor(self) -> Callable[[bytes], bytes]:
        known, redact = Redactor(secrets_of(self._root.settings, os.environ)), self._redact
        return known.data if redact is None else lambda line: redact(known.data(line))

    def hear(self, event: Event) -> None:
        """Record an event in its run. The first event registers the run; events of other unknown runs are ignored."""
        id, record = event.run, self.live.get(event.run)
        if record is None and (event.seq == 1 or isinstance(event.data, RunStarted)):
            record = self._begun(id, event)
        if record is None:
            return
        record.add(event)
        if isinstance(event.data, RunStarted | RunResumed):
            record.log.summarise(record.info)  # the first complete summary: the event names the agent and its model
            _, begun = self._starting.pop(id, (None, None))
            if begun is not None:
                begun.started()

    async def _keep(
        self, info: RunInfo, plays: Callable[[], Awaitable[Outcome]], *, task_status: trio.TaskStatus[None]
    ) -> None:
        self._starting[info.run] = info, task_status
        self._playing.add(info.run)
        try:
            await plays()
            if info.run in self._starting:
                raise ActorCancelled(f"{info.run} ended before it began")
        except Exception:  # a failed run must not end the hub
            if info.run in self._starting:  # the task that called `start` gets the error
                raise
            log.exception("%s ended without an outcome", info.run)
        finally:
            starting = self._starting.pop(info.run, None)
            self._playing.discard(info.run)
            if (over := self._over.pop(info.run, None)) is not None:
                over.set()
            record = self.live.get(info.run)
            if record is not None and starting is None:
                record.lose()

    def _begun(self, id: str, event: Event) -> LiveRun:
        info, _ = self._starting.get(id, (RunInfo(run=id, owner=LOCAL.subject), None))
        if event.seq == 1:
            info.started = rfc3339(event.ts)
            return self._record(info)
        known = self._logs.get(id)  # a program resumes the run outside the hub
        info = known or msgspec.structs.replace(info, started=rfc3339(event.ts))
        record = self._record(msgspec.structs.replace(info, status="running", ended=None, error=None))
        record.goes_on()
        return record

    def _record(self, info: RunInfo) -> LiveRun:
        self._logs.past.pop(info.run, None)
        self._logs.interrupted.pop(info.run, None)
        log = self._logs.begin(info, partial(self._log_broke, info.run))
        record = LiveRun(info, log, lambda: self._put_away(record), self._options, self._redact)
        self.live[info.run] = record
        return record

    def _put_away(self, record: LiveRun) -> None:
        if self.live.get(record.info.run) is record:  # else it was deleted, or has already been resumed
            del self.live[record.info.run]
            self._logs.put_away(record.info)

    def _log_broke(self, id: str) -> None:
        """Warn the subscribers of a run, by an event, that its log cannot be written now."""
        record = self.live.get(id)
        if record is None:  # the run was removed
            return
        log.error("the log of %s can't be written: %s", id, record.log.trouble)
        actor = self._root.kernel.actor.child(id)
        if actor is not None and actor.end is None:
            text = (
                f"the log of this run can't be written ({record.log.trouble}); the run continues, and its "
                "events are kept in memory, as far as there is room, until the log can be written"
            )
            actor.emit(Warned(code="log_broken", message=text))


def sees(caller: Caller, owner: str) -> bool:
    """Return True if the caller may see the runs of this owner."""
    return caller.has("admin:runs") or (caller.has("read:runs") and owner == caller.subject)


def check_owner(caller: Caller, owner: str, run: str) -> None:
    """Check that the caller may access this run.

    Raises:
        Denied: it has another owner, and the caller may know that it exists.
        NotFound: it has another owner.
    """
    if owner == caller.subject or caller.has("admin:runs"):
        return
    if caller.has("read:runs"):
        raise Denied(f"{run} belongs to another subject; accessing it needs the scope 'admin:runs'")
    raise no_run(run)


def no_run(run: str) -> NotFound:
    return NotFound(f"there is no run {run[:60]!r}")


def owned_by_other_process(run: str) -> Conflict:
    """Return the error for an attempt to control a run of another process."""
    return Conflict(f"{run} is executed by another process and can only be watched; to steer it, use that process")


@asynccontextmanager
async def keep_runs(
    root: Root, note: Callable[[str], None], *, logged: bool
) -> AsyncIterator[Callable[[str], Recorder] | None]:
    """Yield a factory of recorders for runs of this process; None if they cannot be stored, and `note` gets the reason.

    Args:
        logged: also store the events of the runs. False if a hub of this process does so.
    """
    logs = RunLogs(state_dir(os.environ) / "runs", keep=root.settings.api.keep_runs, brief=True)
    try:
        await logs.__aenter__()
    except ConfigError as error:
        note(f"this run is not logged: {error}")
        yield None
        return
    running = Running(root, logs, HubOptions())
    try:
        with root.bus.listen(partial(_hear, running)) if logged else nullcontext():
            yield running.recorder
    finally:
        with root.kernel.shield(CLOSE_WITHIN + 1):
            await logs.aclose()
            await logs.prune_if_many()


def _hear(running: Running, event: Event) -> None:
    # Shared actors emit events too, which belong to no run.
    if isinstance(event.data, RunStarted) or event.run in running.live:
        running.hear(event)
