"""Forks: another run begins with the first rows of a run that is over, interrupted, or under way in any process.

    fork = await read_fork(root, "run-7f3a01bc", "plan#2")
    fork.again                      # external effects of the run after that row, which the fork repeats
    outcome = await fork.play(root, ForkChanges(state={"topic": "cats"}))

The rows are copied (large values are stored once in the journal, however many runs refer to them). The new run is
recovered from them under its own id, as a run whose process was killed.

Changes (`ForkChanges`) are rows after the copied ones. If the run had completed nothing by then, its request is changed
and everything starts again. Otherwise the change is a message to the decider of the run's own graph or agent, recorded
like all its messages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.errors import CallboardError, JournalError, NotFound, UsageError
from ....protocol.events import Event, RunResumed
from ....protocol.journal import (
    FOLD,
    About,
    Answered,
    Asked,
    Began,
    Kept,
    MessageRow,
    Noted,
    decode_about,
    encode_about,
)
from ....protocol.kernel.questions import Answer, understood
from ....protocol.messages import ConversationBegun, GraphBegun, PersonSays, StateSet, WorkDone
from ....protocol.outcome import Outcome
from ....protocol.requests import AnswerText
from ....supervisors.journal.row import StoredRow
from ...engine.graph.compat import MODES
from ...engine.graph.compile import compile_graph
from ...io.directories import journal_dir
from ...io.imports import imported
from ...io.tenancy import environ
from ...work.journal.directory import copy, moved
from ...work.journal.fork_prefix import (
    ForkPrefix,
    Placed,
    began,
    done_again,
    open_questions,
    part_ids,
    prefix,
    read,
    written,
)
from ...work.journal.run_journal import CannotGoOn, JournaledRun, RunPast, is_of_files, past_of
from ..begin import new_id
from ..durable import resume_from_rows
from ..execution import EventCallback
from ..first_row import PROMPT, check_id
from ..loading import NO_HOOKS, RunCallbacks
from ..pinned_files import loaded_of
from ..root import Root, check_new_root, check_no_settings, current
from ..target import GraphAgent
from .run_steps import Entered, RowStep, entered, steps

if TYPE_CHECKING:
    from ....supervisors.journal.row import Past

At = int | str
"""Position at which a run is cut: after the row of this number, before a visit of a node (`plan#2`), or at a question
(its id).
"""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Run and a position in it at which it can be forked.

    Attributes:
        run: id of the run.
        rows: all its rows.
        at: number of rows that the fork begins with.
        about: summary of the run.
        again: descriptions of the external effects after that position, finished or not, which the fork repeats.
    """

    run: str
    rows: list[Placed]
    at: int
    about: bytes
    again: tuple[str, ...]

    async def play(self, root: Root, changes: ForkChanges | None = None, hooks: RunCallbacks = NO_HOOKS) -> Outcome:
        """Execute the fork to its end; `hooks` has its listeners. Returns and raises as `callboard.run` does, and:

        Conflict: a durable run has the id of the changes.
        UsageError: the run does not support such a change at this row.
        CannotGoOn: the run cannot be continued from there.
        JournalError: the journal cannot be written.
        """
        changes = changes or ForkChanges()
        run = changes.id or new_id()
        await imported(".supervisors.journal.journal", ".supervisors.journal.store")
        if changes.id is not None and not hooks.by:
            await check_id(root, changes.id)
        rows, past = await trio.to_thread.run_sync(self._local_rows, run, changes)
        journal = await root.journal()
        about = self.about_it(past)
        told = encode_about(about)
        resumed = RunResumed(life=1, rows=len(rows), forked_from=self.run, forked_at=self.at)

        def begins(kept: JournaledRun) -> None:
            for row in rows:
                kept.rows.append(row.actor, row.data)

        return await resume_from_rows(
            root,
            journal.begin(run, told),
            about,
            past,
            resumed,
            begins,
            hooks,
            with_changes=changes.with_changes,
        )

    def begins(self, run: str, changes: ForkChanges) -> tuple[list[StoredRow], RunPast]:
        """Return the first rows of the fork, with `run` as its id and with the changes, and the history in them.

        Any process can execute the fork from these rows. Raises as `play` does.
        """
        rows = written(changed(prefix(self.rows, self.at, run), changes))
        return rows, past_of(rows)

    def about_it(self, past: RunPast) -> About:
        """Return the summary of the fork before it begins; `past` is its recovered history."""
        prompt = past.began.request.prompt[:PROMPT]
        return msgspec.structs.replace(
            decode_about(self.about), prompt=prompt, spoilt="", rows=0, since=0, left=False, dormant=False
        )

    def _local_rows(self, run: str, changes: ForkChanges) -> tuple[list[StoredRow], RunPast]:
        """Return `begins` with copies of the run's files, which are then in the fork's directory. Blocking."""
        rows = changed(prefix(self.rows, self.at, run), changes)
        first = began(rows)
        attach = tuple(moved(file, self.run, run) for file in first.request.attach)
        first = msgspec.structs.replace(first, request=msgspec.structs.replace(first.request, attach=attach))
        rows[0] = ("", first)
        try:
            copy(self.run, run)
        except OSError as error:
            raise JournalError(f"the files of {self.run} can't be copied: {error}") from error
        encoded = written(rows)
        return encoded, past_of(encoded)


class RunRead(msgspec.Struct, frozen=True, kw_only=True):
    """Run that was read from a journal.

    Attributes:
        run: id of the run.
        rows: all its rows.
        about: summary of the run.
        nodes: entered nodes of its own graph.
        parts: external effects of its remote children, as descriptions by the ids of the children.
    """

    run: str
    rows: list[Placed]
    about: bytes
    nodes: list[Entered]
    parts: Mapping[str, Sequence[str]] = {}

    def steps(self) -> list[RowStep]:
        """Return its rows as steps."""
        return steps(self.rows, self.nodes)

    def fork(self, at: At) -> Fork:
        """Return a fork at this position, which has not begun.

        Raises:
            NotFound: the run has no such position.
        """
        place = cut(self.rows, at, self.nodes)
        again = done_behind(self.rows, place, self.nodes)
        # Parts that began after the cut begin again in the fork, so their external effects are repeated.
        kept = part_ids(self.rows, place) if self.parts else set()
        again += tuple(text for part, done in self.parts.items() if part not in kept for text in done)
        return Fork(run=self.run, rows=self.rows, at=place, about=self.about, again=again)


async def fork(
    run: str,
    *,
    at: At,
    model: str | None = None,
    prompt: str | None = None,
    state: Mapping[str, Any] | None = None,
    answers: Mapping[str, AnswerText] | None = None,
    with_changes: bool = False,
    id: str | None = None,
    on_event: Callable[[Event], None] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    root: Root | None = None,
) -> Outcome:
    """Begin a new run with the first rows of a durable run, and execute it to its end.

    External effects of the run after that position are repeated. The original run is unchanged; it may be over,
    interrupted, or under way in any process.

    Args:
        run: id of the run.
        at: after the row of this number, before this visit of a node of its graph (`plan#2`), or at the question of
            this id; `callboard runs show RUN --rows` lists them.
        model: default model, `client:model`.
        prompt: new prompt of the run if it had completed nothing by then. Otherwise a graph's new `initial_prompt`, or
            a message of the user to an agent.
        state: sets keys of the state of a graph; nodes that were under way start again.
        answers: answers to questions that were open at that position, by question id or by the id of the asking node.
        with_changes: use the run's file as it is today.
        id: id of the new run.
        on_event, config_dir, root: see `run`.

    Returns and raises as `run` does, and:
        NotFound: the run, or the position in it, does not exist.
        CannotGoOn, Damaged: it cannot be read, or cannot be continued from there.
    """
    changes = ForkChanges(
        model=model, prompt=prompt, state=state or {}, answers=answers or {}, with_changes=with_changes, id=id
    )
    callback = None if on_event is None else EventCallback(on_event)

    async def under(root: Root) -> Outcome:
        hooks = NO_HOOKS if callback is None else RunCallbacks(on_event=callback.under(root.kernel))
        return await (await read_fork(root, run, at)).play(root, changes, hooks)

    root = root or current.get()
    if root is not None:
        check_no_settings("callboard.fork", config_dir)
        outcome = await root.call(partial(under, root))
    else:
        check_new_root("callboard.fork")
        async with Root(config_dir=config_dir) as own:
            outcome = await under(own)
    if callback is not None:
        callback.check()
    return outcome


async def read_fork(root: Root, run: str, at: At) -> Fork:
    """Return a fork of this run at this position, which has not begun. Raises as `find_fork` does."""
    if root.journal_in_use is not None:  # The run may belong to this process, with rows that are not on disk yet.
        await root.journal_in_use.barrier()
    await imported(".supervisors.journal.reading")
    return await root.loader.threaded(partial(find_fork, journal_dir(environ()), run, at, root.config_dir))


def find_fork(journals: Path, run: str, at: At, config_dir: Path) -> Fork:
    """Return a fork of this run at this position, without a root. Blocking.

    Raises:
        NotFound: the run is not stored, or has no such position.
        Damaged, CannotGoOn: it cannot be read.
    """
    return read_run(journals, run, config_dir).fork(at)


def read_run(journals: Path, run: str, config_dir: Path) -> RunRead:
    """Read a run stored on this machine; another process may execute it. Blocking. Raises as `find_fork` does."""
    rows, about = stored_rows(journals, run)
    return RunRead(run=run, rows=rows, about=about, nodes=nodes_of(rows, config_dir))


def durable_runs(environ: Mapping[str, str]) -> dict[str, About | None]:
    """Return all stored durable runs, oldest first, with their summaries, or None for unreadable ones. Blocking."""
    from ....supervisors.journal.reading import stored_runs

    found: dict[str, About | None] = {}
    for kept in stored_runs(journal_dir(environ)):
        if not kept.damage:
            found[kept.run] = None
            with contextlib.suppress(msgspec.MsgspecError):  # written by another version
                found[kept.run] = decode_about(kept.about)
    return found


def stored_rows(journals: Path, run: str) -> tuple[list[Placed], bytes]:
    """Return the rows of a run, and its summary. Blocking; another process may execute the run.

    Raises: as `find_fork`.
    """
    from ....supervisors.journal import reading

    past = reading.read_run(journals, run)
    if past is None:
        raise NotFound(f"there is no durable run '{run}' (to make a run durable: callboard run --durable)")
    return rows_in(past), past.kept.about


def rows_in(past: Past) -> list[Placed]:
    """Decode the rows of a run, from any store.

    Raises:
        CannotGoOn: they cannot be read, or have another `FOLD`.
    """
    rows = read(past.rows)
    if began(rows).fold != FOLD:
        raise CannotGoOn(
            f"{past.kept.run} can't be read by this version: callboard "
            f"{began(rows).version} executed it by different rules"
        )
    return rows


def nodes_of(rows: list[Placed], config_dir: Path, first: Began | None = None) -> list[Entered]:
    """Return the entered nodes of the run's own graph; none if the run has no graph, or if its file cannot be read
    here.

    Args:
        first: its first row with paths of this machine; by default the row as it is.
    """
    first = first or began(rows)
    request = first.request
    try:
        loaded = loaded_of(first, config_dir)
        if not isinstance(loaded, GraphAgent):
            return []
        compat = request.compat if request.compat in MODES else None
        plan = compile_graph(loaded.graph, loaded.directory, compat=compat, values={}, compiled={})
        return entered(rows, plan)
    except CallboardError:
        return []


def steps_of(journals: Path, run: str, config_dir: Path) -> list[RowStep]:
    """Return the rows of a run as steps. Blocking. Raises as `find_fork` does."""
    return read_run(journals, run, config_dir).steps()


def cut(rows: list[Placed], at: At, nodes: list[Entered]) -> int:
    """Return the number of rows before this position.

    Raises:
        NotFound: the run has no such position.
    """
    word = str(at).strip()
    if word.isascii() and word.isdigit():
        if not 1 <= int(word) <= len(rows):
            raise NotFound(f"there is no row {word}: the run has rows 1 to {len(rows)}")
        return int(word)
    for number, (_, row) in enumerate(rows, 1):
        if isinstance(row, Asked) and row.question.id == word:
            return number
    node, _, visit = word.partition("#")
    found = {f"{each.node}#{each.visit}": each.row for each in nodes}
    if (wanted := f"{node}#{visit or 1}") in found:
        return found[wanted]
    known = ", ".join([*found, *(row.question.id for _, row in rows if isinstance(row, Asked))]) or "none"
    raise NotFound(f"the run has no row, visit of a node or question '{word}'; its names are: {known}")


def done_behind(rows: list[Placed], at: int, nodes: Sequence[Entered] = ()) -> tuple[str, ...]:
    """Return descriptions of the external effects after row number `at`, finished or not: a fork repeats them."""
    named = steps(rows, nodes)
    again = (named[number - 1] for number in done_again(rows, at))
    return tuple(step.text if step.where in ("", step.text) else f"{step.where}: {step.text}" for step in again)


BY = "fork"
"""Author of the messages and answers that a fork adds."""

PROMPT_KEY = "initial_prompt"
"""Key of a graph's state with the run's prompt."""


class ForkChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a fork.

    Attributes:
        model: default model, `client:model`.
        prompt: new prompt of the run if it had completed nothing by then. Otherwise a graph's new `initial_prompt`, or
            a message of the user to an agent.
        state: new values of keys of a graph's state; nodes that were under way start again with them.
        answers: answers to open questions, by question id or by the id of the node that asked.
        with_changes: use the run's file as it is today.
        id: id of the new run.
    """

    model: str | None = None
    prompt: str | None = None
    state: Mapping[str, Any] = {}
    answers: Mapping[str, AnswerText] = {}
    with_changes: bool = False
    id: str | None = None


def changed(begins: ForkPrefix, changes: ForkChanges) -> list[Placed]:
    """Return the rows that a fork begins with.

    Raises:
        UsageError: the run does not support such a change at this row.
    """
    rows = list(begins.rows)
    if changes.model is not None:
        rows = _with_request(rows, model=changes.model)
    if changes.prompt is not None or changes.state:
        rows = _with_other_words(rows, changes.prompt, dict(changes.state))
    return rows + _answers(rows, begins.ids, changes) if changes.answers else rows


def _with_request(rows: list[Placed], **values: Any) -> list[Placed]:
    first = began(rows)
    request = msgspec.structs.replace(first.request, **values)
    return [("", msgspec.structs.replace(first, request=request)), *rows[1:]]


def _with_other_words(rows: list[Placed], prompt: str | None, state: dict[str, Any]) -> list[Placed]:
    request = began(rows).request
    if not any(map(_is_done, rows)):  # Results that were noted for the old prompt are of no use.
        words = {} if prompt is None else {"prompt": prompt}
        return _with_request(rows, state={**request.state, **state}, **words)[:1]
    begun = next((row.message for path, row in rows if not path and isinstance(row, MessageRow)), None)
    if isinstance(begun, GraphBegun):
        if prompt is not None:
            rows, state = _with_request(rows, prompt=prompt), {PROMPT_KEY: prompt, **state}
        return [*rows, _row_with_message(rows, StateSet(state=state))]
    if state:
        raise UsageError("the state can be changed only in a run of a graph")
    if isinstance(begun, ConversationBegun):
        return [*rows, _row_with_message(rows, PersonSays(text=prompt or "", by=BY))]
    raise UsageError("the prompt can be changed only where the run has done nothing yet: fork it at row 1")


def _is_done(placed: Placed) -> bool:
    """Return whether this row records that work has been completed."""
    row = placed[1]
    if isinstance(row, Noted) and is_of_files(row.name):
        return False
    return isinstance(row, Noted | Answered | Asked) or (
        isinstance(row, MessageRow) and isinstance(row.message, WorkDone)
    )


def _row_with_message(rows: list[Placed], message: Kept) -> Placed:
    return "", MessageRow(rows[-1][1].at, message)


def _answers(rows: list[Placed], ids: Mapping[str, str], changes: ForkChanges) -> list[Placed]:
    asked = open_questions(rows)
    by_node = {question.node: id for id, (_, question) in asked.items() if question.node}
    told: list[Placed] = []
    for word, value in changes.answers.items():
        id = word if word in asked else ids.get(word, by_node.get(word, ""))
        if id not in asked:
            old = {new: before for before, new in ids.items()}
            there = ", ".join(old.get(new, new) for new in asked) or "none"
            raise UsageError(f"no question '{word}' is open at that row (open there: {there})")
        path, question = asked[id]
        if changes.state:
            raise UsageError(
                "with a changed state, work in progress starts again and asks its "
                "questions again: change the state or answer questions, not both"
            )
        if question.secret:
            raise UsageError(f"the answer to '{word}' is a secret, so it can't be given in advance")
        told.append((path, Answered(rows[-1][1].at, Answer(question=id, value=understood(question, value), by=BY))))
    return told
