"""Plays a durable run that is on disk, or a fork of one, and prints its result as `callboard run` does.

It is played in the directories that the run began in: of work, and of configuration unless another is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from .. import Root
from ..actors.io.lines import from_any_thread
from ..protocol.errors import Conflict
from ..protocol.events import Event
from ..protocol.journal import About
from ..protocol.outcome import Outcome
from . import logging
from .frame import person_at_terminal, play
from .render.answer import Answer, AnswerResult, look_of
from .render.plain import choose
from .render.progress import Progress
from .render.result import Result, for_format
from .render.text import safe, with_node

Driver: TypeAlias = Callable[[Root, Callable[[Event], None], Callable[[str], None]], Awaitable[Outcome]]
"""Plays the run, given who is to hear its events, and what tells the user something."""


@dataclass(frozen=True, kw_only=True)
class KeptFlags:
    """The flags that all commands for such runs have, as click read them."""

    no_input: bool
    output: str
    quiet: bool
    verbose: bool
    config_dir: str | None


def play_kept(run: str, about: About | None, flags: KeptFlags, driver: Driver) -> int:
    """Plays it; returns the exit code.

    Raises:
        CallboardError: it could not start.
    """
    logging.configure()
    person = person_at_terminal(no_input=flags.no_input)
    shared = flags.output == "stream-json" and sys.stdout.isatty()
    progress = choose(sys.stderr, quiet=flags.quiet, verbose=flags.verbose, prompting=person, shared=shared)
    if flags.output == "text" and sys.stdout.isatty():
        progress = answer = Answer(progress, sys.stdout, streams=True)
        result: Result = AnswerResult(sys.stdout, answer)
    else:
        result = for_format(flags.output, sys.stdout)
    go_where(run, about)
    framed = partial(_drive, driver, progress, result)
    outcome = play(framed, progress, config_dir=config_dir_of(about, flags), person=person)
    result.finish(outcome)
    if outcome.status == "failed" and outcome.error is not None:
        sys.stderr.write(f"callboard: {safe(with_node(outcome.error.message, outcome.error.node))}\n")
    return outcome.exit_code


def config_dir_of(about: About | None, flags: KeptFlags) -> str | None:
    """The directory of configuration."""
    return flags.config_dir or (None if about is None else about.config_dir)


def go_where(run: str, about: About | None) -> None:
    """Paths that the run was given are seen from where it began."""
    if about is None:
        return
    try:
        os.chdir(about.cwd)
    except OSError as error:
        raise Conflict(
            f"{run} can't go on: the directory {about.cwd} that it works in can't be entered ({error.strerror})"
        ) from error


async def _drive(driver: Driver, progress: Progress, result: Result, root: Root) -> Outcome:
    if isinstance(progress, Answer):
        progress.begin(look_of(root.settings.other, Path(root.config_dir), sys.stdout, os.environ))
    result.when_gone(from_any_thread(root.begin_stop))

    def on_event(event: Event) -> None:
        progress.on_event(event)
        result.on_event(event)

    return await driver(root, on_event, progress.note)
