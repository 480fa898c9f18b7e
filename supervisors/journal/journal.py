"""The journal of one process: rows of runs are appended without waiting, and a barrier waits until they are durable.

    journal = await open_journal(state_dir / "journal")
    run = journal.begin("run-7f3a01bc")
    run.append("lead", data)      # about a microsecond
    await run.barrier()           # all rows appended before are on the disk

**The problem.** Each step of a durable run is a row, and an effect that changes something may begin only when its row
is on the disk. A write with `fsync` takes milliseconds, and thousands of agents write at the same time.

**What does not work.** A transaction per row: the disk allows a few hundred a second. Writing in the event loop: every
agent waits for the disk. Buffering without a barrier: after a crash an effect has happened that no row announces.

**What this module does.** One thread writes the rows in groups (group commit): everything that is queued, or what has
been queued within `GATHER` seconds if no barrier waits. A group with a barrier is written with `synchronous=FULL` and
survives a power failure; other groups survive only the death of the process.

**Failures.** Rows that can't be written now (the disk is full) stay in memory and are tried again every second;
barriers keep waiting, so an effect without its row does not begin. `trouble` says why, and `on_trouble` is called when
that changes. `JournalBroken` (the file is damaged or gone) is final for all runs. Other failures are final for one run,
which is then refused: `RunClaimed` (another process has taken it over), and `JournalError` for an id that another run
has, or a row that can't be stored. The barrier raises them, and further rows are dropped.

**A stopped process.** SIGSTOP or a suspended laptop may stop this process between the moment in which the run was
certainly its own and the moment in which the waiting task continues. Another process may take the run over in between.
So a barrier that returns more than `FRESH` seconds after that moment is repeated. An effect that had begun before the
stop is completed when the process continues.

Invariants:
- Rows of a run are written in the order of `append`, without gaps, each once.
- When `barrier` returns, all rows appended before it are on the disk, and the run was this process's own within
  `FRESH`.
- All methods run in the event loop, except those marked as the thread's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final

import trio

from ...protocol.kernel.errors import JournalBroken, JournalError, JournalUnread, ShuttingDown
from .liveness_lock import LivenessLock, unique_process_name
from .row import RowStore, RunRecord, RunRows, Unstorable, Unwritten

if TYPE_CHECKING:
    from .store import SqliteStore

GATHER, MOST_GATHERED = 0.02, 0.1
"""Seconds for which rows without a barrier are gathered into a group; up to the second value under load."""

BUSY, MOST_BUSY = 0.004, 0.02
"""Seconds between two transactions if a barrier waits, so that barriers share one; at most the second under load."""

SHARE = 10
"""Without a barrier the thread gathers `SHARE` times as long as the last transaction took."""

RETRY_EVERY = 1.0
"""Seconds between two attempts to write a group that could not be written."""

MOST_BEHIND = 64 * 1024 * 1024
"""Most bytes that may wait for the disk; with more, the journal breaks."""

MOST_ROWS, MOST_BYTES = 5_000, 4 * 1024 * 1024
"""Most rows and bytes of one transaction."""

FRESH = 1.0
"""Seconds for which a check of the ownership of a run is valid."""

CLOSE_WITHIN = 5.0

T = TypeVar("T")

Beside: TypeAlias = "tuple[str, str]"
"""Kind and key of data that is stored together with rows."""

log = logging.getLogger("callboard.journal")


class FlushWaiter:
    """A barrier that waits for the rows of a run, or of all runs.

    Attributes:
        checked: time at which the ownership of the run was last checked.
        abandoned: True once the waiting task was cancelled.
        error: the error that the barrier raises.
    """

    __slots__ = ("abandoned", "checked", "error", "over", "run")

    def __init__(self, run: RunRecord | None) -> None:
        self.run = run
        self.over = trio.Event()
        self.abandoned = False
        self.checked = 0.0
        self.error: JournalError | None = None


class WriterJob(Generic[T]):
    """A function that the thread calls with its store, between two groups."""

    def __init__(self, work: Callable[[RowStore], T]) -> None:
        self._work = work
        self.over = trio.Event()
        self.result: T
        self.error: Exception | None = None

    def run(self, store: RowStore) -> None:
        try:
            self.result = self._work(store)
        except Exception as error:  # noqa: BLE001 - raised by `Journal.do`, in the task that requested the job
            self.error = error


@final
class RunJournal:
    """The journal of one run that this process executes. Created by `Journal`.

    Attributes:
        run: id of the run.
        rows: number of its rows, including rows that are not written yet.
    """

    __slots__ = ("_journal", "_record", "_stopped", "rows", "run")

    def __init__(self, journal: Journal, record: RunRecord) -> None:
        self.run: str = record.run
        self.rows: int = record.rows
        self._journal = journal
        self._record = record
        self._stopped = False

    @property
    def refused(self) -> JournalError | None:
        """Error because of which no more rows are stored; None if there is none."""
        return self._record.refused or self._journal.broken

    @property
    def written(self) -> int:
        """Number of written rows. Without a barrier, a crash of the machine may lose the last ones."""
        return self._record.rows

    @property
    def trouble(self) -> str:
        """Directory and reason if nothing can be written at the moment; else empty."""
        journal = self._journal
        return f"{journal.directory}: {journal.trouble}" if journal.trouble else ""

    def append(self, actor: str, data: bytes) -> int:
        """Append a row and return its number. Never waits, never raises.

        After `stop` the row is dropped and the number of the last row is returned. Rows of a `refused` run are dropped
        too.
        """
        if self._stopped:
            return self.rows
        self.rows += 1
        self._journal.put(self._record, actor, data)
        return self.rows

    def set_summary(self, about: bytes, *, over: bool = False) -> None:
        """Replace the summary of the run, after the rows appended so far; with `over`, mark the run as ended."""
        if not self._stopped:
            self._journal.put(self._record, None, about, over=over)

    def store_data(self, kind: str, key: str, data: bytes) -> None:
        """Store data in the same transaction as the rows around it. A store of files ignores it."""
        if not self._stopped:
            self._journal.put(self._record, None, data, beside=(kind, key))

    def hurry(self) -> None:
        """Write the appended rows soon: a reader waits for them, though without a barrier."""
        self._journal.hurry()

    def stop(self) -> None:
        """Store nothing more, as if the process were killed now."""
        self._stopped = True

    async def barrier(self) -> None:
        """Wait until all rows appended before are on the disk.

        Raises:
            RunClaimed: another process has taken this run over.
            JournalBroken: the rows can never be written.
            JournalError: this run is refused for another reason: its id is taken, or a row can't be stored.
            ShuttingDown: the run was stopped, so it may begin nothing more.
        """
        if self._stopped:
            raise ShuttingDown(f"{self.run} was stopped to be resumed later, so it starts no new work")
        await self._journal.barrier(self._record)


@final
class Journal:
    """The journal of this process, created by `open_journal`.

    Attributes:
        sign: unique name of this process.
        directory: directory of the journals of all processes.
        trouble: reason why nothing can be written at the moment, or "".
        broken: reason why nothing can ever be written again, or None.
    """

    def __init__(
        self, store: RowStore, lock: LivenessLock | None, on_trouble: Callable[[str], None] | None = None
    ) -> None:
        self.sign: str = store.sign
        self.directory: Path = store.directory
        self.trouble: str = ""
        self.broken: JournalError | None = None
        self._on_trouble = on_trouble
        self._token = trio.lowlevel.current_trio_token()
        self._queue: deque[tuple[RunRecord, str | None, bytes, bool, Beside | None]] = deque()
        self._asked: deque[FlushWaiter | WriterJob[Any]] = deque()
        self._bytes_put = 0
        self._bytes_written = 0
        self._awake = self._ending = False
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._writer = _Writer(self, store, lock)
        # A daemon: `aclose` gives up after `CLOSE_WITHIN`, but the interpreter would wait for the thread at its end.
        self._thread = threading.Thread(target=self._work, name="callboard journal", daemon=True)
        self._thread.start()

    def begin(self, run: str, about: bytes = b"") -> RunJournal:
        """Begin a new run. An ended run with the same id is deleted when the first row is written."""
        return RunJournal(self, RunRecord(run, about))

    def resume(self, record: RunRecord) -> RunJournal:
        """Resume a run that was claimed from a dead process."""
        return RunJournal(self, record)

    async def reopen(self, run: str) -> RunJournal:
        """Resume a run of this process that was stopped, after its last row. Raises like `add_to_inbox`."""

        def record(store: RowStore) -> RunRecord:
            if any(each.run == run for each in self._writer.group):  # its last changes are still unwritten
                raise Unwritten(self.trouble)
            return store.record(run)

        try:
            return RunJournal(self, await self.do(record))
        except Unwritten as error:
            raise JournalUnread(f"{run} can't be resumed now: {error}") from error

    async def add_to_inbox(self, run: str, data: bytes) -> None:
        """Add an entry to the inbox of a stopped run of this process. It is on the disk when this returns.

        Raises:
            JournalUnread: it can't be written now.
            RunClaimed: another process has taken the run over.
            JournalBroken: the file is damaged or gone.
        """
        try:
            await self.do(lambda store: store.add_to_inbox(run, data))
        except Unwritten as error:
            raise JournalUnread(f"an answer for {run} can't be stored now: {error}") from error

    def put(
        self, record: RunRecord, actor: str | None, data: bytes, *, over: bool = False, beside: Beside | None = None
    ) -> None:
        """Queue a row of this actor; without an actor, a summary of the run, or data `beside` its rows."""
        if record.refused is not None or self.broken is not None:
            return
        if len(data) > MOST_BEHIND:  # counted below, it would break the journal for all runs
            mib = len(data) / 2**20
            record.refused = JournalError(f"{record.run} can't be journaled: one of its rows has {mib:.0f} MiB")
            log.error("%s", record.refused)
            return
        self._bytes_put += len(data)
        if self._bytes_put - self._bytes_written > MOST_BEHIND:
            self.breaks(JournalBroken(f"more than {MOST_BEHIND // 2**20} MiB wait for the disk ({self.trouble})"))
            return
        # Before `_awake` is read. The thread clears `_awake` before it reads the queue, so this row is in that group or
        # wakes the thread again.
        self._queue.append((record, actor, data, over, beside))
        if not self._awake:
            self._awake = True
            self._wake.set()

    def hurry(self) -> None:
        """Write the queued rows without gathering more."""
        self._urgent.set()

    async def barrier(self, record: RunRecord | None = None) -> None:
        """Wait like `RunJournal.barrier`; without a run, for the rows of all runs."""
        while True:
            if self.broken is not None:
                raise JournalBroken(str(self.broken)) from self.broken
            wait = FlushWaiter(record)
            self._ask(wait)
            try:
                await wait.over.wait()
            except trio.Cancelled:
                wait.abandoned = True
                raise
            if wait.error is not None:
                raise type(wait.error)(str(wait.error)) from wait.error
            if time.monotonic() - wait.checked < FRESH:
                return

    async def do(self, work: Callable[[RowStore], T]) -> T:
        """Run `work` in the thread, between two groups; return its result or raise its error."""
        job = WriterJob(work)
        self._ask(job)
        await job.over.wait()
        if job.error is not None:
            raise job.error
        return job.result

    async def aclose(self) -> bool:
        """Write the remaining rows and end the thread, within `CLOSE_WITHIN` seconds. Callers shield it.

        Returns False if rows remain unwritten, or if the thread has not ended.
        """
        self._ending = True
        self._urgent.set()
        self._wake.set()
        await trio.to_thread.run_sync(self._thread.join, CLOSE_WITHIN, abandon_on_cancel=True)
        return not self._thread.is_alive() and not self._writer.group and self.broken is None

    def breaks(self, error: JournalError) -> None:
        """Mark the journal as broken. From either thread."""
        if self.broken is None:
            self.broken = error
            log.error("%s", error)
            self.report_trouble(str(error))

    def report_trouble(self, text: str) -> None:
        """Report a change of `trouble`. From either thread."""
        if text != self.trouble:
            self.trouble = text
            if self._on_trouble is not None:
                self._soon(partial(self._on_trouble, text))

    def _ask(self, what: FlushWaiter | WriterJob[Any]) -> None:
        self._asked.append(what)
        self._urgent.set()
        if not self._awake:
            self._awake = True
            self._wake.set()

    def _soon(self, call: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return  # the event loop has ended

    # --- in the thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        writer, last, took = self._writer, 0.0, 0.0
        while True:
            self._wake.wait(RETRY_EVERY if writer.group or writer.waits else None)
            if not self._ending:
                self._urgent.wait(min(max(GATHER, SHARE * took), MOST_GATHERED))
                time.sleep(max(0.0, last + min(max(BUSY, took), MOST_BUSY) - time.monotonic()))
            self._urgent.clear()
            self._wake.clear()
            self._awake = False  # from here on `put` and `_ask` wake the thread again
            # Read before the queue: rows that were appended before `aclose` are written in any case.
            ending = self._ending
            # Read before the rows: the rows that a barrier waits for were queued before it.
            asked = [self._asked.popleft() for _ in range(len(self._asked))]
            waits = [*writer.waits, *(each for each in asked if isinstance(each, FlushWaiter))]
            # Without this, cancelled barriers would accumulate while the disk is full.
            writer.waits = [each for each in waits if not each.abandoned]
            began = time.monotonic()
            try:
                self._drain(writer)
            except Exception as error:  # a bug here must not leave barriers waiting for ever
                log.exception("the journal could not be written")
                self.breaks(JournalBroken(f"the journal could not be written: {error!r}"))
                writer.give_up()
            last = time.monotonic()
            took = last - began
            for job in asked:
                if isinstance(job, WriterJob):
                    job.run(writer.store)
            done = [*writer.over, *(job for job in asked if isinstance(job, WriterJob))]
            writer.over = []
            if done:
                self._soon(partial(_notify, done))
            if ending and not self._queue and not self._asked:
                break
        writer.close()

    def _drain(self, writer: _Writer) -> None:
        """Write the whole queue, transaction by transaction, or until a transaction fails."""
        while True:
            size, rows = writer.size, 0
            # Data `beside` goes into the transaction of the entry before it: the end of a run, and how it ended.
            while self._queue and (
                (rows < MOST_ROWS and writer.size - size < MOST_BYTES) or self._queue[0][4] is not None
            ):
                writer.take(*self._queue.popleft())
                rows += 1
            last = not self._queue
            written = writer.write(full=last and bool(writer.waits), last=last)
            self._bytes_written += written
            if last or writer.group:
                return


def _notify(done: list[FlushWaiter | WriterJob[Any]]) -> None:
    for each in done:
        each.over.set()


@final
class _Writer:
    """State of the thread: the group that is to be written, and the barriers that wait for it."""

    def __init__(self, journal: Journal, store: RowStore, lock: LivenessLock | None) -> None:
        self.store = store
        self.group: dict[RunRecord, RunRows] = {}
        self.waits: list[FlushWaiter] = []
        self.over: list[FlushWaiter | WriterJob[Any]] = []
        self.size = 0
        self._journal = journal
        self._lock = lock

    def take(self, record: RunRecord, actor: str | None, data: bytes, over: bool, beside: Beside | None) -> None:
        part = self.group.get(record)
        if part is None:
            part = self.group[record] = RunRows()
        self.size += len(data)
        if actor is not None:
            part.rows.append((actor, data))
            return
        if beside is not None:
            part.beside.append((*beside, data))
            return
        part.about = data
        part.over = part.over or over

    def write(self, *, full: bool, last: bool) -> int:
        """Write the group and return its bytes, 0 if that failed. After the `last` group the barriers are released."""
        journal, waits = self._journal, self.waits
        if last:
            for wait in waits:
                # An empty part makes the store check that the run still belongs to this process.
                if wait.run is not None and wait.run not in self.group and wait.run.key:
                    self.group[wait.run] = RunRows()
        if journal.broken is not None:
            return self.give_up()
        checked = time.monotonic()
        try:
            if self.group or (waits and self.store.is_open):
                self._store(full=full)
                checked = self.store.checked
        except Unwritten as error:
            journal.report_trouble(str(error))
            return 0
        except JournalBroken as error:
            journal.breaks(error)
            return self.give_up()
        journal.report_trouble("")
        if last:
            for wait in waits:
                wait.checked = checked
                wait.error = None if wait.run is None else wait.run.refused
            self.over += waits
            self.waits = []
        return self._forget()

    def _store(self, *, full: bool) -> None:
        """Write the group. If it holds a value that can't be stored, refuse the run with that value, and only that."""
        try:
            self.store.write(self.group, full=full)
        except Unstorable:
            for run, part in list(self.group.items()):
                try:
                    self.store.write({run: part}, full=full)
                except Unstorable as error:
                    run.refused = JournalError(f"{run.run} can't be journaled: {error}")
                    log.error("%s", run.refused)
                # What is written must not be written again if a later run has to wait for the disk.
                self.group[run] = RunRows()

    def give_up(self) -> int:
        for wait in self.waits:
            wait.error = self._journal.broken
        self.over += self.waits
        self.waits = []
        return self._forget()

    def _forget(self) -> int:
        self.group, size, self.size = {}, self.size, 0
        return size

    def close(self) -> None:
        """Close the database and release the liveness lock."""
        self.store.close()
        if self._lock is not None:
            self._lock.release()


async def open_journal(directory: Path, on_trouble: Callable[[str], None] | None = None) -> Journal:
    """Open the journal of this process. Its database is created with the first row.

    Args:
        directory: directory of the journals of all processes; its parent exists.
        on_trouble: called with the reason when writing begins to fail, and with "" when it works again.

    Raises:
        JournalPlace: the directory is on a shared file system.
        JournalError: the directory is not writable.
    """
    store, lock = await trio.to_thread.run_sync(_open, directory)
    return Journal(store, lock, on_trouble)


def _open(directory: Path) -> tuple[SqliteStore, LivenessLock]:
    from .store import SqliteStore, check_file_system

    check_file_system(directory)
    name = unique_process_name()
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        return SqliteStore(directory, name), LivenessLock(directory, name)
    except OSError as error:
        raise JournalError(f"durable runs can't be stored in {directory}: {error.strerror or error}") from error
