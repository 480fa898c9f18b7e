"""What `callboard batch` does: read the tasks, check all of them, run what is not done yet, say how many are."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from .. import Limits, Root
from ..actors.runs.batch.batch import run_batch
from ..actors.runs.batch.journal import Journal
from ..actors.runs.batch.targets import Target
from ..actors.runs.batch.tasks import read_tasks
from ..supervisors import Actor
from . import given
from .acting import act
from .render.batch import BatchProgress, choose_for_batch
from .render.text import counted, safe


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags of `callboard batch`, as click read them."""

    target: str
    tasks: str
    max_parallel: int
    results: str | None
    model: str | None
    variables: tuple[str, ...]
    yes: bool
    allow: tuple[str, ...]
    roots: tuple[str, ...]
    save: str | None
    output: str
    compat: str | None
    timeout: float | None
    max_turns: int | None
    max_tokens: int | None
    max_cost: float | None
    strict: bool
    quiet: bool
    config_dir: str | None


def run_tasks(request: Request) -> int:
    """Runs the request; returns 1 if a task has failed.

    Raises:
        CallboardError: it could not begin.
        click.exceptions.Exit: it was interrupted.
    """
    file = Path(request.tasks)
    given.directories(request.roots)
    values = given.variables(request.variables)
    progress = choose_for_batch(sys.stderr, quiet=request.quiet)
    path = Path(request.results) if request.results else file.with_suffix(".results.jsonl")
    total = 0

    async def batch(me: Actor, root: Root) -> None:  # noqa: ARG001 - the runs are the root's, as those of `run` are
        nonlocal total
        tasks = await read_tasks(file)
        target = Target(
            request.target,
            root,
            variables=values,
            strict=request.strict,
            compat=request.compat,
            options={
                "model": request.model,
                "limits": _limits(request),
                "yes": request.yes,
                "allow": request.allow,
                "roots": request.roots,
                "save": request.save,
            },
        )
        name = target.check(file, tasks)
        with journal:
            left = journal.left(tasks, name)
            journal.begin()
            total = len(tasks)
            progress.begin(total, total - len(left))
            await run_batch(
                left,
                target.perform,
                journal,
                target=name,
                max_parallel=request.max_parallel,
                on_begin=progress.began,
                on_end=progress.ended,
            )

    journal = Journal(path)
    try:
        act(batch, config_dir=request.config_dir, progress=progress)
    except click.exceptions.Exit:
        sys.stderr.write("callboard: what is done is kept; the same command goes on from there\n")
        raise
    _tell(request, journal, progress, total)
    return 1 if journal.failed else 0


def _limits(request: Request) -> Limits:
    return Limits(
        timeout=request.timeout,
        max_turns=request.max_turns,
        max_tokens=request.max_tokens,
        max_cost=request.max_cost,
    )


def _tell(request: Request, journal: Journal, progress: BatchProgress, total: int) -> None:
    done = total - journal.failed
    if request.output == "json":
        wire = {
            "schema_version": 1,
            "tasks": total,
            "done": done,
            "failed": journal.failed,
            "earlier": progress.earlier,
            "results": str(journal.path),
            "failures": str(journal.failures) if journal.failed else None,
        }
        sys.stdout.write(json.dumps(wire, indent=2, ensure_ascii=False) + "\n")
        return
    before = f", {progress.earlier} of them before" if progress.earlier else ""
    sys.stdout.write(f"{counted(done, 'task')} done{before}: {safe(str(journal.path))}\n")
    if journal.failed:
        sys.stdout.write(f"{counted(journal.failed, 'task')} failed: {safe(str(journal.failures))}\n")
