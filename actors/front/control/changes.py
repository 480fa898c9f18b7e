"""What the file tools of a run have changed, for those who may read the run, and taken back for those who may that."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import trio

from ....protocol.changes import Restored
from ....protocol.control.caller import Caller
from ....protocol.control.own import Changes
from ....protocol.errors import Conflict
from ...io.redact import Redactor, secrets_of
from ...work.tools.changes.of_runs import changes_of, restore, store_of

if TYPE_CHECKING:
    from ...io.vault.vault import Vault
    from .hub import Hub

MOST = 500
"""Files of one answer."""


async def changes_of_run(hub: Hub, caller: Caller, run: str, actor: str | None = None) -> Changes:
    """What the run has changed, so far.

    Args:
        actor: only what the actor with this path has changed, and those below it.

    Raises:
        NotFound, Denied: as `Hub.get`.
    """
    caller.need("read:runs")
    await hub.look(caller, run)
    redactor = Redactor(secrets_of(hub.root.settings, os.environ))
    return await trio.to_thread.run_sync(partial(_changes, run, actor, redactor, hub.root.vault))


def _changes(run: str, actor: str | None, redactor: Redactor, vault: Vault) -> Changes:
    vault.hide_all()
    files = changes_of(store_of(os.environ), [run], actor=actor)
    for file in files:
        file.diff = redactor.data(file.diff.encode()).decode()
    return Changes(files=files[:MOST], more=max(0, len(files) - MOST))


async def restore_run(hub: Hub, caller: Caller, run: str) -> Restored:
    """Put the files back as they were before the run.

    Raises:
        NotFound, Denied: as `Hub.get`.
        Conflict: the run is under way.
    """
    caller.need("write:runs")
    caller.need("run:files")
    info = await hub.look(caller, run)
    if not info.over:
        raise Conflict(f"{run} is under way, and may change files; cancel it first")
    return await trio.to_thread.run_sync(partial(restore, store_of(os.environ), [run]))
