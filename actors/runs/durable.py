"""Recovery of durable runs whose process was killed. `first_row` begins to journal runs, `stored_runs` lists them.

A run is resumed with the files that it began with (`pinned_files`), and a turn of a session in its session
(`session_run`).

The order of operations is the contract:

1. `take` reads and checks the run before it claims it. A run that cannot be resumed stays as it is.
2. Of two processes that claim the same run, one gets `Conflict`.
3. `resume_from_rows` prepares the agent completely before it writes a row. If preparation fails, no row of this
   incarnation is written, and the next attempt starts from the same journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.errors import CallboardError, Conflict, NotFound
from ...protocol.events import Event, RunResumed
from ...protocol.interrupted_calls import OnUnknown
from ...protocol.journal import BATCH, FOLD, About, Began, decode_about, encode_about
from ...protocol.messages import ConversationBegun
from ...protocol.outcome import Outcome
from ...protocol.version import VERSION
from ..io.directories import journal_dir
from ..io.imports import imported
from ..io.tenancy import environ
from ..work.journal.pending_answers import first_answers, open_questions
from ..work.journal.run_journal import DEFINITION, CannotGoOn, JournaledRun, RunPast, past_of
from .begin import begin
from .execution import Execution
from .first_row import leaves
from .loading import NO_HOOKS, RunCallbacks
from .pinned_files import called_in, check_files, definition_of, loaded_of
from .root import Root
from .session_run import Act, heard_in, round_off
from .stored_runs import InterruptedRun, interrupted
from .target import LoopAgent
from .trace_context import conversation

if TYPE_CHECKING:
    from ...protocol.chat import Turn
    from ...protocol.kernel.questions import Question
    from ...protocol.settings import Settings
    from ...supervisors.journal.journal import RunJournal
    from ...supervisors.journal.row import Past, StoredRunRecord
    from ..work.tools.tool import Tool
    from .sessions.turn import StoredTurn as SessionTurn


class TakenRun(msgspec.Struct, frozen=True, eq=False):
    """Interrupted run that this process has claimed.

    Attributes:
        rows: journal to which its further rows are appended.
        past: its recovered history.
        about: its summary.
        life: number of processes that have executed it, this one included.
        count: number of its rows.
        asked: the questions that a dormant run waits for.
        wakes: True if this process executed it before, and it has been dormant since.
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
        """Run id."""
        return self.rows.run

    @property
    def began(self) -> Began:
        """First row of the run."""
        return self.past.began

    @property
    def earlier_turns(self) -> tuple[Turn, ...] | None:
        """For a turn of a session, the conversation when it began; None if it was killed before its agent read it."""
        session, top = self.began.session, self.past.paths.get("")
        first = top.told[0].message if top is not None and top.told else None
        if session is None or not isinstance(first, ConversationBegun):
            return None
        return tuple(first.turns[: session.before])


async def take(root: Root, run: str, *, by: str = "") -> TakenRun:
    """Claim an interrupted run, so that only this process may resume it. `by` is `BATCH` if a batch claims its own
    task.

    Raises:
        NotFound: no such run is stored.
        Conflict: the run is over, another process executes it, or it is a task of a batch.
        CannotGoOn, Damaged: it cannot be resumed; it stays as it is.
    """
    await _imported()
    from ...supervisors.journal.claiming import claim
    from ...supervisors.journal.reading import read_run
    from ...supervisors.journal.row import State

    own = root.journal_in_use
    if own is not None:
        await own.do(lambda _: None)  # the end of a run that has just ended here is written
    found = await trio.to_thread.run_sync(read_run, journal_dir(environ()), run)
    if found is None:
        raise NotFound(
            f"there is no durable run '{run}'; `callboard runs --interrupted` lists the runs that can be resumed"
        )
    if found.kept.state is State.OVER:
        raise Conflict(f"{run} has already ended, so there is nothing to resume")
    if found.kept.state is State.PLAYED:
        here = own is not None and found.kept.sign == own.sign
        raise Conflict(f"{run} is already being executed by {'this' if here else 'another'} process")
    if by != BATCH and decode_about(found.kept.about).by == BATCH:  # Only the batch can store the result of its task.
        raise Conflict(f"{run} is a task of a batch: run the same `callboard batch` command again to continue it")
    check_goes_on(run, await trio.to_thread.run_sync(past_of, found.rows))
    claimed = await claim(await root.journal(), found.kept.sign, [run], _taken_over)
    # Another process claimed the run between the read and the claim.
    if not claimed:
        raise Conflict(f"{run} is already being executed by another process")
    return await trio.to_thread.run_sync(taken_of, *claimed[0])


async def take_several(root: Root, runs: Collection[InterruptedRun]) -> tuple[list[TakenRun], dict[str, Exception]]:
    """Claim several runs of one dead process; return the claimed runs, and an error for each that was refused."""
    await _imported()
    from ...supervisors.journal.claiming import claim_several

    wanted = {run.run for run in runs}
    (sign,) = {run.sign for run in runs}
    claimed, refused = await claim_several(await root.journal(), sign, wanted, _taken_over)
    taken: list[TakenRun] = []
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


async def taken_again(root: Root, run: str) -> TakenRun:
    """Reopen a run that this process executed before, and that has been dormant since (`JournaledRun.sleep`).

    Raises:
        NotFound: its journal was removed.
        CannotGoOn, Damaged, RunClaimed: it cannot be resumed.
        JournalUnread: the journal cannot be read at the moment.
    """
    from ...supervisors.journal.reading import read_run

    rows = await (await root.journal()).reopen(run)
    past = await trio.to_thread.run_sync(read_run, journal_dir(environ()), run)
    if past is None:
        raise NotFound(f"{run} can't be resumed: its journal was removed")
    taken = await trio.to_thread.run_sync(taken_of, rows, past)
    about = msgspec.structs.replace(decode_about(past.kept.about), left=True, dormant=True)
    return msgspec.structs.replace(taken, about=about, life=past.kept.life, wakes=True)


async def _imported() -> None:
    await imported(".supervisors.journal.claiming", ".supervisors.journal.journal")


def _taken_over(kept: StoredRunRecord) -> bytes:
    return encode_about(decode_about(kept.about).taken_over(kept.life + 1, kept.rows))


def taken_of(rows: RunJournal, past: Past) -> TakenRun:
    """Build the claimed run.

    Args:
        rows: journal to which its further rows are appended.
        past: its rows and its record as they were before the claim.

    Raises:
        CannotGoOn: it cannot be resumed.
    """
    kept = past.kept
    about = decode_about(kept.about).taken_over(kept.life + 1, kept.rows)
    told = past_of(past.rows)
    told.pending_answers = first_answers(past.letters)
    asked: tuple[Question, ...] = ()
    # Otherwise an answer that the run waits for has arrived, and it is woken at once.
    if about.dormant and told.pending_answers.keys() <= told.shared.answered.keys():
        asked = tuple(each.question for each in open_questions(past))
    return TakenRun(rows, told, about, kept.life + 1, len(past.rows), asked)


def check_goes_on(run: str, past: RunPast) -> None:
    """Raise `CannotGoOn` if the run has recorded that it cannot continue, or if its rows have another `FOLD`."""
    if past.spoilt:
        raise CannotGoOn(f"{run} can't be resumed: {past.spoilt}")
    if past.began.fold != FOLD:
        raise CannotGoOn(
            f"{run} can't be resumed by this version: callboard {past.began.version} executed it by different rules"
        )


async def resume(
    root: Root,
    run: str,
    hooks: RunCallbacks = NO_HOOKS,
    *,
    on_event: Callable[[Event], None] | None = None,
    with_changes: bool = False,
    strict: bool = False,
    after: int = 0,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
    tools: Sequence[Tool] = (),
    on_unknown: OnUnknown | None = None,
    answers: list[Any] | dict[str, Any] | None = None,
) -> Outcome:
    """Resume an interrupted run and execute it to its end; if it is a turn of a session, it runs in that session.

    Args:
        hooks, with_changes, strict, after, on_unknown, answers: see `play`.
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
            root,
            taken,
            hooks,
            with_changes=with_changes,
            strict=strict,
            after=after,
            on_unknown=on_unknown,
            answers=answers,
        )
    outcome: Outcome | None = None
    turn: SessionTurn | None = None
    try:
        async with resumed_turn(root, taken, hooks, wait=wait, on_wait=on_wait) as act:
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
                answers=answers,
            )
            await round_off(root, act, compress=False)
    # The run has succeeded and only the session's file could not be written: report that in the outcome, do not lose
    # the answer.
    except CallboardError as error:
        if outcome is None or turn is None or turn.unkept is not error:
            raise
        outcome.save_error = f"the answer could not be saved in session '{turn.stored.label}': {error}"
        outcome.exit_code = outcome.exit_code or 1
    return outcome


@asynccontextmanager
async def resumed_turn(
    root: Root,
    taken: TakenRun,
    hooks: RunCallbacks = NO_HOOKS,
    *,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
) -> AsyncIterator[Act]:
    """Open the session turn that an earlier process began, as `session_run.turn_in_session` opens a new one.

    Raises:
        CannotGoOn: its session was deleted.
        Conflict: another process works with the session.
    """
    session, before, begun = taken.began.session, conversation.get(), False
    assert session is not None
    try:
        async with root.sessions.turn(None, session.id, agent=session.agent, wait=wait, on_wait=on_wait) as turn:
            begun = True
            turn.goes_on(taken.id, taken.earlier_turns)
            conversation.set(session.id)
            results = root.sessions.store.path(session.id, session.agent).parent / "results"
            heard = msgspec.structs.replace(heard_in(turn, hooks), results=results)
            request = msgspec.structs.replace(taken.began.request, history=turn.history)
            yield Act(turn=turn, request=request, hooks=heard)
    except NotFound as error:
        # An error from inside the block belongs to the run. Only an error of opening means a deleted session.
        if begun:
            raise
        raise CannotGoOn(f"{taken.id} can't be resumed: it is a turn of a session that was deleted") from error
    finally:
        conversation.set(before)


async def play(
    root: Root,
    taken: TakenRun,
    hooks: RunCallbacks = NO_HOOKS,
    *,
    with_changes: bool = False,
    strict: bool = False,
    history: tuple[Turn, ...] = (),
    on_unknown: OnUnknown | None = None,
    after: int = 0,
    answers: list[Any] | dict[str, Any] | None = None,
) -> Outcome:
    """Execute a claimed run from its journal to its end.

    Args:
        after: number of the last of its events that are stored.
        history: for a turn of a session, the conversation before it.
        hooks: the listeners of this process, and the functions that the run began with.
        with_changes: use its file, and the files of agents that it calls, as they are today.
        strict: refuse the run if scripts, tool files or files of functions have changed; otherwise they cause warnings.
        on_unknown: policy for calls with an unknown outcome, in place of the one that the run began with.
        answers: for questions from now on, in place of answers that were prepared when the run began.

    Returns and raises as `callboard.run` does. A run that fails to begin stays interrupted when this process ends.
    """
    request = taken.began.request
    if history:
        request = msgspec.structs.replace(request, history=history)
    if on_unknown is not None:
        request = msgspec.structs.replace(request, on_unknown=on_unknown)
    recorded = taken.past
    if answers is not None:
        request = msgspec.structs.replace(request, answers=answers)
        # `prepared` lists the uses of the old answers. `count_on` must not drop new answers for them.
        recorded = msgspec.structs.replace(recorded, prepared=[])
    resumed = RunResumed(life=taken.life, rows=taken.count, after=after)
    # No event of the run is stored. If it is a fork taken from a queue, this event is the first to report that.
    if not after:
        of, at = taken.began.forked_from, taken.began.forked_at
        resumed = msgspec.structs.replace(resumed, forked_from=of, forked_at=at)

    def lives(kept: JournaledRun) -> None:
        if taken.about.dormant:
            kept.wakes()
        # A run that was dormant in this process continues its incarnation, and the first one has no predecessor.
        # Neither needs a `Lived` row.
        if not taken.wakes and taken.life > 1:
            kept.lives(taken.life, VERSION)

    past = msgspec.structs.replace(recorded, began=msgspec.structs.replace(taken.began, request=request))
    return await resume_from_rows(
        root, taken.rows, taken.about, past, resumed, lives, hooks, with_changes=with_changes, strict=strict
    )


async def resume_from_rows(
    root: Root,
    rows: RunJournal,
    about: About,
    past: RunPast,
    resumed: RunResumed,
    begins: Callable[[JournaledRun], None],
    hooks: RunCallbacks,
    *,
    with_changes: bool = False,
    strict: bool = False,
) -> Outcome:
    """Execute a run from its recovered history to its end.

    Args:
        rows: journal for its further rows.
        about: its summary.
        begins: writes the first rows of this incarnation, after every check has passed.
        hooks, with_changes, strict: see `play`.
    """
    if with_changes:
        past.forget_files()
    kept = JournaledRun(rows, about, past, leaves(root, hooks))
    began = past.began
    _check_functions(rows.run, began, hooks)
    hooks = await root.loader.threaded(partial(_hooks, began, root, hooks, with_changes=with_changes))
    execution = await root.loader.threaded(partial(begin, began.request, hooks, root))
    if not with_changes:
        files = (began.definition, *called_in(kept).values())
        strict = strict or began.request.strict
        execution.problems += await root.loader.threaded(partial(check_files, rows.run, files, strict=strict))
    # Everything above may raise. From the next line on, this incarnation is part of the journal.
    begins(kept)
    if with_changes:
        today = await root.loader.threaded(partial(definition_of, began.request, hooks, root, execution.prepared))
        kept.note_once(DEFINITION, [] if today is None else [today])
    execution.keep(kept, hooks.holds)
    execution.resumed = resumed
    count_on(execution, past)
    return await execution.run(hooks.on_event)


def count_on(execution: Execution, past: RunPast) -> None:
    """Charge the run's limits with the usage of earlier incarnations, and drop prepared answers that they used."""
    meter = execution.context.meter
    for reply in past.replies:
        meter.restore(reply.model, reply.usage, reply.cost)
    for part in past.parts:
        meter.restore_part(part)
    meter.tool_calls += past.tool_calls
    if execution.answers is not None:
        for asker in past.prepared:
            execution.answers.drop(asker)


def _check_functions(run: str, began: Began, hooks: RunCallbacks) -> None:
    is_lost = began.definition is None and began.agent is None and isinstance(began.request.target, str)
    # Neither a file nor an agent is stored, so the target was a graph made in Python. No name leads to it.
    if is_lost and not began.request.in_role and hooks.loaded is None:
        raise CannotGoOn(
            f"{run} was started by a Python program with a graph made in Python: resume it in that "
            f"program with callboard.resume({run!r}, agent=graph)"
        )
    own = hooks.loaded.functions if isinstance(hooks.loaded, LoopAgent) else ()
    missing = set(began.functions) - {tool.name for tool in (*hooks.tools, *own)}
    if missing:
        named = ", ".join(sorted(missing))
        raise CannotGoOn(
            f"{run} was started by a Python program with functions as tools ({named}): resume it in "
            f"that program with callboard.resume({run!r}, tools=[...]), or with agent=... if the "
            "functions belong to an agent made in Python"
        )


def _hooks(began: Began, root: Root, hooks: RunCallbacks, *, with_changes: bool) -> RunCallbacks:
    settings = _with(root.settings, began.settings) if began.settings else hooks.settings
    hooks = msgspec.structs.replace(hooks, owner=began.owner, durable=True, resumed=True, settings=settings)
    if (with_changes and began.definition is not None) or (hooks.loaded is not None and began.definition is None):
        return hooks
    return msgspec.structs.replace(hooks, loaded=loaded_of(began, root.config_dir, root.registry))


def _with(settings: Settings, told: dict[str, Any]) -> Settings:
    """Return the settings with the run's own values replaced, as far as this version has such keys."""
    from ...protocol.decoding import convert
    from ...protocol.settings import Settings

    kinds = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    values = {name: convert(value, kinds[name]) for name, value in told.items() if name in kinds}
    return msgspec.structs.replace(settings, **values)


__all__ = [
    "CannotGoOn",
    "InterruptedRun",
    "TakenRun",
    "check_goes_on",
    "count_on",
    "interrupted",
    "play",
    "resume",
    "resume_from_rows",
    "resumed_turn",
    "take",
    "take_several",
    "taken_again",
    "taken_of",
]
