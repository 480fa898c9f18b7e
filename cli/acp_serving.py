"""What `callboard acp` does."""

from __future__ import annotations

import trio

from ..protocol.errors import CallboardError
from . import logging
from .frame import open_frame
from .render.progress import Silent


def serve(agent: str | None, config_dir: str | None) -> int:
    """Serves until the editor has gone, or a signal comes; returns the exit code.

    Raises:
        CallboardError: there is no such agent, or nothing can be served.
    """
    logging.configure()
    ended = trio.run(_serve, agent, config_dir)
    if isinstance(ended, CallboardError):
        raise ended
    return ended


async def _serve(agent: str | None, config_dir: str | None) -> CallboardError | int:
    from ..actors.front.acp.stdio import serve_acp
    from ..actors.runs.finding import find
    from ..actors.runs.target import read

    async with open_frame(Silent(), config_dir=config_dir, person=False, serving=True) as root:
        try:
            if agent is not None:
                read(find(agent, config_dir=root.config_dir), root.config_dir, shelf=root.shelf)
            await serve_acp(root, agent)
        except CallboardError as error:
            return error
        return 0 if root.kernel.signal is None else 128 + root.kernel.signal
    raise AssertionError("unreachable: the root swallows no errors")
