"""`callboard worker` with something done to it: killed behind a row, or without the fence that keeps two from one run.

python working.py '{"words": ["worker", ...], "kill": 7}'
python working.py '{"words": ["worker", ...], "break": 7}'         nothing can be written behind a row
python working.py '{"words": ["worker", ...], "ends": true}'       killed when a run is over, before more can be written
python working.py '{"words": ["worker", ...], "unsaved": true}'    killed when a turn is about to be in its session
python working.py '{"words": ["worker", ...], "unfenced": true}'
python working.py '{"words": ["worker", ...], "step": "alter table ..."}'   the tables of the next version
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from callboard.actors.front.cluster.worker import ClusterWorker
from callboard.actors.runs.sessions.store import SessionStore, Stored
from callboard.actors.runs.sessions.turn import StoredTurn
from callboard.cli.main import main
from callboard.protocol.kernel.errors import JournalBroken
from callboard.supervisors.cluster import store as stores
from callboard.supervisors.cluster import tables
from callboard.supervisors.journal import journal as journals


def kill_after_row(number: int) -> None:
    """One row is written at a time, and this process killed right behind the one of this number."""
    journals.MOST_ROWS = 1
    write, left = stores.ClusterStore.write, [number]

    def counting(self: stores.ClusterStore, group: Any, *, full: bool) -> None:
        rows = {run: len(part.rows) for run, part in group.items()}
        write(self, group, full=full)
        left[0] -= sum(count for run, count in rows.items() if run.refused is None)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    stores.ClusterStore.write = counting  # type: ignore[method-assign]


def kill_before_saving() -> None:
    """This process is killed when it is about to write what was said in a turn into its session."""
    put, used = journals.Journal.put, set[journals.Journal]()

    def remembered(self: journals.Journal, *args: Any, **more: Any) -> None:
        used.add(self)
        put(self, *args, **more)

    def kills(self: StoredTurn, store: SessionStore) -> Stored:
        time.sleep(3.0)  # an end that did not wait for this would be in the database
        while any(each._bytes_put != each._bytes_written for each in used):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(self, store)

    journals.Journal.put = remembered  # type: ignore[method-assign]
    StoredTurn.write = kills  # type: ignore[method-assign]


def without_fence() -> None:
    """Whose a run is counts for nothing: this worker goes on with what others have taken over, and keeps no rows."""

    def writes(self: stores.ClusterStore, group: Any, *, full: bool) -> None:
        del full
        import time

        for run, part in group.items():
            run.rows += len(part.rows)
        self.checked = time.monotonic()

    write = stores.ClusterStore.write

    def either(self: stores.ClusterStore, group: Any, *, full: bool) -> None:
        write(self, group, full=full)
        if any(run.refused is not None for run in group):
            for run in group:
                run.refused = None
            stores.ClusterStore.write = writes  # type: ignore[method-assign]

    stores.ClusterStore.write = either  # type: ignore[method-assign]
    ClusterWorker._lose = lambda self, run, why="": None  # type: ignore[method-assign]


def break_after_row(number: int) -> None:
    """Behind the row of this number, nothing more can be written."""
    write, left = stores.ClusterStore.write, [number]

    def breaking(self: stores.ClusterStore, group: Any, *, full: bool) -> None:
        if left[0] <= 0:
            raise JournalBroken("the test breaks it")
        left[0] -= sum(len(part.rows) for part in group.values())
        write(self, group, full=full)

    stores.ClusterStore.write = breaking  # type: ignore[method-assign]


def kill_at_end() -> None:
    """What is to be written is written piece by piece, and this process killed as soon as a run is over."""
    put, write = journals.Journal.put, stores.ClusterStore.write

    def slowly(self: journals.Journal, *args: Any, **more: Any) -> None:
        put(self, *args, **more)
        self.hurry()
        time.sleep(0.05)

    def ending(self: stores.ClusterStore, group: Any, *, full: bool) -> None:
        write(self, group, full=full)
        if any(part.over for part in group.values()):
            os.kill(os.getpid(), signal.SIGKILL)

    journals.Journal.put = slowly  # type: ignore[method-assign]
    stores.ClusterStore.write = ending  # type: ignore[method-assign]


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    os.environ["HOST"] = str(os.getpid())  # by which effects kill it
    if order.get("kill"):
        kill_after_row(order["kill"])
    if order.get("ends"):
        kill_at_end()
    if order.get("unsaved"):
        kill_before_saving()
    if order.get("break"):
        break_after_row(order["break"])
    if order.get("unfenced"):
        without_fence()
    if order.get("step"):
        tables.STEPS = (*tables.STEPS, order["step"])
        tables.VERSION += 1
    sys.argv = ["callboard", *order["words"]]
    main()
