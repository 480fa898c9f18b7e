"""A turn of a session: its holder changes the session, and `write` puts the changes into the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....protocol.chat import Content, ToolTurn, UserTurn
from ....protocol.chat import Turn as Said
from ....protocol.errors import CallboardError, Conflict, InvalidFile
from ....protocol.session import Session
from ....protocol.session_turns import messages_of, same_but_for_results, turns_of, with_results
from ...work.agent.compaction import is_summary
from ...work.agent.todo import TodoList
from .disk.stored import Stored
from .store import SessionStore

MOST_RUNS = 100
"""Durable runs that a session remembers."""


class Turn:
    """See the module.

    Attributes:
        stored: the session; its `session` may be changed, say so with `touch`.
        history: what was said so far.
        todos: the todo list of its agent, which goes on from turn to turn.
        dirty: whether it is written when the turn ends, unless nothing of it is kept (`keeps`).
        unkept: why it could not be written.
        run: the durable run that it is, once that has ended.
        is_left: whether the durable run that it is goes on in another process.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.history: tuple[Said, ...] = tuple(turns_of(stored.session))
        self.todos = TodoList(stored.session.todo)
        self.dirty = False
        self.keeps = True
        self.unkept: CallboardError | None = None
        self.added: list[dict[str, Any]] = []
        self.run = ""
        self.is_left: Callable[[], bool] = lambda: False
        self._over: Callable[[], None] | None = None
        self._behind = False
        self._begun = False
        self._has_messages = False

    @property
    def session(self) -> Session:
        """What the file says."""
        return self.stored.session

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """The durable run that it is has ended; `over` says so, once what it has brought is in the file."""
        self.run, self._over = run, over

    def is_kept(self, is_left: Callable[[], bool]) -> None:
        """It is a durable run (`Hooks.on_kept`)."""
        self.is_left = is_left

    def settle(self) -> None:
        """What it has brought is in the file, or will never be."""
        over, self._over = self._over, None
        if over is not None:
            over()

    def is_lost(self) -> bool:
        """Return True if another process claimed the run between its last message and its end.

        That process writes the messages. Written here too, they would be in the session twice: without the run's id,
        which `holds` sets at the end, the other process cannot see that they are there.
        """
        return self._has_messages and not self.run and self.is_left()

    def goes_on(self, run: str, before: Sequence[Said] | None) -> None:
        """It was begun by a process that was killed.

        Args:
            run: the durable run that it is.
            before: what had been said; None if its agent had not read that.
        """
        if run in self.session.meta.runs:
            self.keeps = False  # it was written, and nobody was left to say that the run is over
        if before is None:
            return
        self._behind = list(before) != list(self.history)
        self.history = tuple(before)

    def touch(self) -> None:
        """It was changed."""
        self.dirty = True

    def keep(self, turns: Sequence[Said]) -> None:
        """The whole conversation as it is now: `on_history` of a run."""
        session = self.session
        self._has_messages = True
        if self._behind:  # others have gone on with the session since: this comes after theirs
            self._put_behind(turns)
        elif same_but_for_results(self.history, turns):
            session.messages = with_results(session.messages, _other_results(self.history, turns))
            new = [self._placed(message) for message in messages_of(turns[len(self.history) :])]
            self.added += new
            session.messages = [*session.messages, *new]
        else:  # it was shortened on the way
            session.compressed_messages = [*session.compressed_messages, *session.messages]
            session.messages = messages_of(turns)
            if turns and is_summary(turns[0]):  # which no person has asked for
                session.messages[0]["within"] = True
            self._begun = True
        self.history = tuple(turns)
        session.todo = self.todos.told()
        self.dirty = True

    def _put_behind(self, turns: Sequence[Said]) -> None:
        went_on = same_but_for_results(self.history, turns)
        new = turns[len(self.history) :] if went_on else turns[_last_prompt(turns) :]
        placed = [self._placed(message) for message in messages_of(new)]
        self.added += placed
        self.session.messages = [*self.session.messages, *placed]

    def _placed(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message, marked if it stands in a user's name `within` the exchange, as steering does."""
        if message["role"] != "user":
            return message
        within, self._begun = self._begun, True
        return {**message, "within": True} if within else message

    def spend(self, cost: float) -> None:
        """Add what the turn's run has cost, in USD. A turn that has brought nothing is not written for it."""
        self.session.meta.cost = round(self.session.meta.cost + cost, 10)

    def variables(self, given: Mapping[str, str] | None) -> dict[str, str]:
        """The values of the agent's variables: those of the session, and those given now, which are kept."""
        values = {**self.session.agent_variables, **(given or {})}
        if values != self.session.agent_variables:
            self.session.agent_variables = values
            self.dirty = True
        return values

    def write(self, store: SessionStore) -> Stored:
        """Write the turn's messages, after any that were written without the lock. The session as it is then.

        Raises:
            Conflict: the file was changed meanwhile, and the turn has no messages to append; or it can't be
                read any more, then the session is written beside it.
            NotFound, NotKept: it was deleted; the disk refuses.
        """
        stored = self.stored
        self._sign(stored.session)
        try:
            store.save(stored)
        except Conflict:
            if not self.added:
                raise
            try:
                now = store.open(stored.id, stored.agent)
            except InvalidFile as error:
                beside = store.save_beside(stored)
                told = f"{error}; what was said now is in {beside}: mend the file, or put that in its place"
                raise Conflict(told) from None
            if self.run and self.run in now.session.meta.runs:
                return now  # who has gone on with the run, while this process stood still, has written it
            now.session.messages = [*now.session.messages, *self.added]
            now.session.todo = stored.session.todo
            self._sign(now.session)
            store.save(now)
            return now
        return stored

    def _sign(self, session: Session) -> None:
        if self.run:
            session.meta.runs = [*session.meta.runs, self.run][-MOST_RUNS:]


def _last_prompt(turns: Sequence[Said]) -> int:
    """Where the last exchange begins."""
    return max((place for place, turn in enumerate(turns) if isinstance(turn, UserTurn)), default=0)


def _other_results(old: Sequence[Said], new: Sequence[Said]) -> dict[str, Content]:
    """What calls of `old` have come to as `new` has it, where that is not the same: a result that was cut."""
    pairs = zip(old, new, strict=False)
    return {two.call: two.content for one, two in pairs if one is not two and isinstance(two, ToolTurn)}
