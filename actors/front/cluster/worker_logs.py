"""Logs of a worker: events of its runs go into the database, in the transaction of their rows.

So an event is stored if and only if the rows before it are, and never for a run that another worker has claimed.

Deltas of model text are merged into one event with the number of the first delta. It is stored before the next event of
another kind. A reader that followed the deltas up to that point does not receive the text again. Deltas of tool output
are not stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control.things import RunInfo
from ....protocol.decoding import decode_json, json_decoder
from ....protocol.errors import JournalError, ShuttingDown
from ....protocol.events import TERMINAL, LlmDelta, ToolDelta
from ....supervisors.cluster.store import EVENT, INFO
from ..control.logs.reading import logged
from ..control.logs.writer import Done, RunLog
from .logs import ClusterLogs

if TYPE_CHECKING:
    from ...work.journal.of_run import JournaledRun, RowsOut
    from ..control.logs.reading import LoggedEvent
    from .membership import ClusterMembership

PIECES = {LlmDelta.kind, ToolDelta.kind}
"""Kinds of events that are merged or dropped."""


class WorkerLogs(ClusterLogs):
    """Logs of the runs that this worker executes.

    Attributes:
        kept: durable runs of this process, by id (`Root.kept`).
        nursery: nursery for waits on the database.
        redact: removes secrets from JSON.
    """

    kept: dict[str, JournaledRun]
    nursery: trio.Nursery
    redact: Callable[[bytes], bytes]

    def __init__(self, seat: ClusterMembership, directory: Path, **options: Any) -> None:
        super().__init__(seat, directory, **options)
        self._overs: dict[str, Callable[[], None]] = {}
        self._ended: dict[str, RowsOut | None] = {}

    def in_cluster(self, run: str) -> bool:  # noqa: ARG002  - all runs of a worker are
        """Return True: a worker executes cluster runs only."""
        return True

    def begin(self, info: RunInfo, on_trouble: Done) -> RunLog:
        return ClusterLog(self, info.run, self.directory / info.run, on_trouble)

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """Record the callback that stores the end of a run; it is called after its last event is queued.

        See `RunCallbacks.holds`. The callback and the last event arrive in either order.
        """
        if run not in self._ended:
            self._overs[run] = over
            return
        rows = self._ended.pop(run)
        over()
        if rows is not None:
            rows.hurry()

    def rows(self, run: str) -> RowsOut | None:
        """Return the journal of a run, or None."""
        kept = self.kept.get(run)
        return None if kept is None else kept.rows

    def says_over(self, run: str, rows: RowsOut | None) -> None:
        """Store the end of a run, whose last event is queued."""
        over = self._overs.pop(run, None)
        if over is not None:
            over()
        else:
            self._ended[run] = rows  # a turn of a session, which ends once its messages are stored

    def forget_end(self, run: str) -> None:
        """Forget a run that has left this worker."""
        self._ended.pop(run, None)


class ClusterLog(RunLog):
    """Log of one cluster run."""

    def __init__(self, logs: WorkerLogs, run: str, directory: Path, on_trouble: Done) -> None:
        super().__init__(logs.writer, directory, on_trouble)
        self._logs = logs
        self._run = run
        self._rows: RowsOut | None = None
        self._last: LoggedEvent | None = None
        self._pieces: dict[tuple[str, str], tuple[bytes, list[str]]] = {}  # by actor and request

    @property
    def rows(self) -> RowsOut | None:
        """Journal of the run; None until it is known."""
        if self._rows is None:
            self._rows = self._logs.rows(self._run)
        return self._rows

    def append(self, line: bytes) -> None:
        """Queue an event; the terminal one waits for `close`."""
        event = logged(line)
        if event.kind in PIECES:
            if event.kind == LlmDelta.kind:
                piece = _PIECE.decode(line)
                self._pieces.setdefault((piece.actor, piece.id), (line, []))[1].append(piece.data.text)
            return
        self._append_texts()
        if event.kind in TERMINAL:
            self._last = event
        elif (rows := self.rows) is not None:
            rows.attach(EVENT, str(event.seq), line)

    def _append_texts(self) -> None:
        """Store the model texts since the last stored event."""
        pieces, self._pieces = self._pieces, {}
        if not pieces or (rows := self.rows) is None:
            return
        for first, texts in pieces.values():
            whole = decode_json(first, dict[str, Any])
            whole["data"] = {**whole["data"], "text": "".join(texts)}
            # Redact again: a secret may have been split between two deltas.
            line = self._logs.redact(msgspec.json.encode(whole))
            rows.attach(EVENT, str(whole["seq"]), line)

    def summarise(self, info: RunInfo) -> None:
        self.stands(info)

    def stands(self, info: RunInfo) -> None:
        """Queue a changed summary; `close` stores the final one."""
        if not info.over and (rows := self.rows) is not None:
            rows.attach(INFO, "", msgspec.json.encode(info))
            rows.hurry()

    def close(self, info: RunInfo, done: Done) -> None:
        """Queue the last event and the summary before or together with the end of the run, never after it.

        Otherwise, a worker that dies in between would leave a finished run without them. Until the end is stored,
        `run_states.info_of` ignores both.
        """
        if (rows := self.rows) is not None:
            if self._last is not None:
                rows.attach(EVENT, str(self._last.seq), self._last.data)
            rows.attach(INFO, "", msgspec.json.encode(info))
        self._logs.says_over(self._run, rows)
        if rows is not None:
            rows.hurry()
        self._logs.nursery.start_soon(partial(_closed, self.rows, done))


class _Text(msgspec.Struct, gc=False):
    text: str


class _Piece(msgspec.Struct, gc=False):
    data: _Text
    actor: str = ""
    id: str = ""


_PIECE = json_decoder(_Piece)


async def _closed(rows: RowsOut | None, done: Done) -> None:
    if rows is not None:
        with contextlib.suppress(JournalError, ShuttingDown):  # another worker has the run, or it will be resumed
            await rows.barrier()
    done()
