"""Implementation of `callboard runs`: stored runs of the state directory. Needs no server."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ....actors.front.control.logs.files import read_page
from ....actors.front.control.logs.run_logs import is_settled, list_logged_runs, order, with_interrupted
from ....actors.io.directories import state_dir
from ....actors.runs.stored_runs import interrupted, remove_stored_run
from ....actors.work.tools.changes.store import store_of
from ....protocol.control.resources import RunInfo
from ....protocol.errors import CallboardError, Conflict, NotFound
from ....protocol.outcome import ErrorReport, Outcome
from ....protocol.relative_time import age, seconds_since
from ...render.text import counted, json_object, one_line, safe, table
from ..client import matching_id
from ..figures import cells, money

_HEAD = ("RUN", "STATUS", "TARGET", "STARTED", "TOOK", "TOKENS", "COST", "PROMPT")
_DAY = 86_400
LAST = "last"
"""Alias for the newest run."""

_BETWEEN = 0.3
"""Seconds between two reads of an active run's log."""
_REASONS = {
    "cancelled": "cancelled: the run was stopped from outside, by a person, a program or the end of its process",
    "lost": "lost: the process of the run ended before the run did",
    "interrupted": "interrupted: the process of the run ended before the run did; callboard resume continues it",
}


def runs_dir() -> Path:
    """Return the directory of run logs."""
    return state_dir(os.environ) / "runs"


def stored_runs() -> list[RunInfo]:
    """Return all logged runs and durable runs that can be resumed, newest first."""
    known = {info.run: info for info in list_logged_runs(runs_dir())}
    known.update(with_interrupted(known, {run.run: run for run in interrupted(os.environ)}))
    return sorted(known.values(), key=order, reverse=True)


def find_stored_run(word: str) -> RunInfo:
    """Return the run with an id that begins with `word`; with `last` the newest run.

    Raises:
        NotFound: no run matches.
        UsageError: several runs match.
    """
    runs = stored_runs()
    if word == LAST:
        if not runs:
            raise NotFound(
                f"no run is stored in {runs_dir()}; runs at a terminal and runs of `callboard serve` are stored"
            )
        return runs[0]
    known = {info.run: info for info in runs}
    id = matching_id(word, known)
    if id is None:
        raise NotFound(f"no run '{word}' in {runs_dir()} (callboard runs lists them)")
    return known[id]


def stored_event_lines(run: str, *, after: int = 0, follow: bool = False) -> Iterator[bytes]:
    """Yield the stored events of a run in wire form; with `follow` until the run's end."""
    offset = 0
    while True:
        # checked before the read: events written until then are included
        over = not follow or find_stored_run(run).over
        page = read_page(runs_dir() / run, offset, after)
        if not page.events:
            if over:
                return
            time.sleep(_BETWEEN)
            continue
        for event in page.events:
            yield event.data
        after, offset = page.events[-1].seq, page.offset


def list_stored_runs(*, status: str | None, limit: int, as_json: bool) -> str:
    """Return the output of `runs list`."""
    runs = [run for run in stored_runs() if status in (None, run.status)]
    shown = runs[:limit]
    if as_json:
        return json_object(runs=[msgspec.to_builtins(run) for run in shown])
    if not runs:
        return "no run yet; runs at a terminal and runs of `callboard serve` are stored\n"
    text = table([_HEAD, *map(_row, shown)])
    if len(shown) < len(runs):
        sys.stderr.write(f"{len(runs) - len(shown):,} older: --limit {len(runs)} shows them all\n")
    return text


def show_run(word: str, *, as_json: bool) -> str:
    """Return the output of `runs show`."""
    run = find_stored_run(word)
    if as_json:
        return json_object(run=msgspec.to_builtins(run))
    took = _took(run)
    fields = {
        "status": status_text(run.status, run.exit_code),
        "target": run.target if run.target == run.name or not run.name else f"{run.target} ({run.name})",
        "title": run.title,
        "session": run.session,
        "model": run.model,
        "started": f"{_local(run.started)}" + (f", took {took}" if took else ""),
        "tokens": f"{run.input_tokens:,} in, {run.output_tokens:,} out" if run.input_tokens else "",
        "cost": money(run.cost, run.priced),
        "questions": counted(run.open_questions, "open question") if run.open_questions else "",
        "events": f"{'' if run.life == 1 else 'up to number '}{run.seq:,} (callboard logs {run.run})",
        "prompt": one_line(run.prompt, 200),
    }
    lines = [safe(run.run), *(f"  {name:<10} {one_line(value, 300)}" for name, value in fields.items() if value)]
    if why := reason(run.status, run.error):
        lines += ["", why]
    if run.output:
        lines += ["", safe(run.output.removesuffix("\n"))]
    return "\n".join(lines) + "\n"


def delete_runs(words: Sequence[str], *, as_json: bool) -> str:
    """Implement `runs delete`. Either all runs are deleted or none.

    Raises:
        NotFound: there is no such run.
        Conflict: a run is active.
    """
    runs = [find_stored_run(word) for word in words]
    for run in runs:
        if not run.over:
            raise Conflict(f"{run.run} is under way: callboard stop {run.run} ends it")
    return _deleted(runs, as_json=as_json)


def prune_runs(*, keep: int | None, older: float | None, as_json: bool) -> str:
    """Implement `runs prune`: delete ended runs beyond the newest `keep`, or older than `older` days."""
    over = [run for run in stored_runs() if is_settled(run)]
    last = time.time() - (older or 0) * _DAY
    doomed = [
        run
        for place, run in enumerate(over)
        if (keep is not None and place >= keep) or (older is not None and _moment(run.ended or run.started) < last)
    ]
    return _deleted(doomed, as_json=as_json)


def _deleted(runs: Sequence[RunInfo], *, as_json: bool) -> str:
    for run in runs:
        remove_stored_run(run.run)
        try:
            shutil.rmtree(runs_dir() / run.run)
        except FileNotFoundError:  # deleted by another process
            continue
        except OSError as error:
            raise CallboardError(f"{runs_dir() / run.run} can't be removed: {error.strerror or error}") from error
    store_of(os.environ).remove([run.run for run in runs])
    if as_json:
        return json_object(deleted=[run.run for run in runs])
    return f"{counted(len(runs), 'run')} deleted\n"


def _row(run: RunInfo) -> Sequence[str]:
    last = one_line(run.error.message if run.error else run.prompt, 80)
    return cells(run, (_local(run.started), _took(run)), last)


def _took(run: RunInfo) -> str:
    begun, ended = seconds_since(run.started), seconds_since(run.ended or "")
    return "" if begun is None or ended is None else age(begun - ended)


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _local(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""


def status_text(status: str, exit_code: int | None) -> str:
    """Format a status: `failed (exit code 6)`."""
    return status + (f" (exit code {exit_code})" if exit_code is not None else "")


def reason(status: str, error: ErrorReport | None) -> str:
    """Return the complete error of a run with its code and node, else the explanation of its status; "" without one."""
    if error is None:
        return _REASONS.get(status, "")
    where = f"node '{error.node}': " if error.node else ""
    return f"{error.code}: {safe(where + error.message)}"


def ending(of: RunInfo | Outcome) -> list[str]:
    """Return the last lines of a log; none for a finished or active run."""
    id = of.run if isinstance(of, RunInfo) else of.run_id
    why = reason(of.status, of.error)
    return [f"{safe(id)}: {status_text(of.status, of.exit_code)}", *why.split("\n")] if why else []
