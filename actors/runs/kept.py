"""Begins to keep a durable run: what its first row says. `durable` goes on with it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.errors import JournalError
from ...protocol.journal import FOLD, About, Began, Definition, encode_about
from ...protocol.requests import RunRequest
from ...protocol.version import VERSION
from ..work.journal.directory import directory_of, make
from ..work.journal.of_run import OfRun
from .execution import Execution
from .finding import find
from .loading import Hooks
from .root import Root

PROMPT = 200
"""Characters of a prompt that lists of runs have."""


async def keep(execution: Execution, request: RunRequest, hooks: Hooks) -> OfRun:
    """Begin to keep a run, which is about to begin.

    Raises:
        JournalError: that is not possible here.
    """
    root = execution.root
    journal = await root.journal()
    definition = await root.loader.threaded(partial(definition_of, request, hooks, root, execution.prepared.parts))
    if execution.input.attachments:
        copies = await trio.to_thread.run_sync(_copied, execution.id, execution.input.attachments)
        execution.input = msgspec.structs.replace(execution.input, attachments=copies)
        request = msgspec.structs.replace(request, attach=tuple(map(str, copies)))
    cwd = request.cwd or os.getcwd()  # noqa: PTH109 - a text is wanted
    about = encode_about(
        About(
            execution.started.target,
            execution.started.name,
            request.prompt[:PROMPT],
            cwd,
            str(root.config_dir),
            hooks.owner,
        )
    )
    kept = OfRun(journal.begin(execution.id, about), about, None, lambda: root.kernel.stopping)
    request = msgspec.structs.replace(request, id=execution.id, cwd=cwd)
    functions = tuple(tool.name for tool in hooks.tools)
    kept.append("", Began(0, request, definition, FOLD, VERSION, time.time(), hooks.owner, functions))
    if hooks.on_history is not None:
        kept.spoil("it is a turn of a conversation")
    if hooks.loaded is not None and not isinstance(request.target, Agent):
        kept.spoil("it was begun with an agent that a Python program had loaded")
    return kept


def definition_of(
    request: RunRequest, hooks: Hooks, root: Root, parts: Mapping[str, str] | None = None
) -> Definition | None:
    """The file of a run's target, as it is now; None for an agent that was made by a program.

    Args:
        parts: of a workflow, the files of its subgraphs.
    """
    if isinstance(request.target, Agent) or request.in_role or hooks.loaded is not None:
        return None
    found = find(request.target, config_dir=root.config_dir)
    file = os.path.abspath(found.file)  # noqa: PTH100 - no link is followed
    return Definition(found.dialect, file, str(found.directory.absolute()), found.text, dict(parts or {}))


def _copied(run: str, files: Iterable[Path]) -> tuple[Path, ...]:
    """The files that a run comes with, where they stay as they are until it is over."""
    place = directory_of(run) / "attached"
    try:
        make(place)
        return tuple(Path(shutil.copy(file, place)) for file in files)
    except OSError as error:
        raise JournalError(f"the files that the run comes with can't be kept: {error}") from error
