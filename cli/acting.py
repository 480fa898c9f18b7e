"""Does one thing by hand, outside of a run: in an actor under a root, whose events feed the progress display."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from .. import Root
from ..protocol.errors import CallboardError, ShuttingDown
from ..supervisors import Actor
from . import logging
from .frame import open_frame
from .render.progress import Progress

T = TypeVar("T")

_INTERRUPTED = 130


def act(
    body: Callable[[Actor, Root], Awaitable[T]],
    *,
    config_dir: str | None,
    progress: Progress | None = None,
    person: bool = False,
    traced: bool = False,
) -> T:
    """What `body` returns, played to its end by an actor of its own.

    Args:
        config_dir: see `directories.config_dir`.
        progress: gets its events, if any.
        person: whether the terminal can ask its user.
        traced: whether it has runs (see `open_frame`).

    Raises:
        CallboardError: it failed.
        click.exceptions.Exit: it was interrupted.
    """
    logging.configure()
    end: list[T] | CallboardError | int = trio.run(_play, body, config_dir, progress or Progress(), person, traced)
    if isinstance(end, int):
        raise click.exceptions.Exit(end)
    if isinstance(end, CallboardError):
        raise end
    return end[0]


async def _play(
    body: Callable[[Actor, Root], Awaitable[T]],
    config_dir: str | None,
    progress: Progress,
    person: bool,
    traced: bool,
) -> list[T] | CallboardError | int:
    """A list of what it returned; why it failed; the exit code if it was interrupted."""
    async with open_frame(progress, config_dir=config_dir, person=person, traced=traced) as root:
        stream = root.bus.open(f"call-{secrets.token_hex(4)}")
        try:
            with stream.listen(progress.on_event):
                end = await root.kernel.spawn(body, root, name=stream.run, stream=stream, link=False).wait()
        finally:
            root.bus.close(stream)
        if end.reason in ("cancelled", "stopped") or isinstance(end.error, ShuttingDown):
            return _INTERRUPTED if root.kernel.signal is None else 128 + root.kernel.signal
        if end.error is not None:
            return end.error if isinstance(end.error, CallboardError) else CallboardError(f"crashed: {end.error!r}")
        return [end.value]
    raise AssertionError("unreachable: the root swallows no errors")
