"""File changes of a run: the list for callers that may read the run, and their undo with further scopes."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import trio

from ....protocol.changes import Restored
from ....protocol.control.caller import Caller
from ....protocol.control.own import Changes
from ....protocol.errors import Conflict
from ...io.secret_redaction import Redactor, secrets_of
from ...work.tools.changes.run_changes import changes_of, restore, store_of

if TYPE_CHECKING:
    from ....protocol.changes import ChangedFile
    from ....protocol.settings import Settings
    from ...io.vault.vault import Vault
    from .hub import Hub

MOST = 500
"""Files in one answer."""


async def changes_of_run(hub: Hub, caller: Caller, run: str, actor: str | None = None) -> Changes:
    """Return the file changes of the run so far.

    Args:
        actor: path of an actor; only its changes and the changes of actors below it.

    Raises:
        NotFound, Denied: as `Hub.get`.
    """
    caller.need("read:runs")
    await hub.look(caller, run)
    root = hub.root
    files = await trio.to_thread.run_sync(partial(redacted_changes, run, root.settings, root.vault, actor))
    return Changes(files=files[:MOST], more=max(0, len(files) - MOST))


def redacted_changes(run: str, settings: Settings, vault: Vault | None, actor: str | None = None) -> list[ChangedFile]:
    """Return the file changes of a run without the secrets that logs redact: provider keys and values from the vault.

    Blocking: call it in a trio worker thread.

    Args:
        vault: None if it is not available.
        actor: as for `changes_of_run`.
    """
    redactor = Redactor(secrets_of(settings, os.environ))
    hide = None if vault is None else vault.hide_all
    return changes_of(store_of(os.environ), [run], actor=actor, hide=hide, clean=redactor.known)


async def restore_run(hub: Hub, caller: Caller, run: str) -> Restored:
    """Restore the files to their state before the run.

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
