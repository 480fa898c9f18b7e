"""The logs of all runs of a user, and the index of what is in them.

    async with RunLogs(state_dir(os.environ) / "runs") as logs:
        log = logs.begin(info, on_trouble)
        log.append(encode(event))
        log.close(info, done)

Any number of processes may share the directory. What a process that was killed has left is found at the next start of
one: a run without an end is `lost` then, with all that was written of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self
from weakref import WeakSet, WeakValueDictionary

import msgspec
import trio

from .....protocol.control.things import RunInfo
from .....protocol.errors import ConfigError
from .....protocol.journal import About
from .....protocol.outcome import ErrorReport
from ....runs.interrupted import Interrupted, Looks
from ....work.models.recorder import Recorder
from ....work.tools.changes.store import store_of
from ..presence import Alive
from ..runs.summary import rfc3339
from .calls import kept_calls
from .elsewhere import Elsewhere
from .files import REQUESTS, Kept, is_id, make_private, read_kept, write_kept
from .reading import LoggedEvent, Page, last_event, read_page, size_of, summed_up
from .writer import Done, RunLog, Writer

if TYPE_CHECKING:
    from ..subscription import Subscription

MOST_AT_ONCE = 256 * 1024
"""Bytes of several events, after which there come no more of them at once."""

QUICKLY_READ = 1024 * 1024
"""Bytes of a log that can be summed up in the event loop."""

MARGIN = 20
"""One in so many runs more than shall be kept are pruned by a program that is no server."""

CLOSE_WITHIN = 5.0
"""Seconds that the writer has to end; a disk that stands still must not hold the process up for longer."""

log = logging.getLogger("callboard.control")


class RunLogs:
    """See the module.

    Args:
        directory: where the runs lie.
        keep: how many of those that are over are kept, the newest; 0 for all.
        brief: for a program that ends soon: it does not look at what lies there, and leaves it to the system when the
            disk has it all.

        shows_interrupted: durable runs that may go on are among them, as `interrupted`; else they are `lost`.

    Attributes:
        past: the runs that are not this process's, and those of it that are over.
        interrupted: durable runs that may go on, by id.
        readers: the current readers.
    """

    def __init__(
        self, directory: Path, *, keep: int = 1000, brief: bool = False, shows_interrupted: bool = True
    ) -> None:
        self.directory = directory
        self.past: dict[str, RunInfo] = {}
        self.interrupted: dict[str, Interrupted] = {}
        self._look = Looks() if shows_interrupted and not brief else None
        self.readers: WeakSet[Subscription] = WeakSet()
        self._keep = keep
        self._brief = brief
        self._grown = trio.Event()
        self._followed: WeakValueDictionary[str, Elsewhere] = WeakValueDictionary()
        self._alive = Alive(directory / ".alive")
        self.writer = Writer(self._alive.token, sync=not brief)

    async def __aenter__(self) -> Self:
        try:
            self.past = await trio.to_thread.run_sync(self._begin)
        except OSError as error:
            raise ConfigError(
                f"the logs of runs can't be kept in {self.directory}: {error.strerror or error}; "
                "set XDG_STATE_HOME to a directory that can be written to"
            ) from error
        self.writer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what is left, and end. A caller that may be cancelled needs a shield."""
        self.writer.end()
        await trio.to_thread.run_sync(self._end, abandon_on_cancel=True)

    def begin(self, info: RunInfo, on_trouble: Done) -> RunLog:
        """A log for a new run. `on_trouble` is called once, in the event loop, if writing fails."""
        return RunLog(self.writer, self.directory / info.run, on_trouble)

    def recorder(self, run: str, redact: Callable[[bytes], bytes]) -> Recorder:
        """Keeps what the models of a run see and say, beside its log, in two files at most. Looks for those there."""
        directory = self.directory / run

        def open_file(number: int) -> RunLog:
            replaced = REQUESTS.format(number - 2) if number > 2 else ""
            file = RunLog(self.writer, directory, trouble, name=REQUESTS.format(number), replaces=replaced)
            opened.append(file)
            return file

        def trouble() -> None:
            log.error("what the models of %s see can't be kept: %s", run, opened[-1].trouble)

        opened: deque[RunLog] = deque(maxlen=1)
        files, calls = kept_calls(directory)
        return Recorder(open_file, redact, files=files, calls=calls)

    def is_free(self, run: str) -> bool:
        """Whether no run has this id."""
        return run not in self.past and not (self.directory / run).exists()

    def get(self, run: str, *, patient: bool = False) -> RunInfo | None:
        """A run that is over, or goes on in another process; None if there is none.

        That the process of a run is gone is said of one with a long log only when it has been summed up, in a thread.

        Args:
            patient: sum it up, however long that takes.
        """
        info = self.past.get(run)
        if (info is None or not info.over) and is_id(run):
            found = _looked_at(self.directory / run, self._alive, None if patient else QUICKLY_READ)
            if found is not None:
                info = found
            if (kept := self.interrupted.get(run)) is not None and kept.about is not None:
                info = as_interrupted(info, kept, kept.about)
            if info is not None:
                self.past[run] = info
        return info

    async def is_over(self, run: str) -> bool:
        """Whether a run that is not this process's has ended."""
        info = self.past.get(run)
        if info is None or not info.over:
            info = await trio.to_thread.run_sync(partial(self.get, run, patient=True))
        return info is None or info.over

    def elsewhere(self, run: str) -> Elsewhere:
        """The log of a run that goes on in another process, one for all who follow it."""
        found = self._followed.get(run)
        if found is None:
            found = self._followed[run] = Elsewhere(self, run)
        return found

    def put_away(self, info: RunInfo) -> None:
        """A run of this process is over, and all of it is on disk."""
        self.past[info.run] = info
        self._grown.set()

    async def grown(self) -> None:
        """Wait until there is a run more that is over than at the last `prune`."""
        await self._grown.wait()

    async def look_again(self, ours: Collection[str]) -> None:
        """Take in what other processes have begun, ended and deleted since; `ours` are those under way in this one."""
        over = {run for run, info in self.past.items() if info.over}
        settled = {run for run in over if self.past[run].status != "interrupted"}
        others = await trio.to_thread.run_sync(self._others, settled.union(ours))
        gone = await trio.to_thread.run_sync(_gone, self.directory, over.difference(ours))
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

    async def page(self, run: str, offset: int, after: int, most: int = 1_000_000) -> Page:
        """See `reading.read_page`."""
        return await trio.to_thread.run_sync(read_page, self.directory / run, offset, after, most)

    async def several(self, run: str, after: int, most: int) -> list[LoggedEvent]:
        """So many of the events after a number, fewer if they are long; at least one, if there is any."""
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
        """The newest event of a run that is on disk."""
        return await trio.to_thread.run_sync(last_event, self.directory / run)

    async def flush(self) -> None:
        """Wait until all that was appended is on its way to the disk."""
        done = trio.Event()
        self.writer.flush(done.set)
        await done.wait()

    async def prune(self) -> None:
        """Remove the oldest runs that are over, until only as many are left as shall be kept, and those being read."""
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
        """As `prune`, for a process that has not looked at what lies there: only when there are clearly too many."""
        await trio.to_thread.run_sync(self._prune_if_many, abandon_on_cancel=True)

    def _prune_if_many(self) -> None:
        try:
            many = sum(is_id(path.name) for path in self.directory.iterdir())
        except OSError:
            return
        if self._keep > 0 and many > self._keep + self._keep // MARGIN:
            over = [info.run for info in look(self.directory) if is_settled(info)]
            _remove([self.directory / run for run in over[: max(0, len(over) - self._keep)]])

    async def remove(self, run: str) -> None:
        """Remove all that is kept of a run."""
        self.past.pop(run, None)
        if is_id(run):
            await trio.to_thread.run_sync(_remove, [self.directory / run])

    def _others(self, known: Collection[str]) -> list[RunInfo]:
        """The runs of other processes that are not among the known ones."""
        found: list[RunInfo | None] = []
        try:
            paths = list(self.directory.iterdir())
        except OSError:  # it has been removed under our feet
            return []
        for path in paths:
            if path.name in known or not is_id(path.name):
                continue
            kept = read_kept(path)
            if kept is not None and kept.process != self._alive.token:
                found.append(_looked_at(path, self._alive))
        return sorted((info for info in found if info is not None), key=order)

    def _begin(self) -> dict[str, RunInfo]:
        make_private(self.directory)
        self._alive.begin()
        past = {} if self._brief else {info.run: info for info in look(self.directory, self._alive)}
        if self._look is not None:
            self.interrupted = {run.run: run for run in self._look.interrupted(os.environ)}
            past.update(with_interrupted(past, self.interrupted))
        return past

    def _end(self) -> None:
        self.writer.join(CLOSE_WITHIN)
        self._alive.end()


def look(directory: Path, alive: Alive | None = None) -> list[RunInfo]:
    """All runs that have a log in this directory, oldest first. Blocking; needs no process that serves.

    Raises:
        ConfigError: it can't be read.
    """
    alive = alive or Alive(directory / ".alive")
    try:
        names = [path.name for path in directory.iterdir() if is_id(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"the logs of runs in {directory} can't be read: {error.strerror or error}") from error
    found = (_looked_at(directory / name, alive) for name in names)
    return sorted((info for info in found if info is not None), key=order)


def with_interrupted(known: Mapping[str, RunInfo], found: Mapping[str, Interrupted]) -> dict[str, RunInfo]:
    """What durable runs make of what is known of runs: those that may go on say so, others do no more."""
    now: dict[str, RunInfo] = {}
    for id, run in found.items():
        if run.about is not None and is_id(id):
            now[id] = as_interrupted(known.get(id), run, run.about)
    for id, info in known.items():
        if info.status == "interrupted" and id not in now:
            now[id] = msgspec.structs.replace(info, status="lost", resumable=False, stuck=False)
    return now


def as_interrupted(info: RunInfo | None, run: Interrupted, about: About) -> RunInfo:
    """How a durable run stands whose process is gone; `info` is what its log tells, if it has one."""
    if info is None:
        started = rfc3339(datetime.fromtimestamp(run.began, UTC))
        info = RunInfo(run=run.run, target=about.target, name=about.name, owner=about.owner, prompt=about.prompt)
        info.started, info.ended, info.session = started, started, about.session or None
    if run.why_not:
        error = ErrorReport(code="cannot_go_on", message=f"it can't go on: {run.why_not}")
        return msgspec.structs.replace(info, status="lost", life=run.life, resumable=False, error=error)
    return msgspec.structs.replace(
        info, status="interrupted", life=run.life, resumable=True, stuck=run.stuck, open_questions=0
    )


def is_settled(info: RunInfo) -> bool:
    """Whether a run is over for good."""
    return info.over and info.status != "interrupted"


def order(info: RunInfo) -> tuple[str, str]:
    """What lists are sorted by: oldest first."""
    return info.started, info.run


def _looked_at(directory: Path, alive: Alive, most: int | None = None) -> RunInfo | None:
    """A run as it is now; one whose process is gone as it was, if its log is longer than `most`."""
    kept = read_kept(directory)
    if kept is None or kept.info.run != directory.name:
        return None
    if kept.info.over or alive.lives(kept.process):
        return kept.info
    again = read_kept(directory)  # it may have ended, run and process, in between
    if again is not None and again.info.over:
        return again.info
    if most is not None and size_of(directory) > most:
        return kept.info
    info = summed_up(directory, kept.info)
    with contextlib.suppress(OSError):  # the next reader sums it up again
        # Not synced: what a power cut takes is summed up again, and the event loop may wait for this.
        write_kept(directory, Kept(process=kept.process, info=info), sync=False)
    return info


def _gone(directory: Path, runs: set[str]) -> set[str]:
    try:
        return runs.difference(path.name for path in directory.iterdir())
    except OSError:  # who can't look knows nothing
        return set()


def _remove(directories: list[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    store_of(os.environ).remove([directory.name for directory in directories])
