"""Keeps the log of a run that a program plays by itself, as a hub keeps those of a server.

    async with keep_runs(root, note, logged=True) as recorder:
        await perform(request, Hooks(recorder=recorder), root)

It writes into the same directory, so `callboard runs`, `logs` and `show`, and the page of a server, know such a run as
any other. To look at all that lies there would take a tenth of a second before each run; so old runs are pruned at the
end, and only when there are clearly more than shall be kept.
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
from .logs.runs import CLOSE_WITHIN, RunLogs
from .runs.live_run import HubOptions
from .runs.running import Running

if TYPE_CHECKING:
    from ...runs.root import Root
    from ...work.models.recorder import Recorder


@asynccontextmanager
async def keep_runs(
    root: Root, note: Callable[[str], None], *, logged: bool
) -> AsyncIterator[Callable[[str], Recorder] | None]:
    """Gives what makes a recorder of a run of this process; None if nothing can be kept: `note` says why.

    Args:
        logged: keep the events of the runs, too. Else a hub of this process does it.
    """
    logs = RunLogs(state_dir(os.environ) / "runs", keep=root.settings.api.keep_runs, brief=True)
    try:
        await logs.__aenter__()
    except ConfigError as error:
        note(f"this run is not kept: {error}")
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
    if isinstance(event.data, RunStarted) or event.run in running.live:  # other things tell events as well
        running.hear(event)
