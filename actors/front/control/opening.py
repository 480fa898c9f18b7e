"""Construction of the hub with its logs, sessions and methods."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...io.directories import state_dir
from .hub import END_WITHIN, Hub
from .logs.run_logs import RunLogs
from .methods import METHODS
from .runs.live_run import HubOptions

if TYPE_CHECKING:
    from ...runs.root import Root
    from .cluster import Cluster


@contextlib.asynccontextmanager
async def open_hub(
    root: Root,
    *,
    directory: Path | None = None,
    options: HubOptions | None = None,
    redact: Callable[[bytes], bytes] | None = None,
    cluster: Cluster | None = None,
) -> AsyncIterator[Hub]:
    """Open the hub of a process for the length of the block; runs under way at its end are interrupted.

    Args:
        directory: directory of the logs; by default `runs` in the state directory.
        redact: removes secrets from an encoded event before any reader gets it.
        cluster: executes runs in other processes, or lets this process execute runs of others.

    Raises:
        ConfigError: the logs cannot be stored in the directory.
    """
    options = options or HubOptions(keep_runs=root.settings.api.keep_runs)
    logs = (RunLogs if cluster is None else cluster.logs)(
        directory or state_dir(os.environ) / "runs",
        keep=options.keep_runs,
        shows_interrupted=root.settings.durable.resume != "never",
    )
    await logs.__aenter__()
    try:
        hub = Hub(root, logs, options, redact, cluster)
        async with hub.open():
            hub.methods = dict(METHODS)
            yield hub
    finally:
        with root.kernel.shield(END_WITHIN):
            await logs.aclose()
