"""Going on with durable runs whose process was killed; `kept` is how they are kept.

A run goes on with the definition that it began with: its file is in its first row. What else was read for it (agents
that it calls, scripts, tool files) is read as it is today.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ...protocol.errors import Conflict, NotFound
from ...protocol.events import Event, RunResumed
from ...protocol.journal import FOLD, About, Began, decode_about
from ...protocol.outcome import Outcome
from ...protocol.repeats import OnUnknown
from ...protocol.version import VERSION
from ..io.directories import journal_dir
from ..io.imports import imported
from ..work.journal.of_run import CannotGoOn, OfRun, RunPast, past_of
from ..work.tools.registry import ToolRegistry
from ..work.tools.tool import Tool
from .begin import begin
from .execution import Execution
from .finding import Found
from .loading import Hooks
from .root import Root
from .target import Loaded, read

if TYPE_CHECKING:
    from ...supervisors.journal.journal import RunJournal


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose process was killed, and that may go on.

    Attributes:
        life: how many processes have played it.
        damage: why it can't be read, or "".
    """

    run: str
    began: float
    life: int
    rows: int
    about: About | None
    damage: str = ""


def interrupted(environ: Mapping[str, str]) -> list[Interrupted]:
    """The runs that may go on, the oldest first. Blocking; needs no root."""
    from ...supervisors.journal.reading import kept_runs
    from ...supervisors.journal.row import State

    found = []
    for kept in kept_runs(journal_dir(environ)):
        if kept.state is not State.INTERRUPTED:
            continue
        about = None
        damage = kept.damage
        try:
            about = decode_about(kept.about) if kept.about else None
        except msgspec.MsgspecError as error:
            damage = damage or f"it is of another version of callboard: {error}"
        found.append(
            Interrupted(run=kept.run, began=kept.began, life=kept.life, rows=kept.rows, about=about, damage=damage)
        )
    return found


async def resume(
    root: Root,
    run: str,
    *,
    on_event: Callable[[Event], None] | None = None,
    with_changes: bool = False,
    tools: Sequence[Tool] = (),
    on_unknown: OnUnknown | None = None,
) -> Outcome:
    """Go on with a run whose process was killed, to its end.

    Args:
        with_changes: with its file as it is today.
        tools: the Python functions that it was begun with, as tools.
        on_unknown: what is to be done about calls that were under way, in place of what was said when it began.

    Returns and raises as `callboard.run` does, and:
        NotFound: there is none.
        Conflict: it is over, or goes on elsewhere.
        CannotGoOn, Damaged: it can't go on; it stays as it is.
    """
    await imported(".supervisors.journal.claiming", ".supervisors.journal.journal")
    from ...supervisors.journal.claiming import claim
    from ...supervisors.journal.reading import read_run
    from ...supervisors.journal.row import State

    found = await trio.to_thread.run_sync(read_run, journal_dir(os.environ), run)
    if found is None:
        raise NotFound(f"no durable run '{run}' is kept; `callboard runs --interrupted` lists those that may go on")
    if found.kept.state is not State.INTERRUPTED:
        raise Conflict(f"{run} {'is over' if found.kept.state is State.OVER else 'goes on in another process'}")
    past = await trio.to_thread.run_sync(past_of, found.rows)
    if past.spoilt:
        raise CannotGoOn(f"{run} can't go on: {past.spoilt}")
    if past.began.fold != FOLD:
        raise CannotGoOn(f"{run} can't go on: callboard {past.began.version} played it by other rules")
    _check_functions(run, past.began, tools)
    journal = await root.journal()
    claimed = await claim(journal, found.kept.sign, [run])
    if not claimed:
        raise Conflict(f"{run} goes on in another process")
    ((rows, now),) = claimed
    if now.kept.rows != found.kept.rows:
        past = await trio.to_thread.run_sync(past_of, now.rows)
    life = now.kept.life + 1
    resumed = RunResumed(life=life, rows=len(now.rows))

    def say_so(kept: OfRun) -> None:
        kept.lives(life, VERSION)

    return await go_on(
        root,
        rows,
        found.kept.about,
        past,
        resumed,
        say_so,
        on_event=on_event,
        with_changes=with_changes,
        tools=tools,
        on_unknown=on_unknown,
    )


async def go_on(
    root: Root,
    rows: RunJournal,
    about: bytes,
    past: RunPast,
    resumed: RunResumed,
    begins: Callable[[OfRun], None],
    *,
    on_event: Callable[[Event], None] | None = None,
    with_changes: bool = False,
    tools: Sequence[Tool] = (),
    on_unknown: OnUnknown | None = None,
) -> Outcome:
    """Play a run from its past to its end.

    Args:
        rows: where what it does is kept; about: what is said of it.
        begins: writes the first rows of this life, once nothing stands in the way of the run.
    """
    began = past.began
    hooks = await root.loader.threaded(partial(_hooks, began, root, on_event, tools, with_changes=with_changes))
    request = began.request
    if on_unknown is not None:
        request = msgspec.structs.replace(request, on_unknown=on_unknown)
    kept = OfRun(rows, about, past, lambda: root.kernel.stopping)
    try:
        execution = await root.loader.threaded(partial(begin, request, hooks, root))
    except BaseException:  # it stays what it was: interrupted, since this process does not go on with it
        rows.stop()
        raise
    begins(kept)
    execution.kept = kept
    execution.resumed = resumed
    _count_on(execution, past)
    return await execution.run(on_event)


def _count_on(execution: Execution, past: RunPast) -> None:
    """What earlier lives have used of the run's limits, and of the answers that were prepared for it."""
    meter = execution.context.meter
    for reply in past.replies:
        meter.restore(reply.model, reply.usage, reply.cost)
    meter.tool_calls += past.tool_calls
    if execution.answers is not None:
        for node in past.prepared:
            execution.answers.drop(node)


def _check_functions(run: str, began: Began, tools: Sequence[Tool]) -> None:
    missing = set(began.functions) - {tool.name for tool in tools}
    if missing:
        named = ", ".join(sorted(missing))
        raise CannotGoOn(
            f"{run} was begun by a Python program, with functions as tools ({named}): that program goes on with it, by "
            f"callboard.resume({run!r}, tools=[...])"
        )


def _hooks(
    began: Began,
    root: Root,
    on_event: Callable[[Event], None] | None,
    tools: Sequence[Tool],
    *,
    with_changes: bool,
) -> Hooks:
    hooks = Hooks(on_event=on_event, owner=began.owner, durable=True, resumed=True, tools=tuple(tools))
    if began.definition is None or with_changes:
        return hooks
    return msgspec.structs.replace(hooks, loaded=loaded_of(began, root.config_dir, root.registry))


def loaded_of(began: Began, config_dir: Path, registry: ToolRegistry | None = None) -> Loaded | None:
    """The agent that a run began with; None if its file is not kept.

    Raises:
        InvalidFile: it has errors, seen from here.
    """
    request, definition = began.request, began.definition
    if definition is None:
        return None
    return read(
        Found(
            dialect=definition.dialect,
            file=definition.file,
            directory=Path(definition.directory),
            text=definition.text,
            parts=definition.parts,
        ),
        config_dir,
        strict=request.strict,
        compat=request.compat,
        functions=began.functions,
        registry=registry,
        variables=request.variables,
    )


__all__ = ["CannotGoOn", "Interrupted", "go_on", "interrupted", "loaded_of", "resume"]
