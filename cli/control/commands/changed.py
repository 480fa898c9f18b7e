"""Implementation of `callboard runs diff` and `callboard runs restore`: file changes of runs. Needs no server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import trio

from ....actors.front.control.run_records import redacted_changes
from ....actors.runs.root import Root
from ....actors.work.tools.changes.run_changes import changes_of, restore, store_of
from ....protocol.control.resources import ChangedFile, Restored
from ....protocol.errors import CallboardError, Conflict, NobodyToAsk, NotFound
from ....protocol.kernel.questions import Question
from ....protocol.settings import Settings
from ...frame import person_at_terminal
from ...render.text import colours, counted, json_object, paint, safe
from ...render.wrap import diff_lines
from ..client import matching_id
from .stored_runs import LAST, find_stored_run, stored_runs

_SHOWN = 12
"""Maximum number of files in the confirmation question."""

_DONE = {"content": "restored", "removed": "removed", "returned": "restored"}


def show_changes(word: str | None, *, as_json: bool) -> str:
    """Return the output of `runs diff`.

    Raises:
        NotFound: there is no such run.
        UsageError: several runs match.
    """
    run = _run_of(word)
    try:
        root = Root()
        files = redacted_changes(run, root.settings, root.vault)
    except CallboardError:  # an invalid config.yaml must not hide the changes
        files = redacted_changes(run, Settings(), None)
    if as_json:
        return json_object(run=run, files=msgspec.to_builtins(files))
    if not files:
        return f"{safe(run)} has changed no files by its file tools, or all changes were undone\n"
    coloured = colours(sys.stdout)
    lines = [f"{safe(run)}: {_sum(files)}"]
    for file in files:
        title = _line(file)
        lines += ["", paint(title, "title") if coloured else title]
        if file.note:
            note = f"({safe(file.note)})"
            lines.append(paint(note, "dim") if coloured else note)
        if file.diff:
            lines += diff_lines(file.diff, coloured=coloured)
    return "\n".join(lines) + "\n"


def restore_changes(word: str, *, yes: bool, no_input: bool, as_json: bool) -> int:
    """Implement `runs restore`: return 0 if all files are restored or none has changed, else 1.

    The exit code is also 1 if the user declines. With `yes`, the function asks for no confirmation.

    Raises:
        NotFound: there is no such run.
        Conflict: the run is active.
        NobodyToAsk: there is no terminal for the confirmation.
    """
    run = _run_of(word)
    if any(info.run == run and not info.over for info in stored_runs()):
        raise Conflict(f"{run} is under way, and may change files: callboard stop {run} ends it")
    store = store_of(os.environ)
    files = changes_of(store, [run])
    if not files:
        sys.stdout.write(
            json_object(restored=[], left=[]) if as_json else f"all files are as they were before {safe(run)}\n"
        )
        return 0
    if not yes and not _agreed(run, files, no_input=no_input):
        sys.stderr.write("nothing was restored\n")
        return 1
    report = trio.run(trio.to_thread.run_sync, partial(restore, store, [run]))
    sys.stdout.write(json_object(**msgspec.to_builtins(report)) if as_json else _report_text(report))
    return 1 if report.left else 0


def _run_of(word: str | None) -> str:
    """Return the id of the requested run, among runs with a log and runs with file changes."""
    store = store_of(os.environ)
    there = store.runs()
    if word is None:
        changes = {run: found[-1].at for run in there if (found := store.changes(run))}
        if not changes:
            raise NotFound(f"no run has changed files yet (there is no record in {store.directory})")
        return max(changes, key=lambda run: changes[run])
    if word == LAST:
        return find_stored_run(LAST).run
    run = matching_id(word, dict.fromkeys([*(info.run for info in stored_runs()), *there]))
    if run is None:
        raise NotFound(f"no run '{word}' (callboard runs lists those that have a log)")
    return run


def _agreed(run: str, files: Sequence[ChangedFile], *, no_input: bool) -> bool:
    if not person_at_terminal(no_input=no_input):
        raise NobodyToAsk(
            f"restoring the files of {run} needs a confirmation, and no user is present: repeat the command with --yes"
        )
    from ...render.dialog import Dialog

    rows = [f"  {_line(file)}" for file in files[:_SHOWN]]
    rows += [f"  and {len(files) - _SHOWN} more"] if len(files) > _SHOWN else []
    text = "\n".join([f"Restore the files that {run} has changed? Later changes by others stay.", *rows])
    try:
        return Dialog(Question(id="", actor="", kind="confirm", text=text, default="no")).run() == "yes"
    except EOFError:
        return False


def _sum(files: Sequence[ChangedFile]) -> str:
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    return f"{counted(len(files), 'file')}, +{added:,} -{removed:,} lines"


def _line(file: ChangedFile) -> str:
    """Format a change: `changed src/a.py +3 -1`."""
    slash = "/" if file.kind == "directory" else ""
    lines = f" +{file.added} -{file.removed}" if file.added is not None else ""
    return f"{file.how} {_relative_path(file.path)}{slash}{lines}"


def _report_text(report: Restored) -> str:
    lines = [f"{_DONE[each.done]} {_relative_path(each.path)}" for each in report.restored]
    lines += [f"left {_relative_path(each.path)}: {safe(each.why)}" for each in report.left]
    return "".join(f"{line}\n" for line in lines) or "all files are as they were before the run\n"


def _relative_path(path: str) -> str:
    """Return the path relative to the working directory, if it is below it."""
    whole = Path(path)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return safe(path)
    return safe(str(whole.relative_to(here))) if whole.is_relative_to(here) and whole != here else safe(path)
