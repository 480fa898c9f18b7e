"""Begins to keep a durable run: what its first row says. `durable` goes on with it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.errors import CallboardError, JournalError
from ...protocol.journal import BY_SERVER, FOLD, About, Began, encode_about
from ...protocol.problems import Problem
from ...protocol.requests import RunRequest
from ...protocol.version import VERSION
from ..io.handed_out import without_secrets
from ..work.journal.directory import ATTACHED, directory_of, make
from ..work.journal.of_run import OfRun
from .as_begun import definition_of, has_file
from .execution import Execution
from .loading import Hooks
from .root import Root
from .target import LoopAgent

if TYPE_CHECKING:
    from ...protocol.settings import Settings

AT_TERMINAL = ("run", "ask", "chat")
"""What plays runs for the person at its terminal."""

PROMPT = 200
"""Characters of a prompt that lists of runs have."""


async def keep(execution: Execution, request: RunRequest, hooks: Hooks) -> None:
    """Begin to keep a run, which is about to begin. Where none can be kept, one that need not be is told so.

    Raises:
        JournalError: that is not possible here, and the run insists on it.
    """
    try:
        kept = await _keep(execution, request, hooks)
        execution.keep(kept, hooks.holds)
        if hooks.on_kept is not None:
            hooks.on_kept(lambda: kept.is_left)
    except JournalError as error:
        if hooks.durable:
            raise
        hint = "`durable: {by_default: false}` in config.yaml, or --ephemeral, wants no run kept"
        told = Problem(
            severity="warning",
            code="not_durable",
            file=execution.root.settings.file,
            message=f"this run could not go on after a kill: {error}",
            hint=hint,
        )
        execution.problems = (*execution.problems, told)


async def _keep(execution: Execution, request: RunRequest, hooks: Hooks) -> OfRun:
    root = execution.root
    journal = await root.journal()
    definition, unread = None, ""
    try:
        if has_file(request, hooks):  # a thread costs more than to know that it is not
            definition = await root.loader.threaded(partial(definition_of, request, hooks, root, execution.prepared))
    except CallboardError as error:  # it was read a moment ago
        unread = f"its file can't be read any more: {error}"
    if execution.input.attachments:
        copies = await trio.to_thread.run_sync(_copied, execution.id, execution.input.attachments)
        execution.input = msgspec.structs.replace(execution.input, attachments=copies)
        request = msgspec.structs.replace(request, attach=tuple(map(str, copies)))
    here = execution.context.cwd
    cwd = request.cwd or (os.getcwd() if here is None else str(here))  # noqa: PTH109 - a text is wanted
    session = hooks.session
    about = About(
        target=execution.started.target,
        name=execution.started.name,
        prompt=execution.started.prompt[:PROMPT],
        cwd=cwd,
        config_dir=str(root.config_dir),
        owner=hooks.owner,
        by=hooks.by,
        session="" if session is None else session.id,
    )
    rows = journal.begin(execution.id, encode_about(without_secrets(about)))
    kept = OfRun(rows, about, None, leaves(root, hooks), insists=bool(hooks.durable))
    request = msgspec.structs.replace(request, id=execution.id, cwd=cwd)
    if session is not None:
        request = msgspec.structs.replace(request, history=())
    agent = hooks.loaded.agent if isinstance(hooks.loaded, LoopAgent) else None
    began = Began(
        at=0,
        request=request,
        definition=definition,
        fold=FOLD,
        version=VERSION,
        wall=time.time(),
        owner=hooks.owner,
        functions=tuple(tool.name for tool in hooks.tools),
        agent=None if isinstance(request.target, Agent) else agent,
        settings={} if hooks.settings is None else _other(hooks.settings, root.settings),
        session=session,
    )
    kept.append("", began)
    if unread:
        kept.spoil(unread)
    if hooks.by == BY_SERVER:  # who is told that it has begun may rely on it, whatever becomes of the server
        await kept.barrier()
    return kept


def leaves(root: Root, hooks: Hooks) -> Callable[[], bool]:
    """Whether the process ends, so that it leaves the run to the next.

    Ctrl-C at the terminal of a session's turn ends that turn, as it does where none is kept.
    """
    kernel, turn = root.kernel, hooks.session is not None and hooks.by in AT_TERMINAL
    return lambda: kernel.stopping and not (turn and kernel.signal == signal.SIGINT)


def _copied(run: str, files: Iterable[Path]) -> tuple[Path, ...]:
    """The files that a run comes with, where they stay as they are until it is over."""
    place = directory_of(run) / ATTACHED
    try:
        make(place)
        return tuple(Path(shutil.copy(file, place)) for file in files)
    except OSError as error:
        raise JournalError(f"the files that the run comes with can't be kept: {error}") from error


def _other(settings: Settings, than: Settings) -> dict[str, Any]:
    """What these say otherwise than those: values of single keys, which hold no secrets."""
    told: dict[str, Any] = {}
    for name in settings.__struct_fields__:
        value, usual = getattr(settings, name), getattr(than, name)
        if value != usual and name not in ("clients", "vault", "api", "patches"):
            told[name] = msgspec.to_builtins(value)
    return told
