"""Implementation of `callboard fork`: a new run from a step of a durable one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import journal_dir
from ...actors.runs.loading import RunCallbacks
from ...actors.runs.rerun.fork import Fork, ForkChanges, durable_runs, find_fork, stored_rows
from ...actors.runs.root import Root
from ...protocol.errors import NobodyToAsk, NotFound
from ...protocol.events import Event
from ...protocol.journal import About
from ...protocol.kernel.questions import Question
from ...protocol.outcome import Outcome
from ..control.client import matching_id
from ..frame import person_at_terminal
from ..render.text import counted, safe
from .durable_run import DurableRunFlags, config_dir_of, enter_working_directory, execute_durable_run

_SHOWN = 12
"""Maximum number of effects in the confirmation question."""


@dataclass(frozen=True, kw_only=True)
class ForkFlags(DurableRunFlags):
    """Flags of `callboard fork`, as click parsed them."""

    model: str | None
    prompt: str | None
    state: Mapping[str, Any]
    answers: Mapping[str, str]
    with_changes: bool
    yes: bool


def fork_run(word: str, at: str, flags: ForkFlags) -> int:
    """Start the fork and execute it; return the exit code, 1 if the user declines.

    Raises:
        CallboardError: there is no such run or step, no terminal for the confirmation, or the fork could not start.
    """
    run, about = find_durable_run(word)
    enter_working_directory(run, about)
    fork = find_fork(journal_dir(os.environ), run, at, Path(configured(config_dir_of(about, flags), os.environ)[0]))
    if fork.again and not flags.yes and not _agreed(fork, no_input=flags.no_input):
        sys.stderr.write("no run was started\n")
        return 1
    changes = ForkChanges(
        model=flags.model,
        prompt=flags.prompt,
        state=flags.state,
        answers=flags.answers,
        with_changes=flags.with_changes,
    )

    async def drive(root: Root, on_event: Callable[[Event], None], note: Callable[[str], None]) -> Outcome:
        note(f"a fork of {run}, with its first {counted(fork.at, 'step')}")
        return await fork.play(root, changes, RunCallbacks(on_event=on_event))

    return execute_durable_run(run, about, flags, drive)


def find_durable_run(word: str) -> tuple[str, About | None]:
    """Return the id of the requested durable run, and its description.

    Raises:
        NotFound: no run matches.
        UsageError: several runs match.
    """
    there = durable_runs(os.environ)
    id = matching_id(word, there)
    if id is None:
        stored_rows(journal_dir(os.environ), word)  # raises `Damaged` if the run may be in an unreadable journal
        raise NotFound(f"there is no durable run '{word}' (to make a run durable: callboard run --durable)")
    return id, there[id]


def _agreed(fork: Fork, *, no_input: bool) -> bool:
    if not person_at_terminal(no_input=no_input):
        raise NobodyToAsk(
            f"what {fork.run} did behind row {fork.at} is done again ({counted(len(fork.again), 'time')} it changed the"
            " world), and no person can be asked whether it may be; --yes agrees beforehand"
        )
    # Deferred: prompt_toolkit, which a fork without a question does not need.
    from ..render.dialog import Dialog

    rows = [f"  {safe(each)}" for each in fork.again[:_SHOWN]]
    rows += [f"  and {len(fork.again) - _SHOWN} more"] if len(fork.again) > _SHOWN else []
    text = "\n".join(
        [f"Continue? {fork.run} made these changes after step {fork.at}, and the fork repeats them:", *rows]
    )
    try:
        # default="no": Enter alone must not repeat changes.
        return Dialog(Question(id="", actor="", kind="confirm", text=text, default="no")).run() == "yes"
    except EOFError:
        return False
