"""Logs of all runs of a user, with an index of their summaries.

    async with RunLogs(state_dir(os.environ) / "runs") as logs:
        log = logs.begin(info, on_trouble)
        log.append(encode(event))
        log.close(info, done)

Any number of processes may share the directory. Each marks its own summaries with the token of its lock file in
`.alive`. So a process that starts, or scans again, can identify the runs of dead processes. A run without an end is
`lost` if its process is dead, with all events that were written; a durable one is `interrupted` and can be resumed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, Self, TypeAlias
from weakref import WeakSet, WeakValueDictionary

import msgspec
import trio

from .....protocol.control.resources import RunInfo
from .....protocol.errors import ConfigError
from .....protocol.journal import About
from .....protocol.outcome import ErrorReport
from ....runs.stored_runs import InterruptedRun, InterruptedRunsCache
from ....work.models.recorder import Recorder
from ....work.tools.changes.store import store_of
from ..liveness import Alive
from ..runs.summary import rfc3339, summed_up
from .files import (
    REQUESTS,
    LoggedEvent,
    LogPage,
    StoredRun,
    is_id,
    last_event,
    make_private,
    read_page,
    read_summary,
    size_of,
    write_summary,
)
from .model_calls import last_call_numbers
from .writer import Done, LogWriter, RunLog

MOST_AT_ONCE = 256 * 1024
"""Bytes of events after which `several` reads no further page."""

QUICKLY_READ = 1024 * 1024
"""Bytes of a log that can be summed up in the event loop."""

MARGIN = 20
"""A program that is not a server prunes once the limit is exceeded by one run in `MARGIN`."""

CLOSE_WITHIN = 5.0
"""Seconds for the writer to end. A disk that hangs must not block the end of the process for longer."""

log = logging.getLogger("callboard.control")


class LogReader(Protocol):
    """Subscription to a run. `prune` keeps the logs of runs that have one."""

    run: str


class RunLogs:
    """Index and storage of run logs.

    Args:
        directory: directory of all runs.
        keep: number of finished runs to retain, newest first; 0 for all.
        brief: for a short-lived program: skip the scan of the directory, and do not sync files to the disk.
        shows_interrupted: list durable runs that can be resumed as `interrupted`; otherwise they are `lost`.

    Attributes:
        past: summaries of finished runs and of runs in other processes, by id.
        interrupted: durable runs that can be resumed, by id.
        readers: current subscriptions; a weak set, so a dropped reader needs no explicit removal.
    """

    def __init__(
        self, directory: Path, *, keep: int = 1000, brief: bool = False, shows_interrupted: bool = True
    ) -> None:
        self.directory = directory
        self.past: dict[str, RunInfo] = {}
        self.interrupted: dict[str, InterruptedRun] = {}
        self._look = InterruptedRunsCache() if shows_interrupted and not brief else None
        self.readers: WeakSet[LogReader] = WeakSet()
        self._keep = keep
        self._brief = brief
        self._grown = trio.Event()
        self._followed: WeakValueDictionary[str, RemoteLog] = WeakValueDictionary()
        self._alive = Alive(directory / ".alive")
        self.writer = LogWriter(self._alive.token, sync=not brief)

    async def __aenter__(self) -> Self:
        try:
            self.past = await trio.to_thread.run_sync(self._begin)
        except OSError as error:
            raise ConfigError(
                f"the logs of runs can't be written to {self.directory}: {error.strerror or error}; set "
                "XDG_STATE_HOME to a writable directory"
            ) from error
        self.writer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write the remaining lines and stop the writer. A caller that may be cancelled needs a shield."""
        self.writer.end()
        await trio.to_thread.run_sync(self._end, abandon_on_cancel=True)

    def begin(self, info: RunInfo, on_trouble: Done) -> RunLog:
        """Return a log for a new run. `on_trouble` is called once, in the event loop, if writing fails."""
        return RunLog(self.writer, self.directory / info.run, on_trouble)

    def recorder(self, run: str, redact: Callable[[bytes], bytes]) -> Recorder:
        """Return a recorder of the run's model calls, which writes into at most two files in the run's directory.

        Blocking: reads existing files to continue their numbers.
        """
        directory = self.directory / run

        def open_file(number: int) -> RunLog:
            replaced = REQUESTS.format(number - 2) if number > 2 else ""
            file = RunLog(self.writer, directory, trouble, name=REQUESTS.format(number), replaces=replaced)
            opened.append(file)
            return file

        def trouble() -> None:
            log.error("the model calls of %s can't be recorded: %s", run, opened[-1].trouble)

        opened: deque[RunLog] = deque(maxlen=1)
        files, calls = last_call_numbers(directory)
        return Recorder(open_file, redact, files=files, calls=calls)

    def is_free(self, run: str) -> bool:
        """Return True if no run has this id."""
        return run not in self.past and not (self.directory / run).exists()

    def get(self, run: str, *, patient: bool = False) -> RunInfo | None:
        """Return a run that is finished or in another process; None if it is unknown. Blocking.

        If the process is dead and the log is longer than `QUICKLY_READ`, the summary stays outdated without `patient`.

        Args:
            patient: sum up a log of any length.
        """
        info = self.past.get(run)
        if (info is None or not info.over) and is_id(run):
            found = _current_info(self.directory / run, self._alive, None if patient else QUICKLY_READ)
            if found is not None:
                info = found
            if (kept := self.interrupted.get(run)) is not None and kept.about is not None:
                info = as_interrupted(info, kept, kept.about)
            if info is not None:
                self.past[run] = info
        return info

    async def is_over(self, run: str) -> bool:
        """Return True if a run of another process has ended or was deleted."""
        info = self.past.get(run)
        if info is None or not info.over:
            info = await trio.to_thread.run_sync(partial(self.get, run, patient=True))
        return info is None or info.over

    def remote_log(self, run: str) -> RemoteLog:
        """Return the shared reader of a log that another process writes."""
        found = self._followed.get(run)
        if found is None:
            found = self._followed[run] = RemoteLog(self, run)
        return found

    def put_away(self, info: RunInfo) -> None:
        """Move a finished run of this process, whose log is complete on disk, to `past`."""
        self.past[info.run] = info
        self._grown.set()

    async def grown(self) -> None:
        """Wait until a run has finished since the last `prune`."""
        await self._grown.wait()

    async def rescan(self, ours: Collection[str]) -> None:
        """Update the index after other processes began, ended or deleted runs.

        Args:
            ours: ids of the runs that this process has under way.
        """
        over = {run for run, info in self.past.items() if info.over}
        # An interrupted run may be resumed by another process, so its summary is read again.
        settled = {run for run in over if self.past[run].status != "interrupted"}
        others = await trio.to_thread.run_sync(self._others, settled.union(ours))
        gone = await trio.to_thread.run_sync(_removed_runs, self.directory, over.difference(ours))
        found = [] if self._look is None else await trio.to_thread.run_sync(self._look.interrupted, os.environ)
        self.interrupted = {run.run: run for run in found if run.run not in ours}
        for run in gone:
            self.past.pop(run, None)
        if any(info.over for info in others):
            self._grown.set()
        known = {id: info for id, info in self.past.items() if id not in ours}
        known.update({info.run: info for info in others})
        self.past.update({info.run: info for info in others})
        self.past.update(with_interrupted(known, self.interrupted))

    async def page(self, run: str, offset: int, after: int, most: int = 1_000_000) -> LogPage:
        """Read a page of events like `files.read_page`, in a worker thread."""
        return await trio.to_thread.run_sync(read_page, self.directory / run, offset, after, most)

    async def several(self, run: str, after: int, most: int) -> list[LoggedEvent]:
        """Return at most `most` events after a number: fewer if they are long, at least one if any exists."""
        found: list[LoggedEvent] = []
        offset = size = 0
        while len(found) < most and size < MOST_AT_ONCE:
            page = await self.page(run, offset, after, most - len(found))
            if not page.events:
                break
            offset, after = page.offset, page.events[-1].seq
            found += page.events
            size += sum(len(event.data) for event in page.events)
        return found

    async def last(self, run: str) -> LoggedEvent | None:
        """Return the newest event of a run on disk; None without any."""
        return await trio.to_thread.run_sync(last_event, self.directory / run)

    async def flush(self) -> None:
        """Wait until the writer has written all appended lines, or has failed to."""
        done = trio.Event()
        self.writer.flush(done.set)
        await done.wait()

    async def prune(self) -> None:
        """Delete the oldest finished runs beyond the limit, except those with a reader. Interrupted runs stay."""
        # Replaced before the check: a run that ends during the removal triggers another pass.
        self._grown = trio.Event()
        if self._keep <= 0 or len(self.past) <= self._keep:
            return
        over = [info.run for info in sorted(self.past.values(), key=order) if is_settled(info)]
        being_read = {reader.run for reader in self.readers}
        too_many = [run for run in over[: max(0, len(over) - self._keep)] if run not in being_read]
        for run in too_many:
            del self.past[run]
        await trio.to_thread.run_sync(_remove, [self.directory / run for run in too_many])

    async def prune_if_many(self) -> None:
        """Delete the oldest settled runs of all processes if the directory has clearly more than the limit.

        For a process that did not scan the directory.

        A scan would cost such a program a tenth of a second, so it first counts the entries only.
        """
        await trio.to_thread.run_sync(self._prune_if_many, abandon_on_cancel=True)

    def _prune_if_many(self) -> None:
        try:
            many = sum(is_id(path.name) for path in self.directory.iterdir())
        except OSError:
            return
        if self._keep > 0 and many > self._keep + self._keep // MARGIN:
            over = [info.run for info in list_logged_runs(self.directory) if is_settled(info)]
            _remove([self.directory / run for run in over[: max(0, len(over) - self._keep)]])

    async def remove(self, run: str) -> None:
        """Delete the log of a run and its record of file changes."""
        self.past.pop(run, None)
        if is_id(run):
            await trio.to_thread.run_sync(_remove, [self.directory / run])

    def _others(self, known: Collection[str]) -> list[RunInfo]:
        """Return the unknown runs of other processes."""
        found: list[RunInfo | None] = []
        try:
            paths = list(self.directory.iterdir())
        except OSError:  # removed by a user or a cleanup while this process runs
            return []
        for path in paths:
            if path.name in known or not is_id(path.name):
                continue
            kept = read_summary(path)
            if kept is not None and kept.process != self._alive.token:
                found.append(_current_info(path, self._alive))
        return sorted((info for info in found if info is not None), key=order)

    def _begin(self) -> dict[str, RunInfo]:
        make_private(self.directory)
        self._alive.begin()
        past = {} if self._brief else {info.run: info for info in list_logged_runs(self.directory, self._alive)}
        if self._look is not None:
            self.interrupted = {run.run: run for run in self._look.interrupted(os.environ)}
            past.update(with_interrupted(past, self.interrupted))
        return past

    def _end(self) -> None:
        self.writer.join(CLOSE_WITHIN)
        self._alive.end()


def list_logged_runs(directory: Path, alive: Alive | None = None) -> list[RunInfo]:
    """Return all runs with a log in this directory, oldest first. Blocking; needs no running server.

    Raises:
        ConfigError: the directory cannot be read.
    """
    alive = alive or Alive(directory / ".alive")
    try:
        names = [path.name for path in directory.iterdir() if is_id(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"the logs of runs in {directory} can't be read: {error.strerror or error}") from error
    found = (_current_info(directory / name, alive) for name in names)
    return sorted((info for info in found if info is not None), key=order)


def with_interrupted(known: Mapping[str, RunInfo], found: Mapping[str, InterruptedRun]) -> dict[str, RunInfo]:
    """Return the changes to `known` that follow from durable runs: found ones are interrupted, all other ones lost."""
    now: dict[str, RunInfo] = {}
    for id, run in found.items():
        if run.about is not None and is_id(id):
            now[id] = as_interrupted(known.get(id), run, run.about)
    for id, info in known.items():
        if info.status == "interrupted" and id not in now:
            now[id] = msgspec.structs.replace(info, status="lost", resumable=False, stuck=False)
    return now


def as_interrupted(info: RunInfo | None, run: InterruptedRun, about: About) -> RunInfo:
    """Return the summary of a durable run whose process is dead; `info` is the summary from its log, if any."""
    if info is None:
        started = rfc3339(datetime.fromtimestamp(run.began, UTC))
        info = RunInfo(run=run.run, target=about.target, name=about.name, owner=about.owner, prompt=about.prompt)
        info.started, info.ended, info.session = started, started, about.session or None
    if run.why_not:
        error = ErrorReport(code="cannot_go_on", message=f"the run can't be resumed: {run.why_not}")
        return msgspec.structs.replace(info, status="lost", life=run.life, resumable=False, error=error)
    return msgspec.structs.replace(
        info, status="interrupted", life=run.life, resumable=True, stuck=run.stuck, open_questions=0
    )


def is_settled(info: RunInfo) -> bool:
    """Return True if a run is over for good: it is not interrupted."""
    return info.over and info.status != "interrupted"


def order(info: RunInfo) -> tuple[str, str]:
    """Return the sort key of runs: oldest first."""
    return info.started, info.run


def _current_info(directory: Path, alive: Alive, most: int | None = None) -> RunInfo | None:
    """Return the current summary of a run; None if its directory has no valid summary.

    Without a live process, the log is summed up, unless it is longer than `most`.
    """
    kept = read_summary(directory)
    if kept is None or kept.info.run != directory.name:
        return None
    if kept.info.over or alive.lives(kept.process):
        return kept.info
    # The run and its process may have ended between the two checks above; only a second read can tell.
    again = read_summary(directory)
    if again is not None and again.info.over:
        return again.info
    if most is not None and size_of(directory) > most:
        return kept.info
    info = summed_up(directory, kept.info)
    with contextlib.suppress(OSError):  # the next reader sums it up again
        # Not synced: after a power cut, the log is summed up again, and the event loop may wait for this write.
        write_summary(directory, StoredRun(process=kept.process, info=info), sync=False)
    return info


def _removed_runs(directory: Path, runs: set[str]) -> set[str]:
    try:
        return runs.difference(path.name for path in directory.iterdir())
    except OSError:  # an unreadable directory does not prove that runs were removed
        return set()


def _remove(directories: list[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    store_of(os.environ).remove([directory.name for directory in directories])


LOOK_EVERY = 0.25
"""Seconds between two polls."""

PAGES = 4
"""Pages cached for followers that reach the same position slightly later."""

Place: TypeAlias = "tuple[int, int]"
"""Position of a reader: byte offset, and number of its last event."""


class RemoteLog:
    """Shared reader of one log; `RunLogs.remote_log` returns it.

    Args:
        logs: logs that contain the run.
        run: id of the run.
    """

    def __init__(self, logs: RunLogs, run: str) -> None:
        self._logs = logs
        self._run = run
        self._over = False
        self._size = -1
        self._pages: dict[Place, tuple[int, LogPage]] = {}
        self._at_work: dict[Hashable, trio.lowlevel.ParkingLot] = {}

    async def page(self, offset: int, after: int) -> LogPage:
        """Wait for the next events from a position and return them; none once the run has ended and all were read."""
        place = (offset, after)
        while True:
            over, size = self._over, self._size
            if size != offset:
                while (page := self._read_before(place, size)) is None:
                    await self._one_for_all(place, partial(self._read, place))
                if page.events:
                    return page
            if over:
                return LogPage([], offset)
            await self._one_for_all("look", self._poll)

    def _read_before(self, place: Place, size: int) -> LogPage | None:
        """Return a cached page, or None. Events never change; an empty page is valid until the log has grown."""
        looked_at, page = self._pages.get(place, (-2, None))
        return page if page is not None and (page.events or looked_at >= size) else None

    async def _read(self, place: Place) -> None:
        size = self._size
        page = await self._logs.page(self._run, *place)
        # Removed first, so that the new entry becomes the youngest and is evicted last.
        self._pages.pop(place, None)
        self._pages[place] = size, page
        while len(self._pages) > PAGES:
            del self._pages[next(iter(self._pages))]

    async def _poll(self) -> None:
        """Poll until the log has grown or the run is over.

        The order matters: the check for the end precedes the size. A log that is read after the end is complete.
        """
        while True:
            if self._size >= 0:
                await trio.sleep(LOOK_EVERY)
            over = await self._logs.is_over(self._run)
            size = await trio.to_thread.run_sync(size_of, self._logs.directory / self._run)
            if (over, size) != (self._over, self._size):
                self._over, self._size = over, size
                return

    async def _one_for_all(self, what: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Execute `work` once for all concurrent callers with the same key.

        The others only wait for the end of that execution, which may be a cancellation, and then must check again.
        """
        # A waiting task does not get the result: it checks the shared state again after the wake-up.
        waiting = self._at_work.get(what)
        if waiting is not None:
            await waiting.park()
            return
        waiting = self._at_work[what] = trio.lowlevel.ParkingLot()
        try:
            await work()
        finally:
            del self._at_work[what]
            waiting.unpark_all()
