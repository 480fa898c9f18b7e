"""Durable runs for `callboard runs`: steps (`show --rows`), export to a file, and import.

`..control.commands.stored_runs` implements the commands that use the records of all runs.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import journal_dir
from ...actors.runs.rerun.fork import steps_of
from ...actors.runs.stored_runs import insert_export, read_export, write_export
from ...protocol.errors import NotFound
from ..control.client import matching_id
from ..control.commands.stored_runs import stored_runs
from ..render.text import json_object, one_line, safe, table
from .fork import find_durable_run

_HEAD = ("ROW", "SECONDS", "WHERE", "WHAT", "")


def show_rows(word: str, *, as_json: bool) -> str:
    """Return the output of `runs show --rows`."""
    run, about = find_durable_run(word)
    base = configured(None if about is None else about.config_dir, os.environ)[0]
    steps = steps_of(journal_dir(os.environ), run, Path(base))
    if as_json:
        return json_object(run=run, rows=[msgspec.to_builtins(step) for step in steps])
    rows = [
        (str(step.row), f"{step.seconds:.3f}", safe(step.where), safe(step.what), one_line(safe(step.text), 200))
        for step in steps
    ]
    return table([_HEAD, *rows])


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
    return f"{safe(run)}: {rows} rows written to {safe(file)}\n"


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
    return f"{safe(moved.run)}: {len(moved.rows)} rows imported{goes_on}\n"
