"""What `callboard fork` and `callboard runs show --rows` do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .. import Root
from ..actors.io.directories import config_dir as configured
from ..actors.io.directories import journal_dir
from ..actors.runs.loading import Hooks
from ..actors.runs.rerun.changes import Changes
from ..actors.runs.rerun.fork import Fork, durable_runs, find_fork, steps_of
from ..protocol.errors import NobodyToAsk, NotFound
from ..protocol.events import Event
from ..protocol.journal import About
from ..protocol.kernel.questions import Question
from ..protocol.outcome import Outcome
from .control.client import meant
from .frame import person_at_terminal
from .kept_playing import KeptFlags, config_dir_of, go_where, play_kept
from .render.text import counted, json_object, one_line, safe, table

_HEAD = ("ROW", "SECONDS", "WHERE", "WHAT", "")
_SHOWN = 12
"""Effects that a question names."""


@dataclass(frozen=True, kw_only=True)
class ForkFlags(KeptFlags):
    """The flags of `callboard fork`, as click read them."""

    model: str | None
    prompt: str | None
    state: Mapping[str, Any]
    answers: Mapping[str, str]
    with_changes: bool
    yes: bool


def begin(word: str, at: str, flags: ForkFlags) -> int:
    """Begins the fork, and plays it; returns the exit code, 1 if the person would rather not.

    Raises:
        CallboardError: there is no such run or place, nobody can be asked, or it could not start.
    """
    run, about = durable_run(word)
    go_where(run, about)
    fork = find_fork(journal_dir(os.environ), run, at, Path(configured(config_dir_of(about, flags), os.environ)[0]))
    if fork.again and not flags.yes and not _agreed(fork, no_input=flags.no_input):
        sys.stderr.write("nothing was begun\n")
        return 1
    changes = Changes(
        model=flags.model,
        prompt=flags.prompt,
        state=flags.state,
        answers=flags.answers,
        with_changes=flags.with_changes,
    )

    async def drive(root: Root, on_event: Callable[[Event], None], note: Callable[[str], None]) -> Outcome:
        note(f"a fork of {run}, which begins with {counted(fork.at, 'row')} of it")
        return await fork.play(root, changes, Hooks(on_event=on_event))

    return play_kept(run, about, flags, drive)


def show_rows(word: str, *, as_json: bool) -> str:
    """The text of `runs show --rows`."""
    run, about = durable_run(word)
    base = configured(None if about is None else about.config_dir, os.environ)[0]
    steps = steps_of(journal_dir(os.environ), run, Path(base))
    if as_json:
        return json_object(run=run, rows=[msgspec.to_builtins(step) for step in steps])
    rows = [
        (str(step.row), f"{step.seconds:.3f}", safe(step.where), safe(step.what), one_line(safe(step.text), 200))
        for step in steps
    ]
    return table([_HEAD, *rows])


def durable_run(word: str) -> tuple[str, About | None]:
    """The durable run that is meant, and what is said of it.

    Raises:
        NotFound: there is none; UsageError: there are several.
    """
    there = durable_runs(os.environ)
    id = meant(word, there)
    if id is None:
        raise NotFound(f"no durable run '{word}' is kept (callboard run --durable keeps one)")
    return id, there[id]


def _agreed(fork: Fork, *, no_input: bool) -> bool:
    if not person_at_terminal(no_input=no_input):
        raise NobodyToAsk(
            f"what {fork.run} did behind row {fork.at} is done again ({counted(len(fork.again), 'time')} it changed the"
            " world), and no person can be asked whether it may be; --yes agrees beforehand"
        )
    from .render.dialog import Dialog

    rows = [f"  {safe(each)}" for each in fork.again[:_SHOWN]]
    rows += [f"  and {len(fork.again) - _SHOWN} more"] if len(fork.again) > _SHOWN else []
    text = "\n".join([f"Go on? This {fork.run} did behind row {fork.at}, and it is done again:", *rows])
    try:
        return Dialog(Question(id="", actor="", kind="confirm", text=text, default="no")).run() == "yes"
    except EOFError:
        return False
