"""Logs of runs that a program executes itself, stored like the logs of a server's hub.

    async with keep_runs(root, note, logged=True) as recorder:
        await perform(request, RunCallbacks(recorder=recorder), root)

The logs are in the same directory. So `callboard runs`, `logs` and `show`, and a server's web page, list such runs like
any other. A scan of that directory would delay each run by a tenth of a second. So old runs are pruned only at the end,
and only if clearly more than the limit exist.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ConfigError
from ....protocol.events import Event, RunStarted
from ...io.directories import state_dir
from .logs.run_logs import CLOSE_WITHIN, RunLogs
from .runs.live_run import HubOptions
from .runs.running import Running

if TYPE_CHECKING:
    from ...runs.root import Root
    from ...work.models.recorder import Recorder


@asynccontextmanager
async def keep_runs(
    root: Root, note: Callable[[str], None], *, logged: bool
) -> AsyncIterator[Callable[[str], Recorder] | None]:
    """Yield a factory of recorders for runs of this process; None if they cannot be stored, and `note` gets the reason.

    Args:
        logged: also store the events of the runs. False if a hub of this process does so.
    """
    logs = RunLogs(state_dir(os.environ) / "runs", keep=root.settings.api.keep_runs, brief=True)
    try:
        await logs.__aenter__()
    except ConfigError as error:
        note(f"this run is not logged: {error}")
        yield None
        return
    running = Running(root, logs, HubOptions())
    try:
        with root.bus.listen(partial(_hear, running)) if logged else nullcontext():
            yield running.recorder
    finally:
        with root.kernel.shield(CLOSE_WITHIN + 1):
            await logs.aclose()
            await logs.prune_if_many()


def _hear(running: Running, event: Event) -> None:
    # Shared actors emit events too, which belong to no run.
    if isinstance(event.data, RunStarted) or event.run in running.live:
        running.hear(event)
