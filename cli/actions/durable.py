"""Durable runs: resume, fork, replay, steps, export and import.

`callboard resume`, `fork` and `replay` execute a run from its journal. The run executes in the working directory in
which it began, and with its configuration directory unless the flags name another. Its result is printed as by
`callboard run`. `callboard runs` lists interrupted runs and steps, and exports and imports runs;
`..control.commands.stored_runs` implements the other commands of that group, which use the records of all runs.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ...actors.front.control.logs.files import last_event
from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import journal_dir
from ...actors.io.lines import from_any_thread
from ...actors.runs.durable import InterruptedRun, interrupted, resume
from ...actors.runs.loading import RunCallbacks
from ...actors.runs.rerun.fork import Fork, ForkChanges, durable_runs, find_fork, steps_of, stored_rows
from ...actors.runs.root import Root
from ...actors.runs.stored_runs import insert_export, read_export, write_export
from ...protocol.errors import CallboardError, Conflict, NobodyToAsk, NotFound, UsageError
from ...protocol.events import Event, RunStarted
from ...protocol.interrupted_calls import OnUnknown
from ...protocol.journal import BATCH, About
from ...protocol.kernel.errors import Damaged
from ...protocol.kernel.questions import Question
from ...protocol.outcome import Outcome
from ...protocol.relative_time import age
from .. import logging
from ..control.client import matching_id
from ..control.commands.stored_runs import runs_dir, stored_runs
from ..failure import complain
from ..frame import choose_display, keeping, person_at_terminal, play
from ..render.answer import AnswerDisplay, AnswerResult, style_of
from ..render.progress import ProgressDisplay
from ..render.result import ResultFormat, for_format
from ..render.text import counted, json_object, one_line, safe, table, with_node
from .run import WAIT, finish, seen_by_ps

if TYPE_CHECKING:
    from ...actors.runs.rerun.replay import Replayed

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


def execute_durable_run(
    run: str, about: About | None, flags: DurableRunFlags, driver: Driver
) -> tuple[Outcome, ResultFormat]:
    """Execute the run in its own working directory; return its outcome, and the format that writes it.

    The caller passes both to `run.finish`, which prints the result.

    Raises:
        CallboardError: the run could not start, or its working directory can't be entered.
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
    return play(framed, progress, config_dir=config_dir_of(about, flags), person=person), result


def config_dir_of(about: About | None, flags: DurableRunFlags) -> str | None:
    """Return the configuration directory of the flags, else that of the run; None for the default one."""
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


_WIDE = 120
"""Width in columns from which the terminal shows all columns of the table."""

_HEAD_NARROW = ("RUN", "TARGET", "BEGAN", "BY", "PROMPT")
_HEAD = ("RUN", "TARGET", "BEGAN", "STEPS", "STARTS", "BY", "PROMPT")

_LOST = "Restore the file from a backup, or move it away; without it, its runs can't be continued"
"""Advice for a journal that can't be read."""

_SIGNALLED = 128
"""Exit codes above this mean that a signal ended the process."""


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(DurableRunFlags):
    """Flags of `callboard resume`, as click parsed them."""

    all_runs: bool
    with_changes: bool
    strict: bool
    on_unknown: OnUnknown | None
    answers: list[Any] | dict[str, Any] | None


def list_interrupted(*, limit: int, as_json: bool) -> str:
    """Return at most `limit` interrupted runs, newest first, as a table or JSON for `runs --interrupted`.

    A narrow terminal gets fewer columns.
    """
    runs = interrupted(os.environ)[::-1][:limit]
    if as_json:
        return json_object(runs=[_wire(run) for run in runs])
    if not runs:
        return "no durable run was interrupted\n"
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE:
        return table([_HEAD_NARROW, *map(_narrow_row, runs)])
    return table([_HEAD, *map(_row, runs)])


def resume_runs(words: Sequence[str], flags: ResumeFlags) -> int:
    """Resume the requested runs one after another; return the exit code of the first that did not complete, or 0.

    Without words, resumes the only interrupted run, or all with `--all`. With several runs, errors are printed and the
    next run follows, unless a signal ended the last one.

    Raises:
        CallboardError: no run matches, several match without `--all`, or the only one can't be resumed.
    """
    runs = _chosen(words, flags)
    codes = []
    for run in runs:
        try:
            codes.append(_resume(run, flags))
        except CallboardError as error:
            if len(runs) == 1:
                raise
            sys.stderr.write(f"callboard: {safe(str(error))}\n")
            codes.append(error.exit_code)
        if codes[-1] >= _SIGNALLED:
            break  # the user wants to stop, not to resume the next run
    return next((code for code in codes if code), 0)


def _chosen(words: Sequence[str], flags: ResumeFlags) -> list[InterruptedRun]:
    everything = interrupted(os.environ)
    # A journal that can't be read is an entry without an id.
    by_id = {run.run: run for run in everything if run.run}
    unread = [run.damage for run in everything if not run.run]
    if words:
        return [by_id[_id_of(word, by_id, unread)] for word in words]
    for damage in unread:
        sys.stderr.write(f"callboard: {safe(damage)}. {_LOST}\n")
    # A task of a batch is resumed by repeating `callboard batch`, which also stores its result.
    there = [run for run in everything if not run.why_not and (run.about is None or run.about.by != BATCH)]
    if flags.all_runs:
        return there
    if unread and not there:
        raise Damaged(f"no run can be continued: {unread[0]}")
    if not there:
        raise NotFound("no run was interrupted: there is nothing to continue")
    if len(there) > 1:
        named = ", ".join(run.run for run in there[-5:])
        raise UsageError(f"{len(there)} runs were interrupted: name one ({named}), or give --all")
    return there


def _id_of(word: str, there: dict[str, InterruptedRun], unread: Sequence[str]) -> str:
    id = matching_id(word, there)
    if id is None and unread:
        raise Damaged(f"no run '{word}' was found, but a journal can't be read: {'; '.join(unread)}. {_LOST}")
    if id is None:
        raise NotFound(
            f"no durable run '{word}' was interrupted; to list interrupted runs: callboard runs --interrupted"
        )
    return id


def _resume(run: InterruptedRun, flags: ResumeFlags) -> int:
    async def drive(root: Root, on_event: Callable[[Event], None], note: Callable[[str], None]) -> Outcome:
        def on_event_of_run(event: Event) -> None:
            if isinstance(event.data, RunStarted):
                here.enter_context(seen_by_ps(event))
            on_event(event)

        note(f"{run.run} continues after {run.rows} recorded steps")
        log = runs_dir() / run.run
        wanted = root.settings.keep_requests
        # A run that has a log continues it. Requests and replies are stored only as those of a new run are.
        keeps = log.is_dir() or (sys.stderr.isatty() if wanted is None else wanted)
        with ExitStack() as here:
            async with keeping(root, keeps, note) as recorder:
                kept = root.settings.keep_requests is not False and (sys.stderr.isatty() or wanted)
                hooks = RunCallbacks(on_event=on_event_of_run, recorder=recorder if kept else None, by="run")
                last = last_event(log)
                return await resume(
                    root,
                    run.run,
                    hooks,
                    with_changes=flags.with_changes,
                    strict=flags.strict,
                    on_unknown=flags.on_unknown,
                    answers=flags.answers,
                    # Events are numbered on from the log, so that its readers find no number twice.
                    after=0 if last is None else last.seq,
                    wait=WAIT,
                    on_wait=lambda busy: note(f"waiting: {busy}"),
                )
        raise AssertionError("unreachable: nothing swallows errors")

    return finish(*execute_durable_run(run.run, run.about, flags, drive))


def _wire(run: InterruptedRun) -> dict[str, Any]:
    about = None if run.about is None else msgspec.structs.asdict(run.about)
    told = {**msgspec.structs.asdict(run), "about": about, "stuck": run.stuck, "why_not": run.why_not}
    del told["sign"]
    return told


def _narrow_row(run: InterruptedRun) -> tuple[str, ...]:
    """Return the columns that identify a run. The target is reduced to its last part, so that the prompt has room."""
    id, target, since, *_, stands, words = _row(run)
    path = Path(target)
    if "/" in target:
        target = path.parent.name if path.stem in ("graph", "config") and path.suffix else path.name
    return (id, one_line(target, 20), since, stands, words)


def _row(run: InterruptedRun) -> tuple[str, ...]:
    if run.about is None:
        return (run.run or "?", safe(run.damage), "", "", "", "", "")
    about, since = run.about, f"{age(max(0.0, time.time() - run.began))} ago"
    stands = "can't continue" if run.why_not else "stuck" if run.stuck else about.by or "program"
    words = one_line(run.why_not or about.prompt)
    return (run.run, safe(about.target), since, str(run.rows), str(run.life), stands, words)


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
    """Start the fork, execute it and print its result; return its exit code, or 1 if the user declines.

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

    return finish(*execute_durable_run(run, about, flags, drive))


def find_durable_run(word: str) -> tuple[str, About | None]:
    """Return the id of the requested durable run, and its description, or None if the journal has none.

    Raises:
        NotFound: no run matches.
        UsageError: several runs match.
        Damaged: no run matches, but one may be in a journal that cannot be read.
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
            f"{fork.run} made {counted(len(fork.again), 'change')} after step {fork.at}, which the fork repeats; no"
            " terminal is attached to confirm that. To repeat them without a question: --yes"
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


_FORMATS = {"text": "text", "json": "json", "events": "stream-json"}


def replay_run(word: str, *, with_changes: bool, output: str, config_dir: str | None) -> int:
    """Replay a run and print its result; return its exit code, or 1 if the replay differs from the journal.

    A run that has not ended has no exit code; 0 is returned if its replay does not differ.

    Raises:
        CallboardError: there is no such run, or it can't be replayed.
    """
    # Deferred: the engines of graphs and workflows, which `resume` imports only for the run at hand.
    from ...actors.runs.rerun.replay import replay

    logging.configure()
    run, about = find_durable_run(word)
    config_dir = config_dir or (None if about is None else about.config_dir)
    result = for_format(_FORMATS[output], sys.stdout)
    replayed = replay(run, on_event=result.on_event, config_dir=config_dir, with_changes=with_changes)
    result.finish(replayed.outcome)
    _print_differences(run, replayed, Path(configured(config_dir, os.environ)[0]))
    # A run that was not over has no exit code of its own: the outcome only says where its rows end.
    return 1 if replayed.differences else 0 if replayed.ended_early else replayed.outcome.exit_code


def _print_differences(run: str, replayed: Replayed, config_dir: Path) -> None:
    outcome = replayed.outcome
    if outcome.error is not None and not replayed.ended_early:
        complain(with_node(outcome.error.message, outcome.error.node))
    if replayed.ended_early:
        sys.stderr.write(f"{run} has not ended; these are the steps of its journal so far\n")
    if not replayed.differences:
        return
    where = {step.row: step.where for step in steps_of(journal_dir(os.environ), run, config_dir)}
    for each in replayed.differences:
        row = f"step {each.row}" if each.row else "no step"
        at = where.get(each.row) or each.path
        sys.stderr.write(f"{row}{f' ({safe(at)})' if at else ''}: {safe(each.what)}\n")


_STEP_HEAD = ("STEP", "SECONDS", "WHERE", "WHAT", "")


def show_rows(word: str, *, as_json: bool) -> str:
    """Return the steps of a durable run, as a table or JSON for `runs show --rows`. Raises as `find_durable_run`."""
    run, about = find_durable_run(word)
    base = configured(None if about is None else about.config_dir, os.environ)[0]
    steps = steps_of(journal_dir(os.environ), run, Path(base))
    if as_json:
        return json_object(run=run, rows=[msgspec.to_builtins(step) for step in steps])
    rows = [
        (str(step.row), f"{step.seconds:.3f}", safe(step.where), safe(step.what), one_line(safe(step.text), 200))
        for step in steps
    ]
    return table([_STEP_HEAD, *rows])


def export_run(word: str, file: str, *, as_json: bool) -> str:
    """Write a durable run to a file; return the text for stdout.

    Raises:
        NotFound: there is no such run, or it has no journal.
        UsageError: the file exists, or can't be written.
    """
    run = matching_id(word, [info.run for info in stored_runs()]) or word
    if (rows := write_export(run, Path(file), os.environ)) is None:
        raise NotFound(f"{run} has no journal: there is no such run, or it is not durable")
    if as_json:
        return json_object(exported=run, rows=rows, file=file)
    return f"{safe(run)}: {rows} steps written to {safe(file)}\n"


def import_run(file: str, *, as_json: bool) -> str:
    """Insert an exported run into the journal; return the text for stdout.

    Raises:
        UsageError: the file is missing, invalid or damaged.
        Conflict: the run exists already.
    """
    moved = read_export(Path(file))
    insert_export(moved, os.environ)
    if as_json:
        return json_object(imported=moved.run, rows=len(moved.rows), over=moved.ended is not None)
    goes_on = "" if moved.ended is not None else f"; to continue it: callboard resume {safe(moved.run)}"
    return f"{safe(moved.run)}: {len(moved.rows)} steps imported{goes_on}\n"
