"""Going on with durable runs whose process was killed; `kept` is how they are kept, `interrupted` lists them.

A run goes on with the files that it began with (`as_begun`), and a turn of a session in its session (`in_session`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.errors import CallboardError, Conflict, NotFound
from ...protocol.events import Event, RunResumed
from ...protocol.journal import BATCH, FOLD, About, Began, decode_about, encode_about
from ...protocol.messages import ConversationBegun
from ...protocol.outcome import Outcome
from ...protocol.repeats import OnUnknown
from ...protocol.version import VERSION
from ..io.directories import journal_dir
from ..io.imports import imported
from ..work.journal.left import first_answers, open_questions
from ..work.journal.of_run import DEFINITION, CannotGoOn, OfRun, RunPast, past_of
from .as_begun import called_in, check_files, definition_of, loaded_of
from .begin import begin
from .execution import Execution
from .in_session import Act, heard_in, round_off
from .interrupted import Interrupted, interrupted
from .kept import leaves
from .loading import NO_HOOKS, Hooks
from .root import Root
from .trace_context import conversation

if TYPE_CHECKING:
    from ...protocol.chat import Turn
    from ...protocol.kernel.questions import Question
    from ...protocol.settings import Settings
    from ...supervisors.journal.journal import RunJournal
    from ...supervisors.journal.row import Kept, Past
    from ..work.tools.tool import Tool
    from .sessions.turn import Turn as SessionTurn


class Taken(msgspec.Struct, frozen=True, eq=False):
    """A run that was interrupted, and is ours from now on.

    Attributes:
        rows: where its further rows go.
        past: what it has done so far.
        about: what is said of it.
        life: how many processes have played it, this one included.
        count: how many rows it has.
        asked: of one that is dormant, what it waits for.
        wakes: this process has played it before, and it was dormant since.
    """

    rows: RunJournal
    past: RunPast
    about: About
    life: int
    count: int
    asked: tuple[Question, ...] = ()
    wakes: bool = False

    @property
    def id(self) -> str:
        """Of the run."""
        return self.rows.run

    @property
    def began(self) -> Began:
        """Its first row."""
        return self.past.began

    @property
    def said_before(self) -> tuple[Turn, ...] | None:
        """Of a turn of a session: what was said there when it began; None if it was killed before its agent read it."""
        session, top = self.began.session, self.past.paths.get("")
        first = top.told[0].message if top is not None and top.told else None
        if session is None or not isinstance(first, ConversationBegun):
            return None
        return tuple(first.turns[: session.before])


async def take(root: Root, run: str, *, by: str = "") -> Taken:
    """Have a run that was interrupted, so that this process alone may go on with it; `by` a batch, if it is a task.

    Raises:
        NotFound: there is none.
        Conflict: it is over, or goes on elsewhere.
        CannotGoOn, Damaged: it can't go on; it stays as it is.
    """
    await _imported()
    from ...supervisors.journal.claiming import claim
    from ...supervisors.journal.reading import read_run
    from ...supervisors.journal.row import State

    found = await trio.to_thread.run_sync(read_run, journal_dir(os.environ), run)
    if found is None:
        raise NotFound(f"no durable run '{run}' is kept; `callboard runs --interrupted` lists those that may go on")
    if found.kept.state is not State.INTERRUPTED:
        raise Conflict(f"{run} {'is over' if found.kept.state is State.OVER else 'goes on in another process'}")
    if by != BATCH and decode_about(found.kept.about).by == BATCH:  # which keeps what comes of its tasks
        raise Conflict(f"{run} is a task of a batch: the same `callboard batch` goes on with it")
    check_goes_on(run, await trio.to_thread.run_sync(past_of, found.rows))
    claimed = await claim(await root.journal(), found.kept.sign, [run], _taken_over)
    if not claimed:
        raise Conflict(f"{run} goes on in another process")
    return await trio.to_thread.run_sync(taken_of, *claimed[0])


async def take_several(root: Root, runs: Collection[Interrupted]) -> tuple[list[Taken], dict[str, Exception]]:
    """As `take`, of several whose process was the same: those that go on, and why others don't."""
    await _imported()
    from ...supervisors.journal.claiming import claim_several

    wanted = {run.run for run in runs}
    (sign,) = {run.sign for run in runs}
    claimed, refused = await claim_several(await root.journal(), sign, wanted, _taken_over)
    taken: list[Taken] = []
    failed: dict[str, Exception] = dict(refused)
    for rows, past in claimed:
        try:
            each = await trio.to_thread.run_sync(taken_of, rows, past)
            check_goes_on(rows.run, each.past)
        except CannotGoOn as error:
            failed[rows.run] = error
        else:
            taken.append(each)
    return taken, failed


async def taken_again(root: Root, run: str) -> Taken:
    """A run that this process has played before, and that was dormant since (`OfRun.sleep`).

    Raises:
        NotFound: nothing is kept of it any more.
        CannotGoOn, Damaged, RunClaimed: it can't go on.
        JournalUnread: not now.
    """
    from ...supervisors.journal.reading import read_run

    rows = await (await root.journal()).again(run)
    past = await trio.to_thread.run_sync(read_run, journal_dir(os.environ), run)
    if past is None:
        raise NotFound(f"nothing is kept of {run} any more")
    taken = await trio.to_thread.run_sync(taken_of, rows, past)
    about = msgspec.structs.replace(decode_about(past.kept.about), left=True, dormant=True)
    return msgspec.structs.replace(taken, about=about, life=past.kept.life, wakes=True)


async def _imported() -> None:
    await imported(".supervisors.journal.claiming", ".supervisors.journal.journal")


def _taken_over(kept: Kept) -> bytes:
    return encode_about(decode_about(kept.about).taken_over(kept.life + 1, kept.rows))


def taken_of(rows: RunJournal, past: Past) -> Taken:
    """A run that is ours from now on.

    Args:
        rows: where its further rows go.
        past: what is kept of it, as it was before it was ours.

    Raises:
        CannotGoOn: it can't go on.
    """
    kept = past.kept
    about = decode_about(kept.about).taken_over(kept.life + 1, kept.rows)
    told = past_of(past.rows)
    told.left = first_answers(past.letters)
    asked: tuple[Question, ...] = ()
    if about.dormant and told.left.keys() <= told.crossing.answered.keys():  # else an answer has come that it waits for
        asked = tuple(each.question for each in open_questions(past))
    return Taken(rows, told, about, kept.life + 1, len(past.rows), asked)


def check_goes_on(run: str, past: RunPast) -> None:
    """Raise `CannotGoOn` if it can't."""
    if past.spoilt:
        raise CannotGoOn(f"{run} can't go on: {past.spoilt}")
    if past.began.fold != FOLD:
        raise CannotGoOn(f"{run} can't go on: callboard {past.began.version} played it by other rules")


async def resume(
    root: Root,
    run: str,
    hooks: Hooks = NO_HOOKS,
    *,
    on_event: Callable[[Event], None] | None = None,
    with_changes: bool = False,
    strict: bool = False,
    after: int = 0,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
    tools: Sequence[Tool] = (),
    on_unknown: OnUnknown | None = None,
) -> Outcome:
    """Go on with a run that was interrupted, to its end; a turn of a session in that session.

    Args:
        hooks, with_changes, strict, after, on_unknown: see `play`.
        tools: the Python functions that it began with, as tools.
        wait, on_wait: see `Sessions.turn`.

    Returns and raises as `take` and `play` do.
    """
    if on_event is not None:
        hooks = msgspec.structs.replace(hooks, on_event=on_event)
    if tools:
        hooks = msgspec.structs.replace(hooks, tools=tuple(tools))
    taken = await take(root, run)
    if taken.began.session is None:
        return await play(
            root, taken, hooks, with_changes=with_changes, strict=strict, after=after, on_unknown=on_unknown
        )
    outcome: Outcome | None = None
    turn: SessionTurn | None = None
    try:
        async with on_stage_again(root, taken, hooks, wait=wait, on_wait=on_wait) as act:
            turn = act.turn
            history = act.turn.history
            outcome = await play(
                root,
                taken,
                act.hooks,
                with_changes=with_changes,
                strict=strict,
                history=history,
                after=after,
                on_unknown=on_unknown,
            )
            await round_off(root, act, compress=False)
    except CallboardError as error:
        if outcome is None or turn is None or turn.unkept is not error:
            raise
        outcome.unsaved = f"the answer was not kept in session '{turn.stored.label}': {error}"
        outcome.exit_code = outcome.exit_code or 1
    return outcome


@asynccontextmanager
async def on_stage_again(
    root: Root,
    taken: Taken,
    hooks: Hooks = NO_HOOKS,
    *,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
) -> AsyncIterator[Act]:
    """As `in_session.on_stage`, for a turn that an earlier process has begun.

    Raises:
        CannotGoOn: its session was deleted.
        Conflict: another process works with the session.
    """
    session, before, begun = taken.began.session, conversation.get(), False
    assert session is not None
    try:
        async with root.sessions.turn(None, session.id, agent=session.agent, wait=wait, on_wait=on_wait) as turn:
            begun = True
            turn.goes_on(taken.id, taken.said_before)
            conversation.set(session.id)
            results = root.sessions.store.path(session.id, session.agent).parent / "results"
            heard = msgspec.structs.replace(heard_in(turn, hooks), results=results)
            request = msgspec.structs.replace(taken.began.request, history=turn.history)
            yield Act(turn=turn, request=request, hooks=heard)
    except NotFound as error:
        if begun:
            raise
        raise CannotGoOn(f"{taken.id} can't go on: the session that it is a turn of was deleted") from error
    finally:
        conversation.set(before)


async def play(
    root: Root,
    taken: Taken,
    hooks: Hooks = NO_HOOKS,
    *,
    with_changes: bool = False,
    strict: bool = False,
    history: tuple[Turn, ...] = (),
    on_unknown: OnUnknown | None = None,
    after: int = 0,
) -> Outcome:
    """Go on with a run to its end.

    Args:
        after: the number of the last of its events that are kept.
        history: of a turn of a session: what was said there before.
        hooks: what listens to it and keeps things beside it in this process, and the functions that it began with.
        with_changes: with its file, and those of agents that it calls, as they are today.
        strict: scripts, tool files and files of functions that have changed since refuse it; else they are warnings.
        on_unknown: what is to be done about calls that were under way, in place of what was said when it began.

    Returns and raises as `callboard.run` does. A run that could not begin stays interrupted when this process ends.
    """
    request = taken.began.request
    if history:
        request = msgspec.structs.replace(request, history=history)
    if on_unknown is not None:
        request = msgspec.structs.replace(request, on_unknown=on_unknown)
    resumed = RunResumed(life=taken.life, rows=taken.count, after=after)
    if not after:  # no event of it is kept: if it is a fork that came from a queue, this is the first to say so
        of, at = taken.began.forked_from, taken.began.forked_at
        resumed = msgspec.structs.replace(resumed, forked_from=of, forked_at=at)

    def lives(kept: OfRun) -> None:
        if taken.about.dormant:
            kept.wakes()
        if not taken.wakes and taken.life > 1:
            kept.lives(taken.life, VERSION)

    past = msgspec.structs.replace(taken.past, began=msgspec.structs.replace(taken.began, request=request))
    return await go_on(
        root, taken.rows, taken.about, past, resumed, lives, hooks, with_changes=with_changes, strict=strict
    )


async def go_on(
    root: Root,
    rows: RunJournal,
    about: About,
    past: RunPast,
    resumed: RunResumed,
    begins: Callable[[OfRun], None],
    hooks: Hooks,
    *,
    with_changes: bool = False,
    strict: bool = False,
) -> Outcome:
    """Play a run from its past to its end.

    Args:
        rows: where what it does is kept; about: what is said of it.
        begins: writes the first rows of this life, once nothing stands in the way of the run.
        hooks, with_changes, strict: see `play`.
    """
    if with_changes:
        past.forget_files()
    kept = OfRun(rows, about, past, leaves(root, hooks))
    began = past.began
    _check_functions(rows.run, began, hooks)
    hooks = await root.loader.threaded(partial(_hooks, began, root, hooks, with_changes=with_changes))
    execution = await root.loader.threaded(partial(begin, began.request, hooks, root))
    if not with_changes:
        files = (began.definition, *called_in(kept).values())
        strict = strict or began.request.strict
        execution.problems += await root.loader.threaded(partial(check_files, rows.run, files, strict=strict))
    begins(kept)
    if with_changes:
        today = await root.loader.threaded(partial(definition_of, began.request, hooks, root, execution.prepared))
        kept.note_once(DEFINITION, [] if today is None else [today])
    execution.keep(kept, hooks.holds)
    execution.resumed = resumed
    count_on(execution, past)
    return await execution.run(hooks.on_event)


def count_on(execution: Execution, past: RunPast) -> None:
    """Count what earlier lives have used of the run's limits, and of the answers that were prepared for it."""
    meter = execution.context.meter
    for reply in past.replies:
        meter.restore(reply.model, reply.usage, reply.cost)
    for part in past.parts:
        meter.restore_part(part)
    meter.tool_calls += past.tool_calls
    if execution.answers is not None:
        for node in past.prepared:
            execution.answers.drop(node)


def _check_functions(run: str, began: Began, hooks: Hooks) -> None:
    missing = set(began.functions) - {tool.name for tool in hooks.tools}
    if missing:
        named = ", ".join(sorted(missing))
        raise CannotGoOn(
            f"{run} was begun by a Python program, with functions as tools ({named}): that program goes on with it, by "
            f"callboard.resume({run!r}, tools=[...])"
        )


def _hooks(began: Began, root: Root, hooks: Hooks, *, with_changes: bool) -> Hooks:
    settings = _with(root.settings, began.settings) if began.settings else hooks.settings
    hooks = msgspec.structs.replace(hooks, owner=began.owner, durable=True, resumed=True, settings=settings)
    if with_changes and began.definition is not None:
        return hooks
    return msgspec.structs.replace(hooks, loaded=loaded_of(began, root.config_dir, root.registry))


def _with(settings: Settings, told: dict[str, Any]) -> Settings:
    """The settings, with the values that a run had of its own, as far as this version knows them."""
    from ...protocol.decoding import convert
    from ...protocol.settings import Settings

    kinds = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    values = {name: convert(value, kinds[name]) for name, value in told.items() if name in kinds}
    return msgspec.structs.replace(settings, **values)


__all__ = [
    "CannotGoOn",
    "Interrupted",
    "Taken",
    "check_goes_on",
    "count_on",
    "go_on",
    "interrupted",
    "on_stage_again",
    "play",
    "resume",
    "take",
    "take_several",
    "taken_again",
    "taken_of",
]
