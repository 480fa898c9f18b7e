"""What `callboard runs` does: what runs have left in the state directory. Needs no server."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ....actors.front.control.logs.reading import read_page
from ....actors.front.control.logs.runs import is_settled, look, order, with_interrupted
from ....actors.io.directories import state_dir
from ....actors.runs.interrupted import interrupted
from ....actors.runs.keeping import remove_kept
from ....actors.work.tools.changes.store import store_of
from ....protocol.ages import age, seconds_since
from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError, Conflict, NotFound
from ....protocol.outcome import ErrorReport, Outcome
from ...render.text import counted, json_object, one_line, safe, table
from ..client import meant
from ..figures import cells, money

_HEAD = ("RUN", "STATUS", "TARGET", "STARTED", "TOOK", "TOKENS", "COST", "PROMPT")
_DAY = 86_400
LAST = "last"
"""Stands for the newest run."""

_BETWEEN = 0.3
"""Seconds from one look at the log of a run under way to the next."""
_REASONS = {
    "cancelled": "cancelled: the run was stopped from outside, by a person, a program or the end of its process",
    "lost": "lost: the process of the run ended before the run did",
    "interrupted": "interrupted: the process of the run ended before the run did; callboard resume goes on with it",
}


def runs_dir() -> Path:
    """Where the logs of runs are."""
    return state_dir(os.environ) / "runs"


def kept_runs() -> list[RunInfo]:
    """All runs there are logs of, and durable ones that may go on, newest first."""
    known = {info.run: info for info in look(runs_dir())}
    known.update(with_interrupted(known, {run.run: run for run in interrupted(os.environ)}))
    return sorted(known.values(), key=order, reverse=True)


def kept_run(word: str) -> RunInfo:
    """The run whose id begins so; with `last` the newest.

    Raises:
        NotFound: there is none.
        UsageError: there are several.
    """
    runs = kept_runs()
    if word == LAST:
        if not runs:
            raise NotFound(f"no run is kept in {runs_dir()}; those at a terminal are, and those of `callboard serve`")
        return runs[0]
    known = {info.run: info for info in runs}
    id = meant(word, known)
    if id is None:
        raise NotFound(f"no run '{word}' in {runs_dir()} (callboard runs lists them)")
    return known[id]


def kept_lines(run: str, *, after: int = 0, follow: bool = False) -> Iterator[bytes]:
    """The events of a run in their wire form, as far as they are on disk; with `follow` until the run is over."""
    offset = 0
    while True:
        over = not follow or kept_run(run).over  # looked at first: what was written until then is read
        page = read_page(runs_dir() / run, offset, after)
        if not page.events:
            if over:
                return
            time.sleep(_BETWEEN)
            continue
        for event in page.events:
            yield event.data
        after, offset = page.events[-1].seq, page.offset


def list_kept(*, status: str | None, limit: int, as_json: bool) -> str:
    """The text of `runs list`."""
    runs = [run for run in kept_runs() if status in (None, run.status)]
    shown = runs[:limit]
    if as_json:
        return json_object(runs=[msgspec.to_builtins(run) for run in shown])
    if not runs:
        return "no run yet; those at a terminal are kept, and those of `callboard serve`\n"
    text = table([_HEAD, *map(_row, shown)])
    if len(shown) < len(runs):
        sys.stderr.write(f"{len(runs) - len(shown):,} older: --limit {len(runs)} shows them all\n")
    return text


def show_kept(word: str, *, as_json: bool) -> str:
    """The text of `runs show`."""
    run = kept_run(word)
    if as_json:
        return json_object(run=msgspec.to_builtins(run))
    took = _took(run)
    fields = {
        "status": standing(run.status, run.exit_code),
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


def delete_kept(words: Sequence[str], *, as_json: bool) -> str:
    """What `runs delete` does. None is deleted unless all can be.

    Raises:
        NotFound: there is no such run.
        Conflict: it is under way.
    """
    runs = [kept_run(word) for word in words]
    for run in runs:
        if not run.over:
            raise Conflict(f"{run.run} is under way: callboard stop {run.run} ends it")
    return _deleted(runs, as_json=as_json)


def prune_kept(*, keep: int | None, older: float | None, as_json: bool) -> str:
    """What `runs prune` does: of those that are over, removes what is beyond the newest `keep`, or older in days."""
    over = [run for run in kept_runs() if is_settled(run)]
    last = time.time() - (older or 0) * _DAY
    doomed = [
        run
        for place, run in enumerate(over)
        if (keep is not None and place >= keep) or (older is not None and _moment(run.ended or run.started) < last)
    ]
    return _deleted(doomed, as_json=as_json)


def _deleted(runs: Sequence[RunInfo], *, as_json: bool) -> str:
    for run in runs:
        remove_kept(run.run)
        try:
            shutil.rmtree(runs_dir() / run.run)
        except FileNotFoundError:  # another has removed it
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


def standing(status: str, exit_code: int | None) -> str:
    """`failed (exit code 6)`."""
    return status + (f" (exit code {exit_code})" if exit_code is not None else "")


def reason(status: str, error: ErrorReport | None) -> str:
    """Why it is not done: the error, whole, with its code and node; "" of a run that is done or under way."""
    if error is None:
        return _REASONS.get(status, "")
    where = f"node '{error.node}': " if error.node else ""
    return f"{error.code}: {safe(where + error.message)}"


def ending(of: RunInfo | Outcome) -> list[str]:
    """The lines that a log ends with; none for a run that is done or under way."""
    id = of.run if isinstance(of, RunInfo) else of.run_id
    why = reason(of.status, of.error)
    return [f"{safe(id)}: {standing(of.status, of.exit_code)}", *why.split("\n")] if why else []
