"""Durable run in this process: writes the rows of the run, and holds the rows of earlier incarnations.

Rows are written as their messages are delivered, so a killed process leaves a prefix of the run on disk. The next
incarnation delivers that prefix to new deciders (`engine/driver`) and resumes behind it. Three rules keep the prefix
valid:

- When the root stops, no more rows of a resumable run are written, as if the process were killed then. Messages from
  there on are interruptions caused by the stop itself, and a resumed run must not contain them.
- A row that can't be encoded spoils the run: rows after a gap would replay to another state. The run continues, but it
  can't be recovered.
- Secrets from the vault are in no row. `[redacted]` replaces them, as in all output of the run.

A third kind of state belongs to no path: only the rows of sender and reader together show whether a team message still
has to be delivered (`SharedState`).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from ....protocol.chat import ChatReply
from ....protocol.errors import CallboardError, JournalError, ShuttingDown
from ....protocol.journal import (
    LETTER,
    About,
    Answered,
    AnyRow,
    Asked,
    Began,
    Definition,
    Intends,
    Kept,
    Lived,
    MessageRow,
    Noted,
    Over,
    Posted,
    Spoilt,
    decode,
    decode_value,
    encode,
    encode_about,
    encode_plain,
    encode_value,
)
from ....protocol.kernel.questions import Answer
from ....protocol.messages import Replied, ServersRestarted, TeamMessage, ToolDone
from ...io.secret_redaction import holds, without_secrets
from ..spending.meter import PartUsage

if TYPE_CHECKING:
    from ....supervisors.journal.row import StoredRow


class ReplySpending(msgspec.Struct, frozen=True):
    """Usage of model replies.

    One reply to the decider of `path` if `told`, otherwise to work of that path; or `turns` replies of a part of the
    run that another worker executed.
    """

    path: str
    told: bool
    tokens: int
    cost: float
    turns: int = 1


class SharedState(msgspec.Struct):
    """State between deciders, collected from all rows of a run in their order (`see`).

    Attributes:
        undelivered: team messages that were sent and not delivered, by the path of the reader's decider.
        asked: times of questions in seconds since 1970, by question id.
        answered: authors of answers, by question id.
        servers: MCP servers that a conversation has used and may rely on, by its path.
        spent: all replies of models.
    """

    undelivered: dict[str, list[TeamMessage]] = {}
    asked: dict[str, float] = {}
    answered: dict[str, str] = {}
    servers: dict[str, dict[str, None]] = {}
    spent: list[ReplySpending] = []

    def see(self, path: str, row: AnyRow) -> None:
        """Process the next row, which belongs to `path`."""
        if isinstance(row, Noted):
            if row.name == LETTER and (letter := (posted := decode_value(row.value, Posted)).letter) is not None:
                self.undelivered.setdefault(posted.to, []).append(letter)
        elif isinstance(row, Asked):
            self.asked[row.question.id] = row.wall
        elif isinstance(row, Answered):
            self.answered[row.answer.question] = row.answer.by
        elif isinstance(row, Intends):
            # The conversation is the parent of the call's path. A dict keeps the order of use.
            if row.server:
                self.servers.setdefault(path.rpartition("/")[0], {})[row.server] = None
        elif isinstance(row, MessageRow):
            self._count(path, row.message)

    def spends(self, path: str, reply: ChatReply, *, to_decider: bool) -> None:
        """Record a reply of a model; see `ReplySpending`."""
        tokens = reply.usage.input_tokens + reply.usage.output_tokens
        self.spent.append(ReplySpending(path, to_decider, tokens, reply.cost or 0.0))

    def add_remote_spending(self, path: str, part: PartUsage) -> None:
        """Record the usage of a part of the run that another worker executed for this path."""
        amount = part.amount
        self.spent.append(ReplySpending(path, False, amount.tokens, amount.cost, part.turns))

    def below(self, path: str) -> list[ReplySpending]:
        """Return the replies to the decider of this path, and to everything below it."""
        deeper = f"{path}/"
        return [
            each for each in self.spent if not path or (each.told and each.path == path) or each.path.startswith(deeper)
        ]

    def _count(self, path: str, message: object) -> None:
        # Delivery in an earlier incarnation, so the next one must not repeat it.
        if isinstance(message, TeamMessage):
            on_their_way = self.undelivered.get(path, [])
            if message in on_their_way:
                on_their_way.remove(message)
        elif isinstance(message, ServersRestarted):
            known = self.servers.get(path, {})
            for server in message.servers:
                known.pop(server, None)


DEEPEST = 50
"""Nesting levels that are searched."""


def what_is_no_data(row: object, error: Exception) -> str:
    """Return an error text for a value that the journal can't store: the node, the place of the value, and its type;
    never the value.

    Args:
        row: the row, or a value of one.
        error: error of the encoder.
    """
    inside = row.message if isinstance(row, MessageRow) else row
    node = getattr(inside, "node", None)
    whose = f"node '{node}'" if isinstance(node, str) else type(inside).__name__
    found = _found(inside, (), DEEPEST)
    if found is None:
        return f"{whose} can't be stored in the journal: {error}"
    place, value = found
    return (
        f"{whose} has a {type(value).__name__} at `{'.'.join(place)}`, which can't be stored in the journal ({error})"
    )


def _found(value: Any, place: tuple[str, ...], deep: int) -> tuple[tuple[str, ...], Any] | None:
    """Return the innermost first value that can't be stored, with its place; None if all values can be."""
    if _is_data(value) or not deep:
        return None
    for name, each in _parts(value):
        found = _found(each, (*place, name), deep - 1)
        if found is not None:
            return found
    return place, value


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(str(number), each) for number, each in enumerate(value)]
    return []


def _is_data(value: Any) -> bool:
    try:
        encode_value(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


REPLY = "reply"
"""Name under which a model's reply is noted."""

OF_HOOK = "hook "
HOOK = OF_HOOK + "{}"
"""Name under which answers of hooks at an agent's beginning or end are noted, with the event."""

SERVER_TOOLS = "server tools: "
"""Name under which the tools of an MCP server are noted, followed by its name."""

DEFINITION = "definition"
"""Name of the note with the definition files of a run that resumed with changed files."""

CALLED = "agent: "
"""Name under which the file of a called agent is noted, followed by the agent and the place of its caller."""

PART = "part "
"""Name under which the usage of a part on another worker is noted, followed by that run's id."""

PREPARED = "answers"
"""Author of answers that were given in advance of a run."""

log = logging.getLogger("callboard.journal")


LOOK_EVERY = 0.25
"""Seconds between two checks of the limit and of the root while a run waits for the disk."""


class CannotGoOn(JournalError):
    """An interrupted run can't be resumed; the text has the reason."""

    code = "cannot_go_on"


class EarlierRows(msgspec.Struct):
    """Rows of one path from earlier incarnations: messages to its deciders, and all others."""

    told: list[MessageRow] = []
    others: list[AnyRow] = []


class RunPast(msgspec.Struct, kw_only=True):
    """Rows of a run from earlier incarnations.

    Attributes:
        began: its first row.
        paths: the other rows, by path.
        at: milliseconds that it has been executed, as of its last row.
        questions: number of questions it has asked.
        replies: replies of models in all incarnations.
        parts: usage of its remote children.
        tool_calls: number of finished calls.
        prepared: askers (`Question.asker`) whose questions were answered in advance.
        shared: state between its deciders.
        spoilt: reason why it can't be resumed, or "".
        once: notes of the run as a whole; the last one of each name.
        pending_answers: answers that arrived while no process executed it, by question, each with its time.
    """

    began: Began
    paths: dict[str, EarlierRows]
    at: int = 0
    questions: int = 0
    replies: list[ChatReply] = []
    parts: list[PartUsage] = []
    tool_calls: int = 0
    prepared: list[str] = []
    shared: SharedState = msgspec.field(default_factory=SharedState)
    spoilt: str = ""
    once: dict[str, msgspec.Raw] = {}
    _changed: list[Noted] = []
    pending_answers: dict[str, tuple[Answer, float]] = {}

    def notes_once(self, row: Noted) -> None:
        """Add a note of the run as a whole.

        Notes of an incarnation that resumed with other files are valid once it has written another row: it may have
        been refused before.
        """
        if row.name == DEFINITION:
            self._changed = [row]
        elif self._changed:
            self._changed.append(row)
        else:
            self.once[row.name] = row.value

    @property
    def has_changed(self) -> bool:
        """True if an incarnation has resumed with other files, and has since written only notes on the whole run."""
        return bool(self._changed)

    def did(self) -> None:
        """Make the notes of the latest incarnation valid, because it has written a row."""
        changed, self._changed = self._changed, []
        self.forget_files()
        self.once |= {row.name: row.value for row in changed}

    def forget_files(self) -> None:
        """Drop the notes about definition files: the run resumes with the current files."""
        self.once = {name: value for name, value in self.once.items() if not is_of_files(name)}


def is_of_files(name: str) -> bool:
    """Return True for the name of a note about the definition files with which a run has begun."""
    return name == DEFINITION or name.startswith(CALLED)


def past_of(rows: Iterable[StoredRow]) -> RunPast:
    """Return the past of a run from its rows.

    Raises:
        CannotGoOn: the rows are of an unknown version, or the first one is missing.
    """
    past: RunPast | None = None
    nodes: dict[str, str] = {}
    for each in rows:
        try:
            row = decode(each.data)
        except (msgspec.DecodeError, ValueError) as error:
            raise CannotGoOn(
                f"row {each.seq} of the journal can't be read: {error}. A newer version of Callboard may "
                "have written it"
            ) from None
        if past is None:
            if not isinstance(row, Began):
                raise CannotGoOn("the first row of the journal is not the beginning of a run")
            past = RunPast(began=row, paths={})
            continue
        past.at = max(past.at, row.at)
        if isinstance(row, Spoilt):
            past.spoilt = past.spoilt or row.why
        elif not isinstance(row, Lived | Over | Began):
            before = past.paths.setdefault(each.actor, EarlierRows())
            if isinstance(row, MessageRow):
                before.told.append(row)
            else:
                before.others.append(row)
            if isinstance(row, Noted) and not each.actor:
                past.notes_once(row)
            elif past.has_changed:
                past.did()
            past.shared.see(each.actor, row)
            # `_count` appends new replies and parts; their path is recorded here.
            replies, parts = len(past.replies), len(past.parts)
            _count(past, row, nodes)
            for reply in past.replies[replies:]:
                past.shared.spends(each.actor, reply, to_decider=isinstance(row, MessageRow))
            for part in past.parts[parts:]:
                past.shared.add_remote_spending(each.actor, part)
    if past is None:
        raise CannotGoOn("the journal has no rows of the run")
    # A run that resumed with changed files has these as its definition.
    if DEFINITION in past.once:
        for definition in decode_value(past.once[DEFINITION], list[Definition]):
            past.began = msgspec.structs.replace(past.began, definition=definition)
    return past


def _count(past: RunPast, row: AnyRow, nodes: dict[str, str]) -> None:
    if isinstance(row, MessageRow):
        if isinstance(row.message, Replied):
            past.replies.append(row.message.reply)
        elif isinstance(row.message, ToolDone):
            past.tool_calls += 1
    elif isinstance(row, Noted):
        if row.name == REPLY:
            past.replies.append(decode_value(row.value, ChatReply))
        elif row.name.startswith(PART):
            past.parts.append(decode_value(row.value, PartUsage))
    elif isinstance(row, Asked):
        past.questions += 1
        nodes[row.question.id] = row.question.asker
    elif isinstance(row, Answered) and row.answer.by == PREPARED:
        past.prepared.append(nodes.get(row.answer.question, ""))


def question_id(run: str, number: int) -> str:
    """Return the id of a run's question with this number, counted from 1. It is the same in every incarnation."""
    return f"q-{run.removeprefix('run-')}-{number}"


class RowsOut(Protocol):
    """Destination of a run's rows: `RunJournal`, or nothing in a replay."""

    run: str
    rows: int

    @property
    def trouble(self) -> str:
        """Directory and reason if nothing can be written at the moment; else empty."""

    def append(self, actor: str, data: bytes) -> int:
        """Append a row and return its number. Never waits."""

    def set_summary(self, about: bytes, *, over: bool = False) -> None:
        """Replace the summary of the run; with `over`, mark the run as ended."""

    def store_data(self, kind: str, key: str, data: bytes) -> None:
        """Store data in the same transaction as the rows around it."""

    def hurry(self) -> None:
        """Write the appended rows soon, without a barrier."""

    def stop(self) -> None:
        """Write no further rows of the run."""

    async def barrier(self) -> None:
        """Wait until all rows appended before are on the disk. Raises as `RunJournal.barrier`."""


class JournaledRun:
    """Durable run in this process.

    Args:
        rows: destination of the rows.
        about: summary of the run.
        past: rows of earlier incarnations; None for a new run.
        stopping: returns True while the root is stopping.
        insists: True if the user requested a durable run.

    Attributes:
        about: current summary of the run.
        paths: unused rows of the past, by path; a scope removes the rows of its path.
        shared: state between its deciders.
        on_refusal: called when the rows do not match the run that would be resumed with them.
        handed_over: True if this process has left the run to the next one and writes nothing more.
        dormant: True if it is left until an answer arrives.
        relies: True if a conversation has used an MCP server that may have state of it.
        once: notes of earlier incarnations on the run as a whole.
        answers: answers that arrived while no process executed it, by question, each with its time.
    """

    on_refusal: Callable[[CannotGoOn], None] | None = None

    def __init__(
        self,
        rows: RowsOut,
        about: About,
        past: RunPast | None,
        stopping: Callable[[], bool],
        *,
        insists: bool = True,
    ) -> None:
        self.rows = rows
        self.about = about
        self.paths: dict[str, EarlierRows] = {} if past is None else past.paths
        self.shared = SharedState() if past is None else past.shared
        self.handed_over = self.dormant = False
        self.relies = past is not None and bool(past.shared.servers)
        self.answers = {} if past is None else past.pending_answers
        self.once = {} if past is None else past.once
        self._stopping = stopping
        self._insists = insists
        self._questions = 0 if past is None else past.questions
        self._is_over = False
        # Digests, so that an unchanged value is not stored again after each resume.
        self._noted = {name: _digest(value) for name, value in self.once.items()}
        self._clock = trio.lowlevel.current_clock().current_time
        # Execution time continues where the last incarnation ended.
        self._zero = self._clock() - (0 if past is None else past.at / 1000)

    @property
    def now(self) -> int:
        """Milliseconds of the run's execution, in all incarnations."""
        return int((self._clock() - self._zero) * 1000)

    def append(self, path: str, row: AnyRow) -> None:
        """Append a row; never waits."""
        if self._stopping():
            self.hand_over()
        try:
            # Redaction copies the row, so it only runs if the encoded row contains a secret.
            data = encode(row)
            if holds(data):
                data = encode(without_secrets(row))
        except (TypeError, ValueError, RecursionError, CallboardError) as error:
            self.spoil(what_is_no_data(row, error))
            return
        self.rows.append(path, data)

    def note(self, path: str, name: str, value: object) -> None:
        """Append a note: a finding of a node's own code, or the result of an effect."""
        try:
            data = encode_value(without_secrets(value))
        except (TypeError, ValueError, RecursionError) as error:
            self.spoil(f"{name}: {what_is_no_data(value, error)}")
            return
        self.append(path, Noted(self.now, name, data))

    def append_message(self, path: str, message: Kept) -> None:
        """Append a message to a decider. A faster `append`, since it runs for each message of a run."""
        row = MessageRow(int((self._clock() - self._zero) * 1000), message)
        if self._stopping():
            self.hand_over()
        try:
            data = encode_plain(row)
        except (TypeError, ValueError, OverflowError, RecursionError):
            data = None
        if data is None or holds(data):  # `append` handles both cases
            self.append(path, row)
        else:
            self.rows.append(path, data)

    def spoil(self, why: str) -> None:
        """Declare that the run can't be resumed after a kill."""
        if not self.about.spoilt:
            # A warning only for users who requested a durable run.
            level = logging.WARNING if self._insists else logging.INFO
            log.log(level, "%s can't be resumed if this process is killed: %s", self.rows.run, why)
            # First: `append` may call `hand_over`, which must not stop the rows of a run that no process can resume.
            self.update_summary(spoilt=why)
            self.append("", Spoilt(self.now, why))

    def note_once(self, name: str, value: Any) -> None:
        """Append a note of the run as a whole, if it has changed."""
        data = encode_value(without_secrets(value))
        digest = _digest(data)
        if self._noted.get(name) != digest:
            self._noted[name] = digest
            self.append("", Noted(self.now, name, data))

    def refuse(self, error: CannotGoOn) -> None:
        """Stop the journal of a run that can't be resumed: its state on disk remains, whatever its actors still do."""
        self.handed_over = True
        self.rows.stop()
        if self.on_refusal is not None:
            self.on_refusal(error)

    @property
    def is_handed_over(self) -> bool:
        """True if this process has left the run to the next one, since it ends."""
        if self._stopping():
            self.hand_over()
        return self.handed_over

    def update_summary(self, **changes: Any) -> None:
        """Change the summary of the run."""
        self.about = msgspec.structs.replace(self.about, **changes)
        self.rows.set_summary(encode_about(without_secrets(self.about)))

    def hand_over(self) -> None:
        """Leave the run to the next process, since this one ends before it. Nothing more is written.

        A run that can't be resumed keeps its state.
        """
        # No other process can resume a spoilt run, and an ended run needs none.
        if not self.handed_over and not self.about.spoilt and not self._is_over:
            self.handed_over = True
            # Before `stop`, after which nothing is stored.
            self.update_summary(left=True)
            self.rows.stop()

    def sleep(self) -> None:
        """Suspend the run until an answer arrives, since it waits for nothing else.

        Nothing more is written, as after `hand_over`.
        """
        self.handed_over = self.dormant = True
        self.update_summary(left=True, dormant=True)
        self.rows.stop()

    def wakes(self) -> None:
        """Mark the run as executing again, after `sleep`."""
        self.update_summary(left=False, dormant=False)

    def new_question(self) -> str:
        """Return the id of the next question: the same in every incarnation."""
        self._questions += 1
        return question_id(self.rows.run, self._questions)

    @property
    def trouble(self) -> str:
        """Reason why the run waits for the disk, with a remedy; "" if there is none."""
        trouble = self.rows.trouble
        return f"can't write to {trouble}; free some disk space there, or run it with --ephemeral" if trouble else ""

    async def barrier(self, within: float | None = None) -> None:
        """Wait until everything appended so far is on the disk.

        Args:
            within: seconds after which it fails if nothing can be written then. A slow disk is no failure.

        Raises:
            JournalError: nothing can be written within that time; or as `RunJournal.barrier`.
            ShuttingDown: the root stops, and nothing can be written; or as `RunJournal.barrier`.
        """
        began = self._clock()
        while True:
            if self._stopping():
                self.hand_over()
            # The root may begin to stop, and the limit may pass, while the disk is full: both are checked in between.
            with trio.move_on_after(LOOK_EVERY):
                await self.rows.barrier()
                return
            trouble = self.trouble
            if trouble and self._stopping():
                raise ShuttingDown(f"{self.rows.run} was stopped: it {trouble}")
            if trouble and within is not None and self._clock() - began >= within:
                raise JournalError(f"{self.rows.run} {trouble}")

    def over(self, status: str) -> None:
        """Mark the run as finished, unless the root stops and the next process may resume it."""
        self.append("", Over(self.now, status))
        self._is_over = not self.handed_over
        self.rows.set_summary(encode_about(without_secrets(self.about)), over=True)

    async def is_over(self) -> bool:
        """Return True if no other process will resume the run: its result is on the disk."""
        try:
            await self.barrier()
        except (JournalError, ShuttingDown):
            return False
        return not self.handed_over

    def lives(self, life: int, version: str) -> None:
        """Append the row of a new incarnation, for this process."""
        self.append("", Lived(self.now, life, version, time.time()))

    def is_well(self) -> None:
        """Record that the process has run long enough to prove that this run does not kill it."""
        # Ends the count of incarnations that died without progress (`STUCK`).
        if self.about.since:
            self.update_summary(since=0)


def _digest(data: msgspec.Raw) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
