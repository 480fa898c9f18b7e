"""Records of a run besides its events: model calls and file changes, for callers that may read the run; undo.

Some models' requests and replies are recorded on request only (`work.models.recorder`).
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.control.method_structs import Calls, Changes
from ....protocol.control.resources import ModelCall, ModelCallDetail, Restored
from ....protocol.errors import Conflict, NotFound, UsageError
from ...io.secret_redaction import Redactor, secrets_of
from ...work.tools.changes.run_changes import changes_of, restore, store_of
from .logs.model_calls import has_calls, read_call, read_calls

if TYPE_CHECKING:
    from ....protocol.control.resources import ChangedFile
    from ....protocol.settings import Settings
    from ...io.vault.vault import Vault
    from .hub import Hub


MOST_CALLS = 1000
"""Calls on one page."""

LONGEST_PAGE = 256 * 1024
"""Bytes of a page, unless a single call is longer."""

HOW_TO_KEEP = "set `keep_requests: true` in config.yaml to record the calls of later runs"


async def calls_of(
    hub: Hub, caller: Caller, run: str, *, after: int = 0, limit: int = 100, actor: str | None = None
) -> Calls:
    """Return a page of the calls after a number, oldest first.

    Args:
        actor: path of an actor; only its calls and the calls of actors below it.

    Raises:
        NotFound, Denied: as `Hub.get`; or no call of this run is recorded.
        UsageError: `limit` is not from 1 to `MOST_CALLS`.
    """
    if not 1 <= limit <= MOST_CALLS:
        raise UsageError(f"`limit` must be a number from 1 to {MOST_CALLS}, not {limit}")
    found = await _read(hub, caller, run)
    first = found[0].number if found else 1
    meant = [call for call in found if call.number > after and (actor is None or below(call.actor, actor))]
    page: list[ModelCall] = []
    size = 0
    for call in meant[:limit]:
        size += len(msgspec.json.encode(call))
        if page and size > LONGEST_PAGE:
            break
        page.append(call)
    return Calls(calls=page, next=page[-1].number if len(page) < len(meant) else None, dropped=first - 1)


async def call_of(hub: Hub, caller: Caller, run: str, number: int | None = None) -> ModelCallDetail:
    """Return one call with request and reply; by default the last one.

    Raises:
        NotFound, Denied: as `calls_of`; or there is no such call.
    """
    calls = await _read(hub, caller, run)
    if number is None and calls:
        number = calls[-1].number
    call = await trio.to_thread.run_sync(read_call, hub.logs.directory / run, number) if number else None
    if call is None:
        raise no_call(run, number, calls)
    return call


async def _read(hub: Hub, caller: Caller, run: str) -> list[ModelCall]:
    info = await hub.read_run(caller, run)
    await hub.logs.flush()  # even a finished run may have lines in the writer's queue
    directory = hub.logs.directory / info.run
    found = await trio.to_thread.run_sync(read_calls, directory)
    if not found and not await trio.to_thread.run_sync(has_calls, directory):
        raise no_stored_call(run)
    return found


def below(path: str, top: str) -> bool:
    """Return True if `path` is `top` or an actor below it."""
    return path == top or path.startswith(f"{top}/")


def no_stored_call(run: str) -> NotFound:
    """Return the error for a run without recorded calls."""
    return NotFound(f"no model call of {run} is recorded: it made none, or recording was turned off; {HOW_TO_KEEP}")


def no_call(run: str, number: int | None, calls: list[ModelCall]) -> NotFound:
    """Return the error for a call number that is not recorded."""
    if not calls:
        return NotFound(f"no recorded model request of {run} can be read")
    first, last = calls[0].number, calls[-1].number
    if number is not None and 0 < number < first:
        return NotFound(f"call {number} of {run} was deleted to limit disk space; calls {first} to {last} are recorded")
    return NotFound(f"{run} has no call {number}; calls {first} to {last} are recorded")


MOST_FILES = 500
"""Files in one answer."""


async def changes_of_run(hub: Hub, caller: Caller, run: str, actor: str | None = None) -> Changes:
    """Return the first `MOST_FILES` files that the run has changed so far, and the number of further ones.

    Args:
        actor: path of an actor; only its changes and the changes of actors below it.

    Raises:
        NotFound, Denied: as `Hub.get`.
    """
    caller.need("read:runs")
    await hub.read_run(caller, run)
    root = hub.root
    files = await trio.to_thread.run_sync(partial(redacted_changes, run, root.settings, root.vault, actor))
    return Changes(files=files[:MOST_FILES], more=max(0, len(files) - MOST_FILES))


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
    info = await hub.read_run(caller, run)
    if not info.over:
        raise Conflict(f"{run} is active and may still change files; cancel it first")
    return await trio.to_thread.run_sync(partial(restore, store_of(os.environ), [run]))
