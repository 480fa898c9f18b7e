"""Rows of a durable run: its stored history, from which it is recovered.

Deciders are deterministic, and receive all input as messages (`messages`). Therefore the rows are those messages
(`MessageRow`), each with the path of its decider below the run, and few others. The others record the beginning of
the run, external effects before they are performed (`Intends`), and questions to users with their answers. `Noted` has
values that the code of a node computed and would compute differently in a later incarnation.

    path    1        the work of key 1 of the run's first decider, and its first decider
            1/3.2    in that, the second work of key 3
            1:2      in the work of key 1, its second decider
    1/agent_explore_1a2b3c4d   the child of this id that the agent in the work of key 1 has spawned

A row is msgpack: an array that begins with the number of its type. A message in it is encoded likewise. The exit of a
no-op node takes about 30 bytes, a reply with a call 190, and a result of 2 kB 2,030. A whole history
(`ConversationBegun`) or a large state takes as much as its text; over 16 KiB the journal stores it once, however many
rows contain it. Integers of more than 64 bits, which msgpack does not have, are an extension.

Numbers of types are never reused, and new fields are added last, with a default, because every later version must
read the rows. `FOLD` is the version of the rules by which messages are folded; it increases when the same messages
lead to another result.

`row_as_json` converts a row to JSON for display.
"""

from __future__ import annotations

import base64
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
    MapBegun,
    NodeDone,
    Partial,
    PersonSays,
    Replied,
    ResultsStored,
    ServersRestarted,
    StateSet,
    Summarized,
    TeamMessage,
    TimerFired,
    ToolDone,
    ToolsChecked,
    WorkFailed,
)
from .requests import RunRequest
from .workflow_messages import Fired, NodeCodeDone, UnitsBegun, WorkflowBegun

FOLD = 1

T = TypeVar("T")

# Part of stored rows, so this number must not change.
_BIG = 1
"""Extension type of a large integer."""

# Every member has a number as tag. msgspec refuses a union of number and text tags, so a message such as `MapEnded`
# cannot be added without a new tag.
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
    | TeamMessage
    | ToolsChecked
    | MapBegun
    | NodeDone
    | NodeCodeDone
    | Partial
    | PersonSays
    | Replied
    | ResultsStored
    | ServersRestarted
    | StateSet
    | Summarized
    | TimerFired
    | ToolDone
    | UnitsBegun
    | WorkFailed
    | WorkflowBegun
)
"""Messages that can be stored. A run with any other message to a decider cannot be recovered, and reports that."""


CAN_BE_KEPT: frozenset[type] = frozenset(get_args(Kept))


class Row(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all rows.

    Attributes:
        at: run time in milliseconds when the row was written, in all incarnations together.
    """

    # Fields of the base come first in the array. A second one here would shift those of every row on disk.
    at: int


class Began(Row, frozen=True, tag=1):
    """First row: the beginning of a run.

    Attributes:
        request: request with the id of the run, and its working directory.
        definition: file of its target; None for an agent made by a program.
        fold: see `FOLD`.
        version: version of Callboard.
        wall: time in seconds since 1970.
        owner: subject that owns the run.
        functions: names of Python functions that its agents may call. A resuming process must provide them.
        forked_from, forked_at: run that it was forked from, and the number of rows it began with; "" for no fork.
        agent: its agent, if that may differ from its file, because a session or a program has changed it.
        settings: the run's own settings that differ from the settings of the process.
        session: session in which the run is a turn.
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
    """Session in which the run is a turn: its id, its agent, and the number of earlier turns.

    The conversation is not in the request of the run, because the session's file has it.
    """

    id: str
    agent: str | None
    before: int


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """File of a run's target, or of an agent that the run calls, as it was when it was read.

    Attributes:
        dialect: `graph`, `agent` or `workflow`.
        file: path as it was named.
        directory: its directory.
        parts: texts of the files of its subgraphs, by absolute path.
        sums: checksums of the files executed in place (scripts, tool files, functions), by absolute path.
    """

    dialect: Literal["graph", "agent", "workflow"]
    file: str
    directory: str
    text: str
    parts: dict[str, str] = {}
    sums: dict[str, str] = {}


class Lived(Row, frozen=True, tag=2):
    """Beginning of a further incarnation, in another process."""

    life: int
    version: str
    wall: float


class Over(Row, frozen=True, tag=3):
    """End of the run, with its status."""

    status: str


class MessageRow(Row, frozen=True, tag=4):
    """Message to a decider. The first message of a decider is the request that it began with."""

    message: Kept


class Intends(Row, frozen=True, tag=5):
    """Intent: work of this path is about to have an external effect. The end of the work shows whether it did.

    Attributes:
        what: name of the tool or script, for users.
        server: MCP server of the tool, which may remember the call; "" for none.
    """

    what: str
    server: str = ""


class Asked(Row, frozen=True, tag=6):
    """Question to a user. `wall` is its time, because the timeout also runs while no process lives."""

    question: Question
    wall: float


class Answered(Row, frozen=True, tag=7):
    """Accepted answer. Answers to secret questions are not stored: such a question is asked again."""

    answer: Answer


class Noted(Row, frozen=True, tag=8):
    """Value computed by the code of a node, in the order of its requests; `name` is its kind (`reply`: of a model)."""

    name: str
    value: msgspec.Raw


LETTER = "letter"
"""Name of a noted `Posted`."""


class Posted(msgspec.Struct, frozen=True, array_like=True):
    """Result of sending a team message, noted in the sender's rows.

    Attributes:
        to: path of the decider that receives it, or has received it.
        letter: the message; None if it could not be sent.
        problem: reason why it could not be sent.
    """

    to: str
    letter: TeamMessage | None
    problem: str | None = None


class Spoilt(Row, frozen=True, tag=9):
    """An event that cannot be stored, so the run cannot be recovered from here on."""

    why: str


AnyRow: TypeAlias = Began | Lived | Over | MessageRow | Intends | Asked | Answered | Noted | Spoilt


class About(msgspec.Struct, frozen=True, array_like=True):
    """Summary of a run for lists, which do not read the rows.

    Attributes:
        target: target as it was named.
        name: name in its file.
        prompt: the first characters of the prompt.
        cwd, config_dir: working directory, and configuration directory.
        owner: subject that owns the run.
        by: front end that executes it: `run`, `ask`, `batch`, `chat`, `serve`, `worker`; "" for a program.
        session: id of the session in which it is a turn, or "".
        spoilt: reason why it cannot be resumed, or "".
        rows: number of rows when the present process claimed it.
        since: first of the last incarnations that have written no row except the one of their beginning.
        left: True if its process ended normally, and left the run to the next process.
        dormant: True if it only waits for users, and no process executes it until an answer arrives.
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
        """Return whether the last incarnation was killed before it wrote a second row; `rows` is the number of all
        rows.
        """
        return bool(self.since) and rows - self.rows <= 1 and not self.left

    def taken_over(self, life: int, rows: int) -> About:
        """Return the summary after a process has claimed the run, as incarnation `life` after `rows` rows."""
        since = self.since if self.is_idle(rows) else life
        return msgspec.structs.replace(self, rows=rows, since=since, left=self.dormant)


BATCH, BY_SERVER, BY_WORKER = "batch", "serve", "worker"
"""Values of `About.by` for tasks of a batch, runs of a server, and runs of a cluster."""

STUCK = 3
"""Number of processes that die without a new row, after which only a user may resume the run."""


def encode_about(about: About) -> bytes:
    """Return a summary as bytes."""
    return _ENCODER.encode(about)


def decode_about(data: bytes) -> About:
    """Return the summary in these bytes. Raises as `decode` does."""
    about: About = _about_decoder().decode(data)
    return about


def encode(row: AnyRow) -> bytes:
    """Return a row as bytes.

    Raises:
        TypeError, ValueError: it contains an object that cannot be encoded.
    """
    try:
        return _ENCODER.encode(row)
    except OverflowError:
        # Integers beyond 64 bits are rare, so rows are searched for them only after msgspec has refused one.
        return _ENCODER.encode(_with_big_numbers(msgspec.to_builtins(row, builtin_types=(bytes,))))


def decode(data: bytes) -> AnyRow:
    """Return the row in these bytes.

    Raises:
        msgspec.DecodeError: they are not a row.
    """
    row: AnyRow = _decoder().decode(data)
    return row


def encode_value(value: Any) -> msgspec.Raw:
    """Return a value in the form of `Noted`. Raises as `encode` does."""
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except OverflowError:
        return msgspec.Raw(_ENCODER.encode(_with_big_numbers(msgspec.to_builtins(value, builtin_types=(bytes,)))))


def decode_value(value: msgspec.Raw, kind: type[T]) -> T:
    """Return the value of a `Noted`. Raises as `decode` does."""
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
"""Encode a row without the extension: raises OverflowError for integers of more than 64 bits."""


@cache  # created when a run is resumed, because it takes a while
def _decoder() -> msgspec.msgpack.Decoder[AnyRow]:
    return msgpack_decoder(AnyRow, ext_hook=_ext)


@cache
def _about_decoder() -> msgspec.msgpack.Decoder[About]:
    return msgpack_decoder(About)


Json = Any

LONGEST = 4_000
"""Characters of a text; the middle of a longer one is removed."""


class RowAsJson(msgspec.Struct, frozen=True, kw_only=True):
    """Row for display: its kind, the name and value of its content, and the number of removed characters."""

    kind: str
    name: str
    value: Json
    cut: int


_SHOWN_AS = {
    "MessageRow": "Told",
    "NodeCodeDone": "NodeSaid",
    "NodeDone": "NodeLeft",
    "ResultsStored": "ResultsKept",
    "ServersRestarted": "ServersAnew",
    "TeamMessage": "Letter",
    "ToolsChecked": "LookedAround",
}
"""Former names, under which `callboard runs` shows rows and messages, since scripts read its output."""


def name_of_kind(value: object) -> str:
    """Return the name under which a row or a message is shown to users."""
    name = type(value).__name__
    return _SHOWN_AS.get(name, name)


def row_as_json(row: AnyRow) -> RowAsJson:
    """Return a row for display: structs become objects with the names of their fields, without default values.

    Long texts are cut; `cut` is the number of characters removed.
    """
    kind, name = name_of_kind(row).lower(), ""
    told: Any = row
    if isinstance(row, MessageRow):
        name, told = name_of_kind(row.message), row.message
    elif isinstance(row, Noted):
        name, told = row.name, decode_value(row.value, Any)
    cutting = _Cutting()
    value = cutting.plain(told)
    if told is row:
        del value["at"]  # present in every row
    return RowAsJson(kind=kind, name=name, value=value, cut=cutting.cut)


class _Cutting:
    """Converts values to JSON, and counts the characters that it removes from long texts."""

    def __init__(self) -> None:
        self.cut = 0

    def plain(self, value: Any) -> Json:
        if isinstance(value, msgspec.Struct):
            found = {}
            for field in msgspec.structs.fields(value):
                each = getattr(value, field.name)
                if field.required or each != _default(field):
                    found[field.name] = self.plain(each)
            return found
        if isinstance(value, dict):
            return {str(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(each) for each in value]
        if isinstance(value, msgspec.Raw):
            return self.plain(decode_value(value, Any))
        if isinstance(value, bytes | bytearray | memoryview):
            return self._text(base64.b64encode(bytes(value)).decode())
        if isinstance(value, str):
            return self._text(value)
        return value if isinstance(value, int | float | bool | None) else msgspec.to_builtins(value)

    def _text(self, text: str) -> str:
        if len(text) <= LONGEST:
            return text
        self.cut += len(text) - LONGEST
        return f"{text[: LONGEST // 2]}...{text[-LONGEST // 2 :]}"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT
