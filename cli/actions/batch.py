"""Batch runs for `callboard batch`: validate all tasks, run those without a result, and count results."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from ...actors.runs.batch.batch import BatchTarget, run_batch
from ...actors.runs.batch.decider import GivenUp
from ...actors.runs.batch.journal import BatchJournal
from ...actors.runs.batch.tasks import read_tasks
from ...actors.runs.loading import RunCallbacks, durable_by
from ...actors.runs.root import Root
from ...protocol.errors import ConfigError
from ...protocol.journal import BATCH
from ...protocol.requests import RunRequest
from ...supervisors import Actor
from ..frame import act, keeping
from ..render.batch import BatchProgress, choose_for_batch
from ..render.text import counted, json_object, safe, with_node


def run_tasks(
    request: RunRequest,
    *,
    tasks: str,
    max_parallel: int,
    max_failures: int | None,
    results: str | None,
    as_json: bool,
    quiet: bool,
    durable: bool | None,
    config_dir: str | None,
) -> int:
    """Run the request for each task. Return 0; 1 if a task failed; 3 if every task would fail for the same reason.

    Raises:
        CallboardError: the batch could not start, or results can't be written any more.
        click.exceptions.Exit: a signal interrupted it.
    """
    file = Path(tasks)
    progress = choose_for_batch(sys.stderr, quiet=quiet)
    journal = BatchJournal(Path(results) if results else file.with_suffix(".results.jsonl"))

    async def batch(me: Actor, root: Root) -> GivenUp | None:
        rows = await read_tasks(file)
        async with keeping(root, root.settings.keep_requests is True, progress.note) as recorder:
            keeps = durable_by(durable, root.settings)
            target = BatchTarget(request, root, RunCallbacks(recorder=recorder, durable=keeps, by=BATCH))
            # Before `with journal`, which creates the file of results: a batch that can't start leaves no file.
            name = await target.check(file, rows)
            for problem in (*root.problems, *target.warnings):
                progress.note(str(problem))
            with journal:
                left = journal.remaining_tasks(rows, name)
                await target.resume_earlier(journal.path, name, [task for task in rows if task.id in journal.done])
                # Last, since it deletes the file of failures: `remaining_tasks` may still refuse the batch.
                journal.begin()
                progress.begin(len(rows), len(rows) - len(left))
                return await run_batch(
                    me,
                    left,
                    target.perform,
                    journal,
                    target=name,
                    max_parallel=max_parallel,
                    max_failures=max_failures,
                    on_begin=progress.began,
                    on_end=progress.ended,
                    mark_over=target.mark_over,
                )
        raise AssertionError("unreachable: nothing swallows errors")

    try:
        given_up = act(batch, config_dir=config_dir, progress=progress, traced=True)
    except click.exceptions.Exit:
        sys.stderr.write("callboard: completed tasks are stored; the same command continues from there\n")
        if as_json:
            # -o json promises an object whatever happens (see `..failure`).
            _print_progress(as_json, journal, progress, None)
        raise
    _print_progress(as_json, journal, progress, given_up)
    if given_up is not None and given_up.shared:
        return ConfigError.exit_code
    return 1 if journal.failed else 0


def _print_progress(as_json: bool, journal: BatchJournal, progress: BatchProgress, given_up: GivenUp | None) -> None:
    if given_up is not None:
        sys.stderr.write(_why(given_up, journal.failed, progress.remaining))
    if as_json:
        wire = json_object(
            tasks=progress.total,
            done=progress.done,
            failed=journal.failed,
            left=progress.remaining,
            earlier=progress.earlier,
            results=str(journal.path),
            failures=str(journal.failures) if journal.failed else None,
            error=None if given_up is None else msgspec.to_builtins(given_up.error),
        )
        sys.stdout.write(wire)
        return
    before = f", {progress.earlier} of them earlier" if progress.earlier else ""
    sys.stdout.write(f"{counted(progress.done, 'task')} done{before}: {safe(str(journal.path))}\n")
    if journal.failed:
        sys.stdout.write(f"{counted(journal.failed, 'task')} failed: {safe(str(journal.failures))}\n")
    if progress.remaining:
        sys.stdout.write(f"{counted(progress.remaining, 'task')} not begun\n")


def _why(given_up: GivenUp, failed: int, left: int) -> str:
    lines = [safe(with_node(given_up.error.message, given_up.error.node))]
    rest = f"; {counted(left, 'task')} not begun" if left else ""
    if given_up.shared:
        lines.append(f"stopped, since every task would fail like this{rest}")
    else:
        lines.append(f"stopped after {counted(failed, 'failure')}{rest}; the same command continues from there")
    return "".join(f"callboard: {line}\n" for line in lines)
