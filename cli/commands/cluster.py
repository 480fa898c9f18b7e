"""`callboard cluster`: workers and queue of a cluster, as a table or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import options

if TYPE_CHECKING:
    from ...actors.front.cluster.membership import Overview, WorkerOverview

_HEAD = ("WORKER", "RUNS", "ROOM", "LEASE", "HAS", "VERSION")


@click.command("cluster", short_help="Show the workers and the queue of a cluster.")
@options.cluster
@click.option("--migrate", is_flag=True, help="First create the tables, or migrate them to this version.")
@options.text_or_json
def command(cluster: str | None, migrate: bool, as_json: bool) -> str:
    """Show the workers of the cluster in a database, its queue, and the number of runs that were taken over from dead
    workers.

    Workers and gateways create the tables themselves. If their database roles may not do so, run --migrate with a role
    that may: before the first worker starts, and before each new version.

    \b
      callboard cluster
      callboard cluster --migrate --cluster postgresql://owner@db/callboard
    """
    return _overview_text(cluster, migrate=migrate, as_json=as_json)


def _overview_text(dsn: str | None, *, migrate: bool, as_json: bool) -> str:
    """Return workers and queue as text or JSON. Raises as `overview` does.

    Raises:
        UsageError: no database is named.
    """
    import msgspec

    from ...actors.front.cluster.membership import overview
    from ...protocol.errors import UsageError
    from ..render.text import json_object

    if dsn is None:
        raise UsageError("the cluster is not named: give --cluster postgresql://..., or set CALLBOARD_CLUSTER")
    found = overview(dsn, makes_tables=migrate)
    return json_object(**msgspec.to_builtins(found)) if as_json else _as_text(found)


def _as_text(found: Overview) -> str:
    from ..render.text import table

    waits = f", the oldest for {found.oldest:.0f} s" if found.queued else ""
    lines = (
        [table([_HEAD, *map(_row, found.workers)])] if found.workers else ["no workers; to start one: callboard worker"]
    )
    lines += ["", f"queued     {found.queued}{waits}"]
    lines += [f"taken over {found.takeovers} from silent workers; {found.fenced} of these workers tried to continue"]
    known = "" if found.tables == found.known else f"; this callboard knows {found.known}"
    lines += [f"tables     version {found.tables}{known}"]
    return "\n".join(lines)


def _row(worker: WorkerOverview) -> tuple[str, ...]:
    lease = f"{worker.left:.0f} s" if worker.left > 0 else "over"
    if worker.draining:
        lease += ", ends"
    return worker.name, str(worker.runs), str(worker.room), lease, ",".join(worker.has), worker.version
