"""Retention of durable runs, as the settings define it.

A server prunes every `EVERY` seconds. Other programs prune at their end, at most once a day, unless there are clearly
more journals than runs to retain.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ...protocol.journal import BATCH, BY_SERVER, decode_about
from ..io.directories import journal_dir
from ..io.tenancy import environ
from ..work.journal.directory import remove, remove_abandoned

if TYPE_CHECKING:
    from pathlib import Path

    from ...protocol.settings import Settings
    from ...supervisors.journal.row import StoredRunRecord

EVERY = 3_600.0
"""Seconds between two prunes of a server."""

DAY = 86_400.0
MARGIN = 20
"""Tolerance: if journals exceed `keep_runs` by more than 1/20, they are pruned before a day has passed."""

STAMP = ".pruned"


async def prune_regularly(settings: Settings, sign: str) -> None:
    """Prune every `EVERY` seconds until cancelled."""
    while True:
        await trio.to_thread.run_sync(partial(prune_now, settings, sign), abandon_on_cancel=True)
        await trio.sleep(EVERY)


def prune_now(settings: Settings, sign: str) -> int:
    """Remove runs beyond the retention limits; return the number of runs removed. Blocking."""
    from ...supervisors.journal.retention import prune

    directory = journal_dir(environ())
    if not directory.is_dir():
        return 0
    removed = prune(
        directory,
        sign,
        keep=settings.api.keep_runs,
        days=settings.durable.keep_days,
        most=settings.durable.max_bytes,
        forsaken=_is_forsaken,
    )
    if removed:
        remove_abandoned()
    with suppress(OSError):
        (directory / STAMP).touch(mode=0o600)
    return removed


def remove_stored_run(run: str) -> bool:
    """Remove a stored run that no process executes, with its directory; return False if it is not stored. Blocking.

    Raises:
        Damaged, JournalUnread: it cannot be read or written.
    """
    directory = journal_dir(environ())
    if not directory.is_dir():
        return False
    from ...supervisors.journal.retention import remove_run

    removed = remove_run(directory, run)
    if removed:
        remove(run)
    return removed


def prune_if_due(settings: Settings, sign: str) -> int:
    """Call `prune_now` if it is due; otherwise only list the directory. Blocking."""
    from ...supervisors.journal.store import databases

    directory, keep = journal_dir(environ()), settings.api.keep_runs
    many = keep > 0 and len(databases(directory)) > keep + keep // MARGIN
    return prune_now(settings, sign) if many or _age(directory / STAMP) > DAY else 0


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _is_forsaken(run: StoredRunRecord) -> bool:
    """Return whether no process will resume a run by itself, so that it may be removed like a run that is over.

    That holds if it cannot be resumed, or if it was stopped together with a program other than a server. It also
    holds for a task of a batch, which continues without it.
    """
    try:
        about = decode_about(run.about)
    except msgspec.MsgspecError:
        return False
    return bool(about.spoilt) or about.by == BATCH or (about.left and about.by != BY_SERVER)
