"""Execution of a durable run for `callboard resume` and `fork`; the result is printed as by `callboard run`.

The run executes in the working directory in which it began, and with its configuration directory unless the flags name
another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ...actors.io.lines import from_any_thread
from ...actors.runs.root import Root
from ...protocol.errors import Conflict
from ...protocol.events import Event
from ...protocol.journal import About
from ...protocol.outcome import Outcome
from .. import logging
from ..failure import complain
from ..frame import choose_display, person_at_terminal, play
from ..render.answer import AnswerDisplay, AnswerResult, style_of
from ..render.progress import ProgressDisplay
from ..render.result import ResultFormat, for_format
from ..render.text import with_node

Driver: TypeAlias = Callable[[Root, Callable[[Event], None], Callable[[str], None]], Awaitable[Outcome]]
"""Executes the run, given callbacks for its events and for notes to the user."""


@dataclass(frozen=True, kw_only=True)
class DurableRunFlags:
    """Flags shared by all commands for durable runs, as click parsed them.

    Attributes:
        config_dir: absolute path of the configuration directory.
    """

    no_input: bool
    output: str
    quiet: bool
    verbose: bool
    config_dir: str | None


def execute_durable_run(run: str, about: About | None, flags: DurableRunFlags, driver: Driver) -> int:
    """Execute the run and return the exit code.

    Raises:
        CallboardError: the run could not start.
    """
    logging.configure()
    person = person_at_terminal(no_input=flags.no_input)
    shared = flags.output == "stream-json" and sys.stdout.isatty()
    progress = choose_display(sys.stderr, quiet=flags.quiet, verbose=flags.verbose, prompting=person, shared=shared)
    if flags.output == "text" and sys.stdout.isatty():
        progress = answer = AnswerDisplay(progress, sys.stdout, streams=True)
        result: ResultFormat = AnswerResult(sys.stdout, answer)
    else:
        result = for_format(flags.output, sys.stdout)
    enter_working_directory(run, about)
    framed = partial(_drive, driver, progress, result)
    outcome = play(framed, progress, config_dir=config_dir_of(about, flags), person=person)
    result.finish(outcome)
    if outcome.status == "failed" and outcome.error is not None:
        complain(with_node(outcome.error.message, outcome.error.node))
    return outcome.exit_code


def config_dir_of(about: About | None, flags: DurableRunFlags) -> str | None:
    """Return the configuration directory of the flags, or that of the run."""
    return flags.config_dir or (None if about is None else about.config_dir)


def enter_working_directory(run: str, about: About | None) -> None:
    """Enter the working directory in which the run began: its relative paths refer to it.

    Raises:
        Conflict: the directory can't be entered.
    """
    if about is None:
        return
    try:
        os.chdir(about.cwd)
    except OSError as error:
        raise Conflict(
            f"{run} can't continue: its working directory {about.cwd} can't be entered ({error.strerror})"
        ) from error


async def _drive(driver: Driver, progress: ProgressDisplay, result: ResultFormat, root: Root) -> Outcome:
    if isinstance(progress, AnswerDisplay):
        progress.begin(style_of(root.settings.other, Path(root.config_dir), sys.stdout, os.environ))
    result.on_write_error(from_any_thread(root.begin_stop))

    def on_event(event: Event) -> None:
        progress.on_event(event)
        result.on_event(event)

    return await driver(root, on_event, progress.note)
