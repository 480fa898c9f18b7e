"""What `callboard runs export` and `import` do."""

from __future__ import annotations

import os
from pathlib import Path

from ..actors.runs.moving import read_file, take_in, write_file
from ..protocol.errors import NotFound
from .control.client import meant
from .control.commands.kept import kept_runs
from .render.text import json_object, safe


def export_run(word: str, file: str, *, as_json: bool) -> str:
    """The text for stdout.

    Raises:
        NotFound: there is no such run, or nothing is kept of it to go on with.
        UsageError: the file is there, or can't be written.
    """
    run = meant(word, [info.run for info in kept_runs()]) or word
    if (rows := write_file(run, Path(file), os.environ)) is None:
        raise NotFound(f"nothing is kept of {run} to go on with: there is no such run, or it is not durable")
    if as_json:
        return json_object(exported=run, rows=rows, file=file)
    return f"{safe(run)}: {rows} rows written to {safe(file)}\n"


def import_run(file: str, *, as_json: bool) -> str:
    """The text for stdout.

    Raises:
        UsageError: it is no such file, or is damaged.
        Conflict: the run is there already.
    """
    moved = read_file(Path(file))
    take_in(moved, os.environ)
    if as_json:
        return json_object(imported=moved.run, rows=len(moved.rows), over=moved.ended is not None)
    goes_on = "" if moved.ended is not None else f"; callboard resume {safe(moved.run)} goes on with it"
    return f"{safe(moved.run)}: {len(moved.rows)} rows taken in{goes_on}\n"
