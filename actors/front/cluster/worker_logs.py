"""The logs of a worker: events of runs of the cluster go into its database, in the transaction that has their rows.

So an event is there if and only if the rows before it are, and none of a run that was taken over. Pieces of a model's
text are put together: one event, with the number of its first piece, stands before the next event of another kind, so
that who has followed the pieces up to there does not hear it again. Pieces of what tools print stay out.
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
    from ...work.journal.of_run import OfRun, RowsOut
    from ..control.logs.reading import LoggedEvent
    from .seat import Seat

PIECES = {LlmDelta.kind, ToolDelta.kind}
"""Kinds of events that are not kept as they are."""


class WorkerLogs(ClusterLogs):
    """See the module.

    Attributes:
        kept: the runs that this process plays, by id (`Root.kept`).
        nursery: where is waited for the database.
        redact: takes secrets out of JSON.
    """

    kept: dict[str, OfRun]
    nursery: trio.Nursery
    redact: Callable[[bytes], bytes]

    def __init__(self, seat: Seat, directory: Path, **options: Any) -> None:
        super().__init__(seat, directory, **options)
        self._overs: dict[str, Callable[[], None]] = {}
        self._ended: dict[str, RowsOut | None] = {}

    def in_cluster(self, run: str) -> bool:  # noqa: ARG002 - all are
        """See `ClusterLogs`."""
        return True

    def begin(self, info: RunInfo, on_trouble: Done) -> RunLog:
        """See `RunLogs`."""
        return ClusterLog(self, info.run, self.directory / info.run, on_trouble)

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """A run is over, which is to be said when its last event is on its way (`Hooks.holds`)."""
        if run not in self._ended:
            self._overs[run] = over
            return
        rows = self._ended.pop(run)
        over()
        if rows is not None:
            rows.hurry()

    def rows(self, run: str) -> RowsOut | None:
        """Where what a run does is kept."""
        kept = self.kept.get(run)
        return None if kept is None else kept.rows

    def says_over(self, run: str, rows: RowsOut | None) -> None:
        """Its last event is on its way, with its rows."""
        over = self._overs.pop(run, None)
        if over is not None:
            over()
        else:
            self._ended[run] = rows  # of a turn of a session, which is over when that is written

    def forget_end(self, run: str) -> None:
        """It is not this worker's any more."""
        self._ended.pop(run, None)


class ClusterLog(RunLog):
    """The log of a run of the cluster."""

    def __init__(self, logs: WorkerLogs, run: str, directory: Path, on_trouble: Done) -> None:
        super().__init__(logs.writer, directory, on_trouble)
        self._logs = logs
        self._run = run
        self._rows: RowsOut | None = None
        self._last: LoggedEvent | None = None
        self._pieces: dict[tuple[str, str], tuple[bytes, list[str]]] = {}  # by who says it, and in which request

    @property
    def rows(self) -> RowsOut | None:
        """Where it goes; None before that is known."""
        if self._rows is None:
            self._rows = self._logs.rows(self._run)
        return self._rows

    def append(self, line: bytes) -> None:
        """See `RunLog`; the last one waits for `close`."""
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
            rows.beside(EVENT, str(event.seq), line)

    def _append_texts(self) -> None:
        """Keep what models have said since the last event that was kept."""
        pieces, self._pieces = self._pieces, {}
        if not pieces or (rows := self.rows) is None:
            return
        for first, texts in pieces.values():
            whole = decode_json(first, dict[str, Any])
            whole["data"] = {**whole["data"], "text": "".join(texts)}
            line = self._logs.redact(msgspec.json.encode(whole))  # a secret may have come in two pieces
            rows.beside(EVENT, str(whole["seq"]), line)

    def summarise(self, info: RunInfo) -> None:
        """See `RunLog`."""
        self.stands(info)

    def stands(self, info: RunInfo) -> None:
        """See `RunLog`; of its end `close` tells."""
        if not info.over and (rows := self.rows) is not None:
            rows.beside(INFO, "", msgspec.json.encode(info))
            rows.hurry()

    def close(self, info: RunInfo, done: Done) -> None:
        """See `RunLog`. The last event and how it stands are written before that it is over, or with it, never behind:
        its worker might die in between. Until it is over, `standing.info_of` takes no notice of them."""
        if (rows := self.rows) is not None:
            if self._last is not None:
                rows.beside(EVENT, str(self._last.seq), self._last.data)
            rows.beside(INFO, "", msgspec.json.encode(info))
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
        with contextlib.suppress(JournalError, ShuttingDown):  # others have it, or it goes on later
            await rows.barrier()
    done()
