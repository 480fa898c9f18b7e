"""The rows of a durable run: what is on disk of it, and what it goes on from.

Deciders are deterministic, and told everything by message (`messages`). So the rows are those messages (`Told`), each
with the path of its decider below the run, and little else: how the run began, what was about to be done to the world
(`Intends`, before it is), questions to people and their answers, and what a node's own code has found out that it would
find out anew (`Noted`).

    path    1        the work of key 1 of the run's first decider, and its first decider
            1/3.2    in that, the second work of key 3
            1:2      in the work of key 1, its second decider
    1/agent_explore_1a2b3c4d   the child of this id that the agent in the work of key 1 has spawned

A row is msgpack: an array, begun by its number. A message in it is one as well. That a no-op node was left takes some
30 bytes, a reply with a call 190, a result of 2 kB 2,030; a whole history (`ConversationBegun`) or a large state takes
as much as its text, and over 16 KiB the journal keeps it once, however many rows say the same. Whole numbers of more
than 64 bits, which are no msgpack, are an extension.

Numbers are never given anew, and new fields come last, with a default: rows are read by every later version. `FOLD`
says by which rules messages are folded; it rises when the same messages come to something else.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from .agent import Agent
from .decoding import msgpack_decoder
from .kernel.questions import Answer, Question
from .messages import (
    CallsBegun,
    ChildEnded,
    ConversationBegun,
    EscalationClosed,
    EscalationNoted,
    FamilyCalled,
    GraphBegun,
    Idle,
    Letter,
    LookedAround,
    MapBegun,
    NodeLeft,
    Partial,
    PersonSays,
    Replied,
    ResultsKept,
    ServersAnew,
    StateSet,
    Summarized,
    TimerFired,
    ToolDone,
    WorkFailed,
)
from .requests import RunRequest
from .workflow_messages import Fired, NodeSaid, UnitsBegun, WorkflowBegun

FOLD = 1

T = TypeVar("T")

_BIG = 1
"""The extension that a large whole number is."""

Kept: TypeAlias = (
    CallsBegun
    | ChildEnded
    | ConversationBegun
    | EscalationClosed
    | EscalationNoted
    | FamilyCalled
    | Fired
    | GraphBegun
    | Idle
    | Letter
    | LookedAround
    | MapBegun
    | NodeLeft
    | NodeSaid
    | Partial
    | PersonSays
    | Replied
    | ResultsKept
    | ServersAnew
    | StateSet
    | Summarized
    | TimerFired
    | ToolDone
    | UnitsBegun
    | WorkFailed
    | WorkflowBegun
)
"""The messages that can be kept. A run whose deciders are told another can't go on after a kill, and says so."""


CAN_BE_KEPT: frozenset[type] = frozenset(get_args(Kept))


class Row(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all rows.

    Attributes:
        at: milliseconds that the run had been played when it was written, in all its lives.
    """

    at: int


class Began(Row, frozen=True, tag=1):
    """The first row: what is to be run.

    Attributes:
        request: with the id of the run, and a directory to work in.
        definition: the file of its target; None for an agent that was made by a program.
        fold: see `FOLD`.
        version: of callboard.
        wall: when, in seconds since 1970.
        owner: the subject whose run it is.
        functions: names of Python functions that its agents may call: who goes on with it brings them along.
        forked_from, forked_at: the run whose rows up to that number it has begun with; "" for one that has none.
        agent: its agent, where that may not be what its file says: a session or a program has changed it.
        settings: what its own settings say otherwise than those of the process.
        session: the session that it is a turn of.
    """

    request: RunRequest
    definition: Definition | None
    fold: int
    version: str
    wall: float
    owner: str = ""
    functions: tuple[str, ...] = ()
    forked_from: str = ""
    forked_at: int = 0
    agent: Agent | None = None
    settings: dict[str, Any] = {}
    session: InSession | None = None


class InSession(msgspec.Struct, frozen=True, array_like=True):
    """The session that a run is a turn of, by its id and its agent; and how many turns were said there before.

    These are not in the request of the run: the session's file has them, and its conversation as it began.
    """

    id: str
    agent: str | None
    before: int


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """The file that a run is of, or that of an agent that it calls, as it was when it was read.

    Attributes:
        dialect: `graph`, `agent` or `workflow`.
        file: as it was named; directory: where it stands.
        parts: the texts of the files of its subgraphs, by absolute path.
        sums: of the files that are executed in place (scripts, tool files, functions), by absolute path.
    """

    dialect: Literal["graph", "agent", "workflow"]
    file: str
    directory: str
    text: str
    parts: dict[str, str] = {}
    sums: dict[str, str] = {}


class Lived(Row, frozen=True, tag=2):
    """Another process goes on with it."""

    life: int
    version: str
    wall: float


class Over(Row, frozen=True, tag=3):
    """It is over, with this status."""

    status: str


class Told(Row, frozen=True, tag=4):
    """A decider was told this; the first of a decider is what it began with."""

    message: Kept


class Intends(Row, frozen=True, tag=5):
    """The world is about to be changed by work of this path; whether it was, the end of the work tells.

    Attributes:
        what: the tool or script, for people.
        server: the MCP server whose tool it is, which remembers it perhaps; "" for none.
    """

    what: str
    server: str = ""


class Asked(Row, frozen=True, tag=6):
    """A person was asked; `wall` is when, as a question's time runs on while no process lives."""

    question: Question
    wall: float


class Answered(Row, frozen=True, tag=7):
    """An answer was accepted. That to a secret question is in no row: it is asked anew."""

    answer: Answer


class Noted(Row, frozen=True, tag=8):
    """What a node's own code has found out, in the order in which it asked; `name` says what (`reply`: of a model)."""

    name: str
    value: msgspec.Raw


LETTER = "letter"
"""What a `Posted` is noted as."""


class Posted(msgspec.Struct, frozen=True, array_like=True):
    """What has become of a letter that an agent wanted to send, noted where it did.

    Attributes:
        to: path of the decider that is to be told of it, or has been.
        letter: it; None if it could not be sent.
        problem: why.
    """

    to: str
    letter: Letter | None
    problem: str | None = None


class Spoilt(Row, frozen=True, tag=9):
    """From here on something happened that can't be kept, so the run can't go on after a kill."""

    why: str


AnyRow: TypeAlias = Began | Lived | Over | Told | Intends | Asked | Answered | Noted | Spoilt


class About(msgspec.Struct, frozen=True, array_like=True):
    """What lists of runs say of one without reading its rows.

    Attributes:
        target: what was named; name: what it calls itself.
        prompt: the first words.
        cwd, config_dir: the directories that it works in and has its agents from.
        owner: the subject whose run it is.
        by: what plays it: `run`, `ask`, `batch`, `chat`, `serve`, `worker`; "" for a program.
        session: id of the session that it is a turn of, or "".
        spoilt: why it can't go on, or "".
        rows: how many it had when the process that plays it took it over.
        since: the first life of those that have, one after another, written no row but that they go on with it.
        left: its process has ended in order, and left it to the next.
        dormant: it waits for people alone, and nobody plays it until an answer comes.
    """

    target: str
    name: str
    prompt: str
    cwd: str
    config_dir: str
    owner: str
    by: str = ""
    session: str = ""
    spoilt: str = ""
    rows: int = 0
    since: int = 0
    left: bool = False
    dormant: bool = False

    def is_idle(self, rows: int) -> bool:
        """Whether the life that ended when it had so many rows was killed, and has written none but its first."""
        return bool(self.since) and rows - self.rows <= 1 and not self.left

    def taken_over(self, life: int, rows: int) -> About:
        """As a process says it that goes on with it: the life of this number, from so many rows on."""
        since = self.since if self.is_idle(rows) else life
        return msgspec.structs.replace(self, rows=rows, since=since, left=self.dormant)


BATCH, BY_SERVER, BY_WORKER = "batch", "serve", "worker"
"""What plays runs that are tasks of a batch, those of a server, and those of a cluster (`About.by`)."""

STUCK = 3
"""Processes that have died without a new row of a run, after which only a person goes on with it."""


def encode_about(about: About) -> bytes:
    """It as bytes."""
    return _ENCODER.encode(about)


def decode_about(data: bytes) -> About:
    """What these bytes say. Raises as `decode` does."""
    about: About = _about_decoder().decode(data)
    return about


def encode(row: AnyRow) -> bytes:
    """A row as bytes.

    Raises:
        TypeError, ValueError: it holds what is no data.
    """
    try:
        return _ENCODER.encode(row)
    except OverflowError:
        return _ENCODER.encode(_with_big_numbers(msgspec.to_builtins(row)))


def decode(data: bytes) -> AnyRow:
    """The row of these bytes.

    Raises:
        msgspec.DecodeError: they are none.
    """
    row: AnyRow = _decoder().decode(data)
    return row


def encode_value(value: Any) -> msgspec.Raw:
    """A value for `Noted`. Raises as `encode` does."""
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except OverflowError:
        return msgspec.Raw(_ENCODER.encode(_with_big_numbers(msgspec.to_builtins(value))))


def decode_value(value: msgspec.Raw, kind: type[T]) -> T:
    """The value of a `Noted`. Raises as `decode` does."""
    found: T = msgpack_decoder(kind, ext_hook=_ext).decode(value)
    return found


def _with_big_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_big_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_big_numbers(each) for each in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_BIG, str(value).encode())
    return value


def _ext(code: int, data: memoryview) -> Any:
    return int(bytes(data)) if code == _BIG else msgspec.msgpack.Ext(code, bytes(data))


_ENCODER = msgspec.msgpack.Encoder()

encode_plain = _ENCODER.encode
"""As `encode`, of a row without whole numbers of more than 64 bits: OverflowError says that it has one."""


@cache  # made when a run goes on: it takes a while
def _decoder() -> msgspec.msgpack.Decoder[AnyRow]:
    return msgpack_decoder(AnyRow, ext_hook=_ext)


@cache
def _about_decoder() -> msgspec.msgpack.Decoder[About]:
    return msgpack_decoder(About)
