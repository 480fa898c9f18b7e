"""Begins to keep a durable run: what its first row says. `durable` goes on with it."""

from __future__ import annotations

import os
import time
from functools import partial

import msgspec

from ...protocol.agent import Agent
from ...protocol.journal import FOLD, About, Began, Definition, encode_about
from ...protocol.requests import RunRequest
from ...protocol.version import VERSION
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
    definition = await root.loader.threaded(partial(definition_of, request, hooks, root))
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
    kept.append("", Began(0, request, definition, FOLD, VERSION, time.time(), hooks.owner))
    if hooks.on_history is not None:
        kept.spoil("it is a turn of a conversation")
    if hooks.tools or (hooks.loaded is not None and definition is None and not isinstance(request.target, Agent)):
        kept.spoil("it was begun with functions or agents of a Python program")
    return kept


def definition_of(request: RunRequest, hooks: Hooks, root: Root) -> Definition | None:
    """The file of a run's target, as it is now; None for an agent that was made by a program."""
    if isinstance(request.target, Agent) or request.in_role or hooks.loaded is not None:
        return None
    found = find(request.target, config_dir=root.config_dir)
    return Definition(found.dialect, os.path.abspath(found.file), str(found.directory.absolute()), found.text)  # noqa: PTH100
