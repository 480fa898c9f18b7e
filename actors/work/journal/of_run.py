"""One durable run in this process: writes its rows, and has those of its earlier lives.

When the root stops, nothing more is written, as if the process had been killed then: what is told to deciders from
there on are the interruptions of the stop itself, and a run that goes on later must not know of them.

What the vault has handed out is in no row: in its place stands `[redacted]`, as in all that is told of the run.
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
    About,
    Answered,
    AnyRow,
    Asked,
    Began,
    Definition,
    Kept,
    Lived,
    Noted,
    Over,
    Spoilt,
    Told,
    decode,
    decode_value,
    encode,
    encode_about,
    encode_plain,
    encode_value,
)
from ....protocol.kernel.questions import Answer
from ....protocol.messages import Replied, ToolDone
from ...io.handed_out import holds, without_secrets
from ..spending.parts import PartUsage
from .crossing import Crossing
from .no_data import what_is_no_data

if TYPE_CHECKING:
    from ....supervisors.journal.row import Row

REPLY = "reply"
OF_HOOK = "hook "
HOOK = OF_HOOK + "{}"
"""With the event: what hooks have said at an agent's beginning or end."""
"""What a reply of a model is noted as."""

SERVER_TOOLS = "server tools: "
"""What the tools of an MCP server are noted as, with its name behind."""

DEFINITION = "definition"
"""What is noted of a run that went on with today's files: its own, if it has one."""

CALLED = "agent: "
"""What the file of an agent that the run calls is noted as, with the name and the place of its caller behind."""

PART = "part "
"""What a part of the run has used that was played elsewhere is noted as, with that run's id behind."""

PREPARED = "answers"
"""Who gives answers that were prepared before a run."""

log = logging.getLogger("callboard.journal")


LOOK_EVERY = 0.25
"""Seconds between two looks at the limit and at the root, while a run waits for the disk."""


class CannotGoOn(JournalError):
    """A run that was interrupted can't go on."""

    code = "cannot_go_on"


class Before(msgspec.Struct):
    """What earlier lives have written of one path: what its deciders were told, and all else."""

    told: list[Told] = []
    others: list[AnyRow] = []


class RunPast(msgspec.Struct, kw_only=True):
    """What earlier lives have written of a run.

    Attributes:
        began: its first row.
        paths: the rest of it, by path.
        at: milliseconds that it was played.
        questions: how many it has asked.
        replies: of models, in all lives.
        parts: what parts of it have used that were played elsewhere.
        tool_calls: calls that have ended.
        prepared: nodes whose questions were answered by answers that were prepared before the run, "" for no node.
        crossing: what went on between its deciders.
        spoilt: why it can't go on, or "".
        once: what was noted of the run as a whole; of one name the last.
        left: the answers that were left for it while nobody played it, by question, and when each was.
    """

    began: Began
    paths: dict[str, Before]
    at: int = 0
    questions: int = 0
    replies: list[ChatReply] = []
    parts: list[PartUsage] = []
    tool_calls: int = 0
    prepared: list[str] = []
    crossing: Crossing = msgspec.field(default_factory=Crossing)
    spoilt: str = ""
    once: dict[str, msgspec.Raw] = {}
    _changed: list[Noted] = []
    left: dict[str, tuple[Answer, float]] = {}

    def notes_once(self, row: Noted) -> None:
        """This was noted of the run as a whole.

        Of a life that went on with other files this counts once it has done something: it may have been refused.
        """
        if row.name == DEFINITION:
            self._changed = [row]
        elif self._changed:
            self._changed.append(row)
        else:
            self.once[row.name] = row.value

    @property
    def has_changed(self) -> bool:
        """Whether a life went on with other files, and has not yet done anything."""
        return bool(self._changed)

    def did(self) -> None:
        """That life has done something."""
        changed, self._changed = self._changed, []
        self.forget_files()
        self.once |= {row.name: row.value for row in changed}

    def forget_files(self) -> None:
        """It went on, or goes on, with the files of that day."""
        self.once = {name: value for name, value in self.once.items() if not is_of_files(name)}


def is_of_files(name: str) -> bool:
    """Whether what is noted under this name says with which files a run has begun."""
    return name == DEFINITION or name.startswith(CALLED)


def past_of(rows: Iterable[Row]) -> RunPast:
    """The rows of a run, as they are read.

    Raises:
        CannotGoOn: they are of another program.
    """
    past: RunPast | None = None
    nodes: dict[str, str] = {}
    for each in rows:
        try:
            row = decode(each.data)
        except (msgspec.DecodeError, ValueError) as error:
            raise CannotGoOn(
                f"row {each.seq} is of a version of callboard that this one does not know: {error}"
            ) from None
        if past is None:
            if not isinstance(row, Began):
                raise CannotGoOn("its first row does not say what it is a run of")
            past = RunPast(began=row, paths={})
            continue
        past.at = max(past.at, row.at)
        if isinstance(row, Spoilt):
            past.spoilt = past.spoilt or row.why
        elif not isinstance(row, Lived | Over | Began):
            before = past.paths.setdefault(each.actor, Before())
            if isinstance(row, Told):
                before.told.append(row)
            else:
                before.others.append(row)
            if isinstance(row, Noted) and not each.actor:
                past.notes_once(row)
            elif past.has_changed:
                past.did()
            past.crossing.see(each.actor, row)
            replies, parts = len(past.replies), len(past.parts)
            _count(past, row, nodes)
            for reply in past.replies[replies:]:
                past.crossing.spends(each.actor, reply, told=isinstance(row, Told))
            for part in past.parts[parts:]:
                past.crossing.spends_elsewhere(each.actor, part)
    if past is None:
        raise CannotGoOn("nothing of it is on disk")
    if DEFINITION in past.once:
        for definition in decode_value(past.once[DEFINITION], list[Definition]):
            past.began = msgspec.structs.replace(past.began, definition=definition)
    return past


def _count(past: RunPast, row: AnyRow, nodes: dict[str, str]) -> None:
    if isinstance(row, Told):
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
        nodes[row.question.id] = row.question.node or ""
    elif isinstance(row, Answered) and row.answer.by == PREPARED:
        past.prepared.append(nodes.get(row.answer.question, ""))


def question_id(run: str, number: int) -> str:
    """The id of the question that a run has asked as its first, second, ..."""
    return f"q-{run.removeprefix('run-')}-{number}"


class RowsOut(Protocol):
    """Where the rows of a run go: `RunJournal`, and in a replay nowhere."""

    run: str
    rows: int

    @property
    def trouble(self) -> str:
        """See `RunJournal`."""

    def append(self, actor: str, data: bytes) -> int:
        """See `RunJournal`."""

    def tell(self, about: bytes, *, over: bool = False) -> None:
        """See `RunJournal`."""

    def beside(self, kind: str, key: str, data: bytes) -> None:
        """See `RunJournal`."""

    def hurry(self) -> None:
        """See `RunJournal`."""

    def stop(self) -> None:
        """See `RunJournal`."""

    async def barrier(self) -> None:
        """See `RunJournal`."""


class OfRun:
    """See the module.

    Args:
        rows: where they go; about: what is said of it.
        past: of its earlier lives; None for a new run.
        stopping: whether the root is stopping.
        insists: whether a person wants the run to be kept.

    Attributes:
        about: what is said of it now.
        paths: what is left of the past, by path; who takes up a path takes it out.
        crossing: what went on between its deciders.
        on_refusal: called when the rows turn out not to be those of what the run would go on with.
        left: whether this process has left it to the next, and keeps nothing more; `dormant`: until an answer comes.
        relies: whether a conversation of it has used an MCP server that may remember it.
        once: what earlier lives have noted of the run as a whole.
        answers: those that were left for it while nobody played it, by question, and when each was.
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
        self.paths: dict[str, Before] = {} if past is None else past.paths
        self.crossing = Crossing() if past is None else past.crossing
        self.left = self.dormant = False
        self.relies = past is not None and bool(past.crossing.servers)
        self.answers = {} if past is None else past.left
        self.once = {} if past is None else past.once
        self._stopping = stopping
        self._insists = insists
        self._questions = 0 if past is None else past.questions
        self._is_over = False
        self._noted = {name: _digest(value) for name, value in self.once.items()}
        self._clock = trio.lowlevel.current_clock().current_time
        self._zero = self._clock() - (0 if past is None else past.at / 1000)

    @property
    def now(self) -> int:
        """Milliseconds that the run has been played, in all its lives."""
        return int((self._clock() - self._zero) * 1000)

    def append(self, path: str, row: AnyRow) -> None:
        """Keep a row; never waits."""
        if self._stopping():
            self.leave()
        try:
            data = encode(row)
            if holds(data):
                data = encode(without_secrets(row))
        except (TypeError, ValueError, RecursionError, CallboardError) as error:
            self.spoil(what_is_no_data(row, error))
            return
        self.rows.append(path, data)

    def note(self, path: str, name: str, value: object) -> None:
        """Keep what a node's own code has found out, or what an effect has come to."""
        try:
            data = encode_value(without_secrets(value))
        except (TypeError, ValueError, RecursionError) as error:
            self.spoil(f"{name}: {what_is_no_data(value, error)}")
            return
        self.append(path, Noted(self.now, name, data))

    def told(self, path: str, message: Kept) -> None:
        """Keep what a decider was told; as `append`, but this is done for each message of a run."""
        row = Told(int((self._clock() - self._zero) * 1000), message)
        if self._stopping():
            self.leave()
        try:
            data = encode_plain(row)
        except (TypeError, ValueError, OverflowError, RecursionError):
            data = None
        if data is None or holds(data):  # `append` knows what is to be done
            self.append(path, row)
        else:
            self.rows.append(path, data)

    def spoil(self, why: str) -> None:
        """Say that the run can't go on after a kill."""
        if not self.about.spoilt:
            level = logging.WARNING if self._insists else logging.INFO
            log.log(level, "%s could not go on if this process was killed: %s", self.rows.run, why)
            self.tell(spoilt=why)
            self.append("", Spoilt(self.now, why))

    def note_once(self, name: str, value: Any) -> None:
        """Keep what is the same for all of the run; again only if it has changed."""
        data = encode_value(without_secrets(value))
        digest = _digest(data)
        if self._noted.get(name) != digest:
            self._noted[name] = digest
            self.append("", Noted(self.now, name, data))

    def refuse(self, error: CannotGoOn) -> None:
        """It can't go on: it stays what it was before, whatever becomes of the actors that are at work in it."""
        self.left = True
        self.rows.stop()
        if self.on_refusal is not None:
            self.on_refusal(error)

    @property
    def is_left(self) -> bool:
        """Whether this process has left it to the next, since it ends."""
        if self._stopping():
            self.leave()
        return self.left

    def tell(self, **changes: Any) -> None:
        """Say this of it in lists from now on."""
        self.about = msgspec.structs.replace(self.about, **changes)
        self.rows.tell(encode_about(without_secrets(self.about)))

    def leave(self) -> None:
        """This process ends before the run: leave it to the next, and keep nothing more of what becomes of it here.

        One that can't go on stays what it is.
        """
        if not self.left and not self.about.spoilt and not self._is_over:
            self.left = True
            self.tell(left=True)
            self.rows.stop()

    def sleep(self) -> None:
        """It waits for people alone: this process plays it no more until an answer comes. As `leave`."""
        self.left = self.dormant = True
        self.tell(left=True, dormant=True)
        self.rows.stop()

    def wakes(self) -> None:
        """It is played again."""
        self.tell(left=False, dormant=False)

    def new_question(self) -> str:
        """The id of a question: the same whenever the run goes on."""
        self._questions += 1
        return question_id(self.rows.run, self._questions)

    @property
    def trouble(self) -> str:
        """Why the run waits for the disk, and what to do; "" if all is well."""
        trouble = self.rows.trouble
        return f"can't write to {trouble}; free some space there, or run it with --ephemeral" if trouble else ""

    async def barrier(self, within: float | None = None) -> None:
        """Wait until all that was written so far is on the disk.

        Args:
            within: seconds after which it fails if nothing can be written then. A disk that is only slow is waited for.

        Raises:
            JournalError: nothing can be written within that time; or as `RunJournal.barrier`.
            ShuttingDown: the root stops, and nothing can be written; or as `RunJournal.barrier`.
        """
        began = self._clock()
        while True:
            if self._stopping():
                self.leave()
            with trio.move_on_after(LOOK_EVERY):
                await self.rows.barrier()
                return
            trouble = self.trouble
            if trouble and self._stopping():
                raise ShuttingDown(f"{self.rows.run} has been stopped: it {trouble}")
            if trouble and within is not None and self._clock() - began >= within:
                raise JournalError(f"{self.rows.run} {trouble}")

    def over(self, status: str) -> None:
        """It is over, unless the root stops, and it may go on in the next process."""
        self.append("", Over(self.now, status))
        self._is_over = not self.left
        self.rows.tell(encode_about(without_secrets(self.about)), over=True)

    async def is_over(self) -> bool:
        """Whether it will not go on in another process: what it has come to is on the disk."""
        try:
            await self.barrier()
        except (JournalError, ShuttingDown):
            return False
        return not self.left

    def lives(self, life: int, version: str) -> None:
        """Say that another process goes on with it: this one."""
        self.append("", Lived(self.now, life, version, time.time()))

    def is_well(self) -> None:
        """The process has lived long enough to say that this run does not end it."""
        if self.about.since:
            self.tell(since=0)


def _digest(data: msgspec.Raw) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
