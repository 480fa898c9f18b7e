"""What `callboard cluster` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..actors.front.cluster.overview import overview
from ..protocol.errors import UsageError
from .render.text import json_object, table

if TYPE_CHECKING:
    from ..actors.front.cluster.overview import Overview, WorkerShown

_HEAD = ("WORKER", "RUNS", "ROOM", "LEASE", "HAS", "VERSION")


def shown(dsn: str | None, *, migrate: bool, as_json: bool) -> str:
    """How a cluster stands. Raises as `overview` does, and `UsageError` without a database."""
    if dsn is None:
        raise UsageError("which cluster? --cluster postgresql://..., or CALLBOARD_CLUSTER")
    found = overview(dsn, makes_tables=migrate)
    return json_object(**msgspec.to_builtins(found)) if as_json else _as_text(found)


def _as_text(found: Overview) -> str:
    waits = f", the oldest for {found.oldest:.0f} s" if found.queued else ""
    lines = [table([_HEAD, *map(_row, found.workers)])] if found.workers else ["no workers: callboard worker"]
    lines += ["", f"queued     {found.queued}{waits}"]
    lines += [f"taken over {found.takeovers} from workers that were silent; {found.fenced} of them tried to go on"]
    known = "" if found.tables == found.known else f"; this callboard knows {found.known}"
    lines += [f"tables     version {found.tables}{known}"]
    return "\n".join(lines)


def _row(worker: WorkerShown) -> tuple[str, ...]:
    lease = f"{worker.left:.0f} s" if worker.left > 0 else "over"
    if worker.draining:
        lease += ", ends"
    return worker.name, str(worker.runs), str(worker.room), lease, ",".join(worker.has), worker.version
