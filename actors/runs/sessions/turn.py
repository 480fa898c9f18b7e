"""Turn of a session: its holder changes the session, and `write` stores the changes in the file.

A durable run makes this hard. A turn may be resumed by another process while this one was only suspended, and the
session may have grown in the meantime. Three rules keep each message in the file exactly once:

- `meta.runs` in the file has the ids of the durable runs whose messages it contains. A resumed turn whose run is
  listed writes nothing.
- A turn that another process has claimed before its end writes nothing (`is_lost`).
- A turn that began before later messages of the session appends its own after them (`_behind`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....protocol.chat import Content, ToolTurn, UserTurn
from ....protocol.chat import Turn as Said
from ....protocol.errors import CallboardError, Conflict, InvalidFile
from ....protocol.placement import Carried
from ....protocol.session import Session, messages_of, same_but_for_results, turns_of, with_results
from ...work.agent.history import is_summary
from ...work.agent.todo import TodoList
from ...work.labels.flow import Flow
from ...work.labels.labels import Labels
from .store import SessionStore, Stored

MOST_RUNS = 100
"""Maximum of durable runs whose ids a session stores."""


class StoredTurn:
    """Changes of one turn to its session.

    Attributes:
        stored: the session. Call `touch` after a change to its `session`.
        history: the conversation so far.
        todos: todo list of its agent, which persists from turn to turn.
        dirty: True if the session is written when the turn ends, provided that `keeps` is True.
        unkept: error that prevented the write.
        run: id of the durable run of this turn, once it has ended.
        is_left: returns True if another process continues the turn's durable run.
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
        self._flow: Flow | None = None

    @property
    def session(self) -> Session:
        """The session's contents."""
        return self.stored.session

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """Note that the turn's durable run has ended. `over` is called when its messages are in the file."""
        self.run, self._over = run, over

    def is_durable_turn(self, is_left: Callable[[], bool]) -> None:
        """Note that the turn is a durable run (`RunCallbacks.on_kept`)."""
        self.is_left = is_left

    def mark_over(self) -> None:
        """Mark the turn's run as over: its messages are in the file, or will never be."""
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
        """Continue a turn that a killed process began.

        Args:
            run: the durable run of the turn.
            before: conversation when the turn began; None if its agent had not read it yet.
        """
        if run in self.session.meta.runs:
            self.keeps = False  # The messages were written, but the process died before it marked the run as over.
        if before is None:
            return
        self._behind = list(before) != list(self.history)
        self.history = tuple(before)

    def begins(self, flow: Flow) -> None:
        """Give the run of this turn the labels of earlier messages; observe the labels that it adds."""
        before = self.session.meta.carries
        if before is not None:
            flow.add(Labels(untrusted=before.untrusted, private=before.private))
            flow.knows_history = True
        self._flow = flow

    def _noted(self) -> Carried | None:
        """Return the labels of the whole session; None if a turn was executed without labels."""
        carried = None if self._flow is None else self._flow.carried
        return None if carried is None else Carried(untrusted=carried.untrusted, private=carried.private)

    def touch(self) -> None:
        """Mark the session as changed."""
        self.dirty = True

    def keep(self, turns: Sequence[Said]) -> None:
        """Store the conversation as it is now: the `on_history` callback of a run."""
        session = self.session
        self._has_messages = True
        if self._behind:  # Other turns were added since this one began: append after them.
            self._put_behind(turns)
        elif same_but_for_results(self.history, turns):
            session.messages = with_results(session.messages, _other_results(self.history, turns))
            new = [self._placed(message) for message in messages_of(turns[len(self.history) :])]
            self.added += new
            session.messages = [*session.messages, *new]
        else:  # The agent compacted the conversation during the run.
            session.compressed_messages = [*session.compressed_messages, *session.messages]
            session.messages = messages_of(turns)
            if turns and is_summary(turns[0]):  # A summary is a message in the user's role that no user wrote.
                session.messages[0]["within"] = True
            self._begun = True
        self.history = tuple(turns)
        session.todo = self.todos.as_todos()
        session.meta.carries = self._noted()
        self.dirty = True

    def _put_behind(self, turns: Sequence[Said]) -> None:
        went_on = same_but_for_results(self.history, turns)
        new = turns[len(self.history) :] if went_on else turns[_last_prompt(turns) :]
        placed = [self._placed(message) for message in messages_of(new)]
        self.added += placed
        self.session.messages = [*self.session.messages, *placed]

    def _placed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the message, marked `within` if it has the user's role but belongs to a running exchange, as steering
        does.
        """
        if message["role"] != "user":
            return message
        within, self._begun = self._begun, True
        return {**message, "within": True} if within else message

    def spend(self, cost: float) -> None:
        """Add the cost of the turn's run, in USD. A turn without other changes is not written for it."""
        self.session.meta.cost = round(self.session.meta.cost + cost, 10)

    def variables(self, given: Mapping[str, str] | None) -> dict[str, str]:
        """Return the values of the agent's variables: the session's values, updated with `given`, which are stored."""
        values = {**self.session.agent_variables, **(given or {})}
        if values != self.session.agent_variables:
            self.session.agent_variables = values
            self.dirty = True
        return values

    def write(self, store: SessionStore) -> Stored:
        """Write the turn's messages, after any that were written without the lock. Return the session as written.

        Raises:
            Conflict: the file was changed meanwhile, and the turn has no messages to append; or the file cannot be
                read any more, in which case the session is written to a copy next to it.
            NotFound, NotKept: the session was deleted; the disk refuses the write.
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
                beside = store.save_copy(stored)
                told = (
                    f"{error}; the session with its new messages is in {beside}: fix the file, or "
                    "replace it with that one"
                )
                raise Conflict(told) from None
            if self.run and self.run in now.session.meta.runs:
                # Another process resumed the run while this one was suspended, and has written its messages.
                return now
            now.session.messages = [*now.session.messages, *self.added]
            now.session.todo = stored.session.todo
            now.session.meta.carries = None  # The other turn's labels are unknown here, so the session has none.
            self._sign(now.session)
            store.save(now)
            return now
        return stored

    def _sign(self, session: Session) -> None:
        if self.run:
            session.meta.runs = [*session.meta.runs, self.run][-MOST_RUNS:]


def _last_prompt(turns: Sequence[Said]) -> int:
    """Return the index of the last user message."""
    return max((place for place, turn in enumerate(turns) if isinstance(turn, UserTurn)), default=0)


def _other_results(old: Sequence[Said], new: Sequence[Said]) -> dict[str, Content]:
    """Return the results in `new` that differ from those in `old` for the same calls, because they were shortened."""
    pairs = zip(old, new, strict=False)
    return {two.call: two.content for one, two in pairs if one is not two and isinstance(two, ToolTurn)}
