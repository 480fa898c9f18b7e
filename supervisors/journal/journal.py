"""The journal of a process: rows of runs, appended without waiting, and a barrier that waits for the disk.

    journal = await open_journal(state_dir / "journal")
    run = journal.begin("run-7f3a01bc")
    run.append("lead", data)      # about a microsecond
    await run.barrier()           # all that was appended before is on the disk

A thread writes the rows, in groups: all that waits, or what has gathered in `GATHER` seconds if nobody waits. A group
that somebody waits for stays there when the machine loses its power; the others when the process is killed.

What can't be written now (the disk is full) stays in memory and is tried again every second, and who waits, waits on:
what may not be done without its row is not done. `trouble` says why, and `on_trouble` is called when that changes. What
can never be written again (`JournalBroken`: the file is damaged or gone), and a run that another process has claimed
(`RunClaimed`), is refused by name: by the barrier, while appended rows are dropped.

A process may be stopped (SIGSTOP, a suspended laptop) between the moment in which a run was surely its own and the
moment in which who has waited goes on. So a barrier that took longer than `FRESH` from there on is made again: nothing
is begun on the strength of what was so before the pause. What was under way when it was stopped ends when it wakes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

import trio

from ...protocol.kernel.errors import JournalBroken, JournalError, JournalUnread, ShuttingDown
from .row import Part, RunRecord, Store, Unwritten
from .sign import Sign, new_sign
from .waits import Job, Wait

if TYPE_CHECKING:
    from .store import Store as FileStore

GATHER, MOST_GATHERED = 0.02, 0.1
"""Seconds in which rows gather that nobody waits for: the first, and up to the second where much has to be written."""

BUSY, MOST_BUSY = 0.004, 0.02
"""The same from the end of one transaction to the next, where somebody waits: whoever waits gathers as well."""

SHARE = 10
"""One in so many parts of the time the thread may write where nobody waits; one of two where somebody does."""

RETRY_EVERY = 1.0
"""Seconds between two tries to write what could not be written."""

MOST_BEHIND = 64 * 1024 * 1024
"""Bytes that may wait for the disk."""

MOST_ROWS, MOST_BYTES = 5_000, 4 * 1024 * 1024
"""Most of one transaction."""

FRESH = 1.0
"""Seconds for which it counts that a run was seen to be ours."""

CLOSE_WITHIN = 5.0

T = TypeVar("T")

Beside: TypeAlias = "tuple[str, str]"
"""Kind and key of what is kept beside rows."""

log = logging.getLogger("callboard.journal")


@final
class RunJournal:
    """The rows of one run that this process plays. Made by `Journal`.

    Attributes:
        run: its id.
        rows: how many it has, those included that are still on their way.
    """

    __slots__ = ("_journal", "_record", "_stopped", "rows", "run")

    def __init__(self, journal: Journal, record: RunRecord) -> None:
        self.run = record.run
        self.rows = record.rows
        self._journal = journal
        self._record = record
        self._stopped = False

    @property
    def refused(self) -> JournalError | None:
        """Why no more rows are kept, if none are."""
        return self._record.refused or self._journal.broken

    @property
    def written(self) -> int:
        """How many rows are written; without a barrier, a machine or a database that crashes may lose the last ones."""
        return self._record.rows

    @property
    def trouble(self) -> str:
        """Where nothing can be written just now, and why; "" if all is well."""
        journal = self._journal
        return f"{journal.directory}: {journal.trouble}" if journal.trouble else ""

    def append(self, actor: str, data: bytes) -> int:
        """Keep a row; its number. Never waits."""
        if self._stopped:
            return self.rows
        self.rows += 1
        self._journal.put(self._record, actor, data)
        return self.rows

    def tell(self, about: bytes, *, over: bool = False) -> None:
        """Say this of the run from now on, after what was appended; and that it is over."""
        if not self._stopped:
            self._journal.put(self._record, None, about, over=over)

    def beside(self, kind: str, key: str, data: bytes) -> None:
        """Keep this in the same transaction as the rows around it, if the store keeps such things."""
        if not self._stopped:
            self._journal.put(self._record, None, data, beside=(kind, key))

    def hurry(self) -> None:
        """Somebody waits for what was appended, though not for a barrier."""
        self._journal.hurry()

    def stop(self) -> None:
        """Keep nothing more, as if the process had been killed now."""
        self._stopped = True

    async def barrier(self) -> None:
        """Wait until all that was appended before is on the disk.

        Raises:
            RunClaimed: another process goes on with this run.
            JournalBroken: it will never be.
            ShuttingDown: the run was stopped, so nothing more may be done for it.
        """
        if self._stopped:
            raise ShuttingDown(f"{self.run} has been stopped to go on later, and begins nothing more")
        await self._journal.barrier(self._record)


@final
class Journal:
    """See the module. All methods but those of the thread are the event loop's; `open_journal` makes it.

    Attributes:
        sign: of this process.
        directory: where the journals of all processes are.
        trouble: why nothing can be written just now, or "".
        broken: why nothing can be written any more, or None.
    """

    def __init__(self, store: Store, sign: Sign | None, on_trouble: Callable[[str], None] | None = None) -> None:
        self.sign = store.sign
        self.directory = store.directory
        self.trouble = ""
        self.broken: JournalError | None = None
        self._on_trouble = on_trouble
        self._token = trio.lowlevel.current_trio_token()
        self._queue: deque[tuple[RunRecord, str | None, bytes, bool, Beside | None]] = deque()
        self._asked: deque[Wait | Job[Any]] = deque()
        self._put = 0
        self._written = 0
        self._awake = self._ending = False
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._writer = _Writer(self, store, sign)
        self._thread = threading.Thread(target=self._work, name="callboard journal", daemon=True)
        self._thread.start()

    def begin(self, run: str, about: bytes = b"") -> RunJournal:
        """A new run. One of this id that is over is forgotten with the first row."""
        return RunJournal(self, RunRecord(run, about))

    def go_on(self, record: RunRecord) -> RunJournal:
        """A run that was claimed."""
        return RunJournal(self, record)

    async def again(self, run: str) -> RunJournal:
        """A run of this process that was stopped, from where its rows have ended. Raises as `letter`."""

        def record(store: Store) -> RunRecord:
            if any(each.run == run for each in self._writer.group):  # what was said of it last can't be written now
                raise Unwritten(self.trouble)
            return store.record(run)

        try:
            return RunJournal(self, await self.do(record))
        except Unwritten as error:
            raise JournalUnread(f"{run} can't go on now: {error}") from error

    async def letter(self, run: str, data: bytes) -> None:
        """Leave this for a run of this process that was stopped. It is on the disk when this returns.

        Raises:
            JournalUnread: it can't be written now.
            RunClaimed, JournalBroken: nor later, as another process has the run, or the file is damaged or gone.
        """
        try:
            await self.do(lambda store: store.letter(run, data))
        except Unwritten as error:
            raise JournalUnread(f"nothing can be left for {run} now: {error}") from error

    def put(
        self, record: RunRecord, actor: str | None, data: bytes, *, over: bool = False, beside: Beside | None = None
    ) -> None:
        """A row of this actor; with None what is said of the run, or what is kept `beside` its rows."""
        if record.refused is not None or self.broken is not None:
            return
        self._put += len(data)
        if self._put - self._written > MOST_BEHIND:
            self.breaks(JournalBroken(f"more than {MOST_BEHIND // 2**20} MiB wait for the disk ({self.trouble})"))
            return
        self._queue.append((record, actor, data, over, beside))
        if not self._awake:
            self._awake = True
            self._wake.set()

    def hurry(self) -> None:
        """Write what there is without letting more gather."""
        self._urgent.set()

    async def barrier(self, record: RunRecord | None = None) -> None:
        """As `RunJournal.barrier`; without a run, for the rows of all."""
        while True:
            if self.broken is not None:
                raise JournalBroken(str(self.broken)) from self.broken
            wait = Wait(record)
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

    async def do(self, work: Callable[[Store], T]) -> T:
        """Have the thread do this between two groups; what it returns or raises."""
        job = Job(work)
        self._ask(job)
        await job.over.wait()
        if job.error is not None:
            raise job.error
        return job.result

    async def aclose(self) -> bool:
        """Write what is left, and end; whether all is written. A caller that may be cancelled needs a shield."""
        self._ending = True
        self._urgent.set()
        self._wake.set()
        await trio.to_thread.run_sync(self._thread.join, CLOSE_WITHIN, abandon_on_cancel=True)
        return not self._thread.is_alive() and not self._writer.group and self.broken is None

    def breaks(self, error: JournalError) -> None:
        """Nothing more will be written. In either thread."""
        if self.broken is None:
            self.broken = error
            log.error("%s", error)
            self.tell_trouble(str(error))

    def tell_trouble(self, text: str) -> None:
        """In either thread."""
        if text != self.trouble:
            self.trouble = text
            if self._on_trouble is not None:
                self._soon(partial(self._on_trouble, text))

    def _ask(self, what: Wait | Job[Any]) -> None:
        self._asked.append(what)
        self._urgent.set()
        if not self._awake:
            self._awake = True
            self._wake.set()

    def _soon(self, call: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return  # nobody is there to hear it

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
            self._awake = False  # from here on the event loop wakes us again
            ending = self._ending
            asked = [self._asked.popleft() for _ in range(len(self._asked))]  # before the rows: theirs are among them
            waits = [*writer.waits, *(each for each in asked if isinstance(each, Wait))]
            writer.waits = [each for each in waits if not each.abandoned]  # else they gather while the disk is full
            began = time.monotonic()
            try:
                self._drain(writer)
            except Exception as error:  # a bug here must not leave others waiting for ever
                log.exception("the journal could not be written")
                self.breaks(JournalBroken(f"the journal could not be written: {error!r}"))
                writer.give_up()
            last = time.monotonic()
            took = last - began
            for job in asked:
                if isinstance(job, Job):
                    job.run(writer.store)
            done = [*writer.over, *(job for job in asked if isinstance(job, Job))]
            writer.over = []
            if done:
                self._soon(partial(_tell, done))
            if ending and not self._queue and not self._asked:
                break
        writer.close()

    def _drain(self, writer: _Writer) -> None:
        """Write all there is, transaction by transaction, or until that is not possible."""
        while True:
            size, rows = writer.size, 0
            # What is kept beside goes with what was said before it: that a run is over, and how it ended.
            while self._queue and (
                (rows < MOST_ROWS and writer.size - size < MOST_BYTES) or self._queue[0][4] is not None
            ):
                writer.take(*self._queue.popleft())
                rows += 1
            last = not self._queue
            written = writer.write(full=last and bool(writer.waits), last=last)
            self._written += written
            if last or writer.group:
                return


def _tell(done: list[Wait | Job[Any]]) -> None:
    for each in done:
        each.over.set()


@final
class _Writer:
    """The thread's own: the group that is to be written, and who waits for it."""

    def __init__(self, journal: Journal, store: Store, sign: Sign | None) -> None:
        self.store = store
        self.group: dict[RunRecord, Part] = {}
        self.waits: list[Wait] = []
        self.over: list[Wait | Job[Any]] = []
        self.size = 0
        self._journal = journal
        self._sign = sign

    def take(self, record: RunRecord, actor: str | None, data: bytes, over: bool, beside: Beside | None) -> None:
        part = self.group.get(record)
        if part is None:
            part = self.group[record] = Part()
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
        """Write the group; how many bytes wait no more. Those who wait are told if it was the `last`."""
        journal, waits = self._journal, self.waits
        if last:
            for wait in waits:
                if wait.run is not None and wait.run not in self.group and wait.run.key:
                    self.group[wait.run] = Part()
        if journal.broken is not None:
            return self.give_up()
        checked = time.monotonic()
        try:
            if self.group or (waits and self.store.is_open):
                self.store.write(self.group, full=full)
                checked = self.store.checked
        except Unwritten as error:
            journal.tell_trouble(str(error))
            return 0
        except JournalBroken as error:
            journal.breaks(error)
            return self.give_up()
        journal.tell_trouble("")
        if last:
            for wait in waits:
                wait.checked = checked
                wait.error = None if wait.run is None else wait.run.refused
            self.over += waits
            self.waits = []
        return self._forget()

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
        """Let go of the database and take the sign down, if there is nothing that others could go on with."""
        self.store.close()
        if self._sign is not None:
            self._sign.down()


async def open_journal(directory: Path, on_trouble: Callable[[str], None] | None = None) -> Journal:
    """The journal of this process; its database is made with the first row.

    Args:
        directory: of the journals of all processes; the one above it is there.
        on_trouble: called when what can't be written changes, with why; "" when all is well again.

    Raises:
        JournalPlace: no journal can be kept there.
        JournalError: nothing can be written there.
    """
    store, sign = await trio.to_thread.run_sync(_open, directory)
    return Journal(store, sign, on_trouble)


def _open(directory: Path) -> tuple[FileStore, Sign]:
    from .place import check_place
    from .store import Store as FileStore

    check_place(directory)
    name = new_sign()
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        return FileStore(directory, name), Sign(directory, name)
    except OSError as error:
        raise JournalError(f"no run can be kept in {directory}: {error.strerror or error}") from error
