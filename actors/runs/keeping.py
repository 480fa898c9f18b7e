"""How long what is kept of durable runs stays: the settings say it, and processes see to it.

A server does so regularly. Other programs do at their end, at most once in `EVERY` seconds, unless there are clearly
more journals than runs shall be kept.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ...protocol.journal import BATCH, BY_SERVER, decode_about
from ..io.directories import journal_dir
from ..work.journal.directory import remove, remove_left

if TYPE_CHECKING:
    from pathlib import Path

    from ...protocol.settings import Settings
    from ...supervisors.journal.row import Kept

EVERY = 3_600.0
"""Seconds between two looks of a server."""

DAY = 86_400.0
MARGIN = 20
"""One in so many journals more than runs shall be kept are looked through before a day is over."""

STAMP = ".pruned"


async def prune_regularly(settings: Settings, sign: str) -> None:
    """For as long as it is not cancelled."""
    while True:
        await trio.to_thread.run_sync(partial(prune_now, settings, sign), abandon_on_cancel=True)
        await trio.sleep(EVERY)


def prune_now(settings: Settings, sign: str) -> int:
    """Remove what need not stay; how many runs. Blocking."""
    from ...supervisors.journal.retention import prune

    directory = journal_dir(os.environ)
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
        remove_left()
    with suppress(OSError):
        (directory / STAMP).touch(mode=0o600)
    return removed


def remove_kept(run: str) -> bool:
    """Remove what is kept of a run that no process plays, with its directory; False if nothing is. Blocking.

    Raises:
        Damaged, JournalUnread: it can't be read or written.
    """
    directory = journal_dir(os.environ)
    if not directory.is_dir():
        return False
    from ...supervisors.journal.retention import remove_run

    removed = remove_run(directory, run)
    if removed:
        remove(run)
    return removed


def prune_if_due(settings: Settings, sign: str) -> int:
    """As `prune_now`, if that is due. Blocking; a look at a directory if it is not."""
    from ...supervisors.journal.store import databases

    directory, keep = journal_dir(os.environ), settings.api.keep_runs
    many = keep > 0 and len(databases(directory)) > keep + keep // MARGIN
    return prune_now(settings, sign) if many or _age(directory / STAMP) > DAY else 0


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _is_forsaken(run: Kept) -> bool:
    """Whether nobody will go on with a run by itself, so that it may go as if it was over.

    It can't go on; its program was told to end, and is no server; or its batch goes on without it.
    """
    try:
        about = decode_about(run.about)
    except msgspec.MsgspecError:
        return False
    return bool(about.spoilt) or about.by == BATCH or (about.left and about.by != BY_SERVER)
