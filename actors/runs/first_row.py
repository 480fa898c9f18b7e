"""Start of a durable run's journal: the contents of its first row. `durable` resumes runs."""

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
from ...protocol.errors import CallboardError, Conflict, JournalError
from ...protocol.journal import BY_SERVER, FOLD, About, Began, encode_about
from ...protocol.problems import Problem
from ...protocol.requests import RunRequest
from ...protocol.version import VERSION
from ..io.directories import journal_dir
from ..io.secret_redaction import without_secrets
from ..io.tenancy import environ
from ..work.journal.directory import ATTACHED, directory_of, make
from ..work.journal.run_journal import JournaledRun
from .execution import Execution
from .loading import RunCallbacks
from .pinned_files import definition_of, has_file
from .root import Root
from .target import LoopAgent

if TYPE_CHECKING:
    from ...protocol.settings import Settings

AT_TERMINAL = ("run", "ask", "chat")
"""Commands that execute runs for the user at a terminal."""

PROMPT = 200
"""Characters of a prompt that are stored for lists of runs."""


async def keep(execution: Execution, request: RunRequest, hooks: RunCallbacks) -> None:
    """Begin the journal of a run that is about to start.

    If that fails, a run that does not insist on durability gets a warning and runs without a journal.

    Raises:
        JournalError: the journal cannot be written, and the run insists on it (`hooks.durable`).
    """
    try:
        kept = await _keep(execution, request, hooks)
        execution.keep(kept, hooks.holds)
        if hooks.on_kept is not None:
            hooks.on_kept(lambda: kept.is_handed_over)
    except JournalError as error:
        if hooks.durable:
            raise
        hint = "set `durable: {by_default: false}` in config.yaml, or use --ephemeral, to run without a journal"
        told = Problem(
            severity="warning",
            code="not_durable",
            file=execution.root.settings.file,
            message=f"this run can't be resumed if its process is killed: {error}",
            hint=hint,
        )
        execution.problems = (*execution.problems, told)


async def check_id(root: Root, run: str) -> None:
    """Raise `Conflict` if a durable run has this id, whichever process executes or executed it."""
    from ...supervisors.journal.reading import state_of
    from ...supervisors.journal.row import State

    try:
        await (await root.journal()).do(lambda _: None)  # the last rows of a run that has just ended are written
    except JournalError:  # reported by `keep`, which knows whether the run insists on its journal
        return
    state = await trio.to_thread.run_sync(state_of, journal_dir(environ()), run)
    if state is State.OVER:
        raise Conflict(
            f"{run} already exists, and has ended: choose another id, or `callboard runs delete {run}` first"
        )
    if state is State.INTERRUPTED:
        raise Conflict(f"{run} already exists, and was interrupted: resume it (`root.resume`), or choose another id")
    if state is not None:
        raise Conflict(f"{run} already exists, and is under way: choose another id")


async def _keep(execution: Execution, request: RunRequest, hooks: RunCallbacks) -> JournaledRun:
    root = execution.root
    journal = await root.journal()
    definition, unread = None, ""
    try:
        if has_file(request, hooks):  # Checked before the thread is started: a thread costs more than the check.
            definition = await root.loader.threaded(partial(definition_of, request, hooks, root, execution.prepared))
    # The file was readable a moment ago. The run still runs, and the journal records that it cannot be resumed.
    except CallboardError as error:
        unread = f"its file can't be read any more: {error}"
    if execution.input.attachments:
        copies = await trio.to_thread.run_sync(_copied, execution.id, execution.input.attachments)
        execution.input = msgspec.structs.replace(execution.input, attachments=copies)
        request = msgspec.structs.replace(request, attach=tuple(map(str, copies)))
    # The parts were read from files, which may differ when the run is resumed.
    if execution.input.parts != request.parts:
        parts, files = execution.input.parts, execution.input.files
        request = msgspec.structs.replace(request, parts=parts, files=files, attach=())
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
    kept = JournaledRun(rows, about, None, leaves(root, hooks), insists=bool(hooks.durable))
    request = msgspec.structs.replace(request, id=execution.id, cwd=cwd)
    if session is not None:
        request = msgspec.structs.replace(request, history=())
    # Functions of the program, in its call or in an agent that it made: no other process has them.
    made = hooks.loaded.functions if isinstance(hooks.loaded, LoopAgent) else ()
    agent = hooks.loaded.agent if isinstance(hooks.loaded, LoopAgent) else None
    began = Began(
        at=0,
        request=request,
        definition=definition,
        fold=FOLD,
        version=VERSION,
        wall=time.time(),
        owner=hooks.owner,
        functions=tuple(tool.name for tool in (*hooks.tools, *made)),
        agent=None if isinstance(request.target, Agent) else agent,
        settings={} if hooks.settings is None else _other(hooks.settings, root.settings),
        session=session,
    )
    kept.append("", began)
    if unread:
        kept.spoil(unread)
    # A server reports the run's id to its client, who may rely on it: the first row must survive a crash of the
    # server.
    if hooks.by == BY_SERVER:
        await kept.barrier()
    return kept


def leaves(root: Root, hooks: RunCallbacks) -> Callable[[], bool]:
    """Return a predicate: True if the process is ending, so that the run is left to the next process.

    Ctrl-C at the terminal of a session's turn ends that turn, as it does for a run without a journal.
    """
    kernel, turn = root.kernel, hooks.session is not None and hooks.by in AT_TERMINAL
    return lambda: kernel.stopping and not (turn and kernel.signal == signal.SIGINT)


def _copied(run: str, files: Iterable[Path]) -> tuple[Path, ...]:
    """Copy the run's attachments into its own directory, so that they stay unchanged until it is over."""
    place = directory_of(run) / ATTACHED
    try:
        make(place)
        return tuple(Path(shutil.copy(file, place)) for file in files)
    except OSError as error:
        raise JournalError(
            f"the attachments of the run can't be copied to the directory of its journal: {error}"
        ) from error


def _other(settings: Settings, than: Settings) -> dict[str, Any]:
    """Return the keys of `settings` that differ from `than`, without the keys that may contain secrets."""
    told: dict[str, Any] = {}
    for name in settings.__struct_fields__:
        value, usual = getattr(settings, name), getattr(than, name)
        if value != usual and name not in ("clients", "vault", "api", "patches"):
            told[name] = msgspec.to_builtins(value)
    return told
