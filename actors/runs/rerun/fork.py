"""Forks: another run begins with the first rows of one that is over, was interrupted, or goes on in any process.

    fork = await read_fork(root, "run-7f3a01bc", "plan#2")
    fork.again                      # what the run has done to the world behind that row, and the fork does anew
    outcome = await fork.play(root, Changes(state={"topic": "cats"}))

The rows are copied (what is large lies once in the journal, however many runs have it), and the new run goes on from
them under an id of its own, as one whose process was killed goes on. What is to be different is a row behind them.
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

from ....protocol.errors import CallboardError, JournalError, NotFound
from ....protocol.events import Event, RunResumed
from ....protocol.journal import FOLD, About, Asked, Began, decode_about, encode_about
from ....protocol.outcome import Outcome
from ....protocol.requests import AnswerText
from ....supervisors.journal.row import Row
from ...engine.graph.compat import MODES
from ...engine.graph.compile import compile_graph
from ...io.directories import journal_dir
from ...io.imports import imported
from ...work.journal.directory import copy, moved
from ...work.journal.of_run import CannotGoOn, OfRun, RunPast, past_of
from ...work.journal.prefix import Placed, began, done_again, parts_kept, prefix, read, written
from ..as_begun import loaded_of
from ..begin import new_id
from ..durable import go_on
from ..execution import EventCallback
from ..kept import PROMPT
from ..loading import NO_HOOKS, Hooks
from ..root import Root, check_new_root, current
from ..target import GraphAgent
from .changes import Changes, changed
from .steps import Entered, Step, entered, steps

if TYPE_CHECKING:
    from ....supervisors.journal.row import Past

At = int | str
"""Where a run is cut: behind the row of this number, before a visit of a node (`plan#2`), or at a question (its id)."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was read, and a place in it.

    Attributes:
        run: its id.
        rows: all of them.
        at: how many of them the fork begins with.
        about: what is said of the run.
        again: what it has done to the world behind there, or was about to do, in words: it is done again.
    """

    run: str
    rows: list[Placed]
    at: int
    about: bytes
    again: tuple[str, ...]

    async def play(self, root: Root, changes: Changes | None = None, hooks: Hooks = NO_HOOKS) -> Outcome:
        """Play the fork to its end; `hooks` are what listens to it. Returns and raises as `callboard.run` does, and:

        UsageError: there is nothing that could be changed so.
        CannotGoOn: the run can't go on from there.
        JournalError: nothing can be kept here.
        """
        changes = changes or Changes()
        run = changes.id or new_id()
        rows, past = await trio.to_thread.run_sync(self._rows_here, run, changes)
        await imported(".supervisors.journal.journal", ".supervisors.journal.store")
        journal = await root.journal()
        about = self.about_it(past)
        told = encode_about(about)
        resumed = RunResumed(life=1, rows=len(rows), forked_from=self.run, forked_at=self.at)

        def begins(kept: OfRun) -> None:
            for row in rows:
                kept.rows.append(row.actor, row.data)

        return await go_on(
            root,
            journal.begin(run, told),
            about,
            past,
            resumed,
            begins,
            hooks,
            with_changes=changes.with_changes,
        )

    def begins(self, run: str, changes: Changes) -> tuple[list[Row], RunPast]:
        """What the fork of this id begins with, in whichever process it is played. Raises as `play`."""
        rows = written(changed(prefix(self.rows, self.at, run), changes))
        return rows, past_of(rows)

    def about_it(self, past: RunPast) -> About:
        """What is said of the fork, which has not begun; `past` is what it begins with."""
        prompt = past.began.request.prompt[:PROMPT]
        return msgspec.structs.replace(
            decode_about(self.about), prompt=prompt, spoilt="", rows=0, since=0, left=False, dormant=False
        )

    def _rows_here(self, run: str, changes: Changes) -> tuple[list[Row], RunPast]:
        """As `begins`, with the files of the run, which are there then. Blocking."""
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
    """A run that was read.

    Attributes:
        run: its id.
        rows: all of them.
        about: what is said of it.
        nodes: those of its own graph that were begun.
        parts: what other workers have done to the world that played parts of it, in words, by the ids of the parts.
    """

    run: str
    rows: list[Placed]
    about: bytes
    nodes: list[Entered]
    parts: Mapping[str, Sequence[str]] = {}

    def steps(self) -> list[Step]:
        """Its rows as steps."""
        return steps(self.rows, self.nodes)

    def fork(self, at: At) -> Fork:
        """A fork of it at this place, which is not begun.

        Raises:
            NotFound: there is no such place.
        """
        place = cut(self.rows, at, self.nodes)
        again = done_behind(self.rows, place, self.nodes)
        kept = parts_kept(self.rows, place) if self.parts else set()
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
    """Begin a new run with the first rows of a durable one, and play it to its end.

    What the run did to the world behind that place is done again. The run itself stays as it is; it may be over,
    interrupted, or under way in any process.

    Args:
        run: its id.
        at: behind the row of this number, before this visit of a node of its graph (`plan#2`), or at the question of
            this id; `callboard runs show RUN --rows` lists them.
        model: `client:model` for everything that does not name its own.
        prompt: in place of the run's, if it had done nothing by then; else a graph's `initial_prompt` from there on, or
            what a person says to an agent at work.
        state: sets keys of the state of a graph; nodes that were under way begin again.
        answers: to questions that were open there, by their ids, or the ids of the nodes that asked.
        with_changes: with the run's file as it is today, not as it was when it began.
        id: of the new run.
        on_event, config_dir, root: as those of `run`.

    Returns and raises as `run` does, and:
        NotFound: there is no such run, or no such place in it.
        CannotGoOn, Damaged: it can't be read, or can't go on from there.
    """
    changes = Changes(
        model=model, prompt=prompt, state=state or {}, answers=answers or {}, with_changes=with_changes, id=id
    )
    callback = None if on_event is None else EventCallback(on_event)

    async def under(root: Root) -> Outcome:
        hooks = NO_HOOKS if callback is None else Hooks(on_event=callback.under(root.kernel))
        return await (await read_fork(root, run, at)).play(root, changes, hooks)

    root = root or current.get()
    if root is not None:
        outcome = await root.call(partial(under, root))
    else:
        check_new_root("callboard.fork")
        async with Root(config_dir=config_dir) as own:
            outcome = await under(own)
    if callback is not None:
        callback.check()
    return outcome


async def read_fork(root: Root, run: str, at: At) -> Fork:
    """A fork of this run at this place, which is not begun. Raises as `find_fork` does."""
    if root.journal_in_use is not None:  # it may be a run of this very process
        await root.journal_in_use.barrier()
    await imported(".supervisors.journal.reading")
    return await root.loader.threaded(partial(find_fork, journal_dir(os.environ), run, at, root.config_dir))


def find_fork(journals: Path, run: str, at: At, config_dir: Path) -> Fork:
    """As `read_fork`, without a root. Blocking.

    Raises:
        NotFound: no such run is kept, or there is no such place in it.
        Damaged, CannotGoOn: it can't be read.
    """
    return read_run(journals, run, config_dir).fork(at)


def read_run(journals: Path, run: str, config_dir: Path) -> RunRead:
    """A run that is kept on this machine. Blocking; it may go on in another process. Raises as `find_fork`."""
    rows, about = kept_rows(journals, run)
    return RunRead(run=run, rows=rows, about=about, nodes=nodes_of(rows, config_dir))


def durable_runs(environ: Mapping[str, str]) -> dict[str, About | None]:
    """All durable runs that are kept, the oldest first, with what is said of them if it can be read. Blocking."""
    from ....supervisors.journal.reading import kept_runs

    found: dict[str, About | None] = {}
    for kept in kept_runs(journal_dir(environ)):
        if not kept.damage:
            found[kept.run] = None
            with contextlib.suppress(msgspec.MsgspecError):  # it is of another version
                found[kept.run] = decode_about(kept.about)
    return found


def kept_rows(journals: Path, run: str) -> tuple[list[Placed], bytes]:
    """The rows of a run, and what is said of it. Blocking; the run may go on in another process.

    Raises: as `find_fork`.
    """
    from ....supervisors.journal import reading

    past = reading.read_run(journals, run)
    if past is None:
        raise NotFound(f"no durable run '{run}' is kept (callboard run --durable keeps one)")
    return rows_in(past), past.kept.about


def rows_in(past: Past) -> list[Placed]:
    """The rows of a run, wherever they were kept.

    Raises:
        CannotGoOn: they can't be read.
    """
    rows = read(past.rows)
    if began(rows).fold != FOLD:
        raise CannotGoOn(f"{past.kept.run} can't be read: callboard {began(rows).version} played it by other rules")
    return rows


def nodes_of(rows: list[Placed], config_dir: Path, first: Began | None = None) -> list[Entered]:
    """The nodes of the run's own graph that were begun; none if it is no graph, or its file can't be read from here.

    Args:
        first: its first row, with its files where this machine has them; else as it is.
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


def steps_of(journals: Path, run: str, config_dir: Path) -> list[Step]:
    """The rows of a run as steps. Blocking. Raises as `find_fork`."""
    return read_run(journals, run, config_dir).steps()


def cut(rows: list[Placed], at: At, nodes: list[Entered]) -> int:
    """How many rows come before this place.

    Raises:
        NotFound: there is no such place.
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
    raise NotFound(f"there is no row, visit of a node or question '{word}' in it; by name there are: {known}")


def done_behind(rows: list[Placed], at: int, nodes: Sequence[Entered] = ()) -> tuple[str, ...]:
    """What a run has done to the world behind a row, or was about to do there, in words."""
    named = steps(rows, nodes)
    again = (named[number - 1] for number in done_again(rows, at))
    return tuple(step.text if step.where in ("", step.text) else f"{step.where}: {step.text}" for step in again)
