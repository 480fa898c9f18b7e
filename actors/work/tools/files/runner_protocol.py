"""Protocol between this program and the runner of a tool: the arguments of a call, and questions to the user.

**Arguments** are in a memory file, and pass without a shell. Python and TypeScript runners read JSON. The bash runner
reads words that each end with a NUL; `runners/run.sh` reads them with `mapfile` and never evaluates them:

    raw NUL <NAME> NUL <arguments as JSON>   before the others; a variable that is too long for the environment
    direct NUL <function> NUL <record>...
    line NUL <word> NUL <word>...            a file with a generated parser of its own gets its command line

    need <program>
    env  <NAME> <required> <has default> <default> <default function> <choices function> <n> <choice> * n
    arg  <name> <label> <one|many> <positional> <given> <default function> <choices function> <n> <value> * n

Constant defaults and choices are resolved here. Functions of the file that compute them run in bash, after the file was
read. Environment variables are also read there, because the file may set them.

**Questions** pass over an inherited socket instead of a terminal. A tool has no terminal, and its stdin is empty. Its
runner, `prompt-utils.sh`, or any child process that knows this protocol writes a question to the descriptor in
`CALLBOARD_ASK_FD` and reads the answer from it:

    question   <number of fields> NUL <field> NUL ...        each field is `name=value`
    answer     ok NUL <number of values> NUL <value> NUL ... or   no NUL 1 NUL <why> NUL

Every word is text that ends with a NUL, so pure bash can speak the protocol. Fields: `text`, `kind` (of `Question`),
`option` (any number), `default`, `secret=1`, `guard=1` (only people may answer), `free=0`, `timeout` (seconds), `node`
(the node that asks). An answer to `checkbox` has one value per chosen option, every other answer one value. The answer
to `confirm` is `yes` or `no`.

Each question becomes `me.ask_person` on the call's own actor, and the call's clock is stopped until the answer.
Questions of one tool are asked one at a time. A tool that breaks the protocol gets `no`, and its socket is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast, get_args

import msgspec
import trio

from .....protocol.errors import NobodyToAsk, Saturated, ShuttingDown, ToolFailed
from .....protocol.kernel.questions import Question, QuestionKind, yes_or_no
from .....supervisors.escalation import QuestionTimeout
from ..tool import Arguments, Json

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ...call_clock import Clock
    from ..declare.declaration import Argument, Declaration


FIRST_NUMBER = 300
"""Lowest number of descriptors that a tool inherits."""

NO_RAW: Mapping[str, str] = {}

_WORD = re.compile(r"[A-Za-z0-9_]+")


def out_of_the_way(fd: int) -> int:
    """Move a descriptor to a high number that no script uses by itself (`exec 9>lock`), and return that number.

    The original is closed. If the limit on open files does not allow a high number, the original is returned.
    """
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_NUMBER)
    except OSError:  # The user's limit on open files is lower: keep the number.
        return fd
    os.close(fd)
    return high


def memory_file(data: bytes) -> int:
    """Return a descriptor of an anonymous file with this content, positioned at its beginning. The caller closes it."""
    fd = out_of_the_way(os.memfd_create("callboard-call"))
    left = memoryview(data)
    while left:
        # A write may be partial.
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def raw_json(arguments: Arguments, declaration: Declaration) -> str:
    """Return the arguments as JSON.

    Raises:
        ToolFailed: they contain half of a surrogate pair.
    """
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError as error:
        raise _half_a_character(declaration, error) from error


class Host(msgspec.Struct, frozen=True):
    """Adapter for a Python function that was written for another program than Loki; executed by `run.py`.

    Attributes:
        script: a Python file; its `enter(given, ask)` returns an object with `arguments(function)` and `result(value)`.
        given: the first argument of `enter`.
    """

    script: Path
    given: Mapping[str, Json]


def handed_over(
    declaration: Declaration,
    arguments: Arguments,
    environ: Mapping[str, str],
    *,
    raw: Mapping[str, str] = NO_RAW,
    host: Host | None = None,
) -> bytes:
    """Return the bytes that a runner reads from its call file: the function, and its arguments.

    Args:
        environ: the call's environment, in which a variable may supply an argument.
        raw: variables that bash sets if the environment lacks them. Programs that the file starts do not see these.
        host: of a Python function that has one.

    Raises:
        ToolFailed: bash cannot represent a value, or a value is not one of the file's choices.
    """
    if declaration.language != "bash":
        call: dict[str, Json] = {
            "file": os.path.abspath(declaration.file),  # noqa: PTH100 - `resolve` would follow links away from the file
            "function": declaration.function,
            "arguments": arguments,
            "names": list(declaration.parameters.get("properties", {})),
        }
        if declaration.takes_object:
            call["whole"] = True
        if host is not None:
            call["host"] = {"script": str(host.script), "given": host.given}
        try:
            return msgspec.json.encode(call)
        except UnicodeEncodeError as error:
            raise _half_a_character(declaration, error) from error
    if declaration.built:
        command = [] if declaration.function == "main" else [declaration.function]
        words: Iterator[str] | list[str] = ["line", *command, *to_arguments(declaration, arguments)]
    else:
        words = _records(declaration, arguments, environ)
    told = [word for name, value in raw.items() if name not in environ for word in ("raw", name, value)]
    return b"".join(_encoded(word, declaration) for word in (*told, *words))


def to_arguments(declaration: Declaration, arguments: Arguments) -> list[str]:
    """Return the arguments as command-line words for Loki's generated parsers; no shell interprets them."""
    words: list[str] = []
    positional: list[str] = []
    known = {argument.name for argument in declaration.arguments}
    for argument in declaration.arguments:
        value = arguments.get(argument.name)
        if value is None:
            continue
        if argument.kind == "positional":
            positional += _values(argument, value)
        elif argument.kind == "flag":
            words += [_option(argument)] * int(_count(value))
        else:
            words += _argument_texts(argument, value)
    for name, value in arguments.items():
        if name not in known:
            words += _guessed(name, value)
    # A positional that looks like an option is one to any parser, unless `--` ends the options.
    dashed = any(word.startswith("-") for word in positional)
    return [*words, *(["--"] if dashed else []), *positional]


def as_text(value: Json) -> str:
    """Return a JSON value as bash sees it: a text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _records(declaration: Declaration, arguments: Arguments, environ: Mapping[str, str]) -> Iterator[str]:
    yield from ("direct", declaration.function)
    for program in declaration.requires:
        yield from ("need", program)
    for variable in declaration.environment:
        required, default = _bit(variable.required), variable.default
        yield from ("env", variable.name, required, _bit(default is not None), default or "")
        checked = variable.check_choices
        yield from (variable.default_function or "", variable.choices_function or "" if checked else "")
        choices = variable.choices if checked else ()
        yield from (str(len(choices)), *choices)
    for argument in declaration.arguments:
        value = arguments.get(argument.name)
        if value is None and argument.environment:
            value = environ.get(argument.environment)
        yield from _argument_record(argument, argument.default if value is None else value, declaration)


def _argument_record(argument: Argument, value: Json, declaration: Declaration) -> Iterator[str]:
    if not _WORD.fullmatch(argument.name):
        raise ToolFailed(f"Tool '{declaration.name}': '{argument.name}' can't be the name of a bash variable")
    values = [] if value is None else _values(argument, value)
    if argument.kind != "flag" and argument.check_choices and argument.choices:
        for one in values:
            if one not in argument.choices:
                allowed = ", ".join(argument.choices)
                raise ToolFailed(f"Argument '{argument.name}' must be one of {allowed}; it is '{one[:100]}'")
    given = value is not None and not (argument.kind == "flag" and not values)
    call = "" if given else argument.default_function or ""
    choices = argument.choices_function or "" if argument.check_choices else ""
    yield from ("arg", argument.name, argument.long or argument.name)
    yield from ("many" if _is_many(argument) else "one", _bit(argument.kind == "positional"), _bit(given))
    yield from (call, choices, str(len(values)), *values)


def _is_many(argument: Argument) -> bool:
    several = argument.multiple or argument.capture or argument.more or argument.values > 1
    return several and argument.kind != "flag"


def _values(argument: Argument, value: Json) -> list[str]:
    if argument.kind == "flag":
        count = _count(value)
        return [str(count)] if count else []
    if not _is_many(argument):
        return [as_text(value)]
    if isinstance(value, list):
        # Options with several values each, given several times, are lists of lists; bash receives one flat list.
        return [as_text(one) for each in value for one in (each if isinstance(each, list) else [each])]
    if isinstance(value, str) and argument.comma:
        return value.split(argument.comma)
    return [as_text(value)]


def _count(value: Json) -> int:
    return max(int(value), 0) if isinstance(value, bool | int | float) else int(bool(value))


def _option(argument: Argument) -> str:
    return f"--{argument.long}" if argument.long else argument.short


def _argument_texts(argument: Argument, value: Json) -> Iterator[str]:
    values = _values(argument, value)
    if argument.values > 1 or argument.more:
        yield from (_option(argument), *values)
        return
    for one in values:
        if argument.long:
            yield f"--{argument.long}={one}"
        else:
            yield from (argument.short, one)


def _guessed(name: str, value: Json) -> Iterator[str]:
    """Yield options for an argument that the declaration does not name, by its type alone."""
    option = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        if value:
            yield option
    elif value is not None:
        for one in value if isinstance(value, list) else [value]:
            yield f"{option}={as_text(one)}"


def _bit(value: bool) -> str:
    return "1" if value else "0"


def _encoded(word: str, declaration: Declaration) -> bytes:
    # NUL ends each word of the protocol, and bash variables cannot contain it.
    if "\0" in word:
        raise ToolFailed(f"Tool '{declaration.name}' can't receive a NUL character, because it is a bash tool")
    try:
        return word.encode() + b"\0"
    except UnicodeEncodeError as error:
        raise _half_a_character(declaration, error) from error


def _half_a_character(declaration: Declaration, error: UnicodeEncodeError) -> ToolFailed:
    return ToolFailed(f"Tool '{declaration.name}' was called with text that is not valid Unicode ({error})")


LONGEST = 256 * 1024
"""Maximum bytes of one question with all its options."""

MOST_FIELDS = 1000

TRIES = 5
"""Maximum attempts at a question whose answers do not fit; the answering client may be a program."""


class NotUnderstood(Exception):
    """A message on the socket that is not a valid question."""


class AskSocket:
    """Socket pair of one call: one end for the tool, one for this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._theirs = socket.socket(fileno=out_of_the_way(theirs.detach()))
        self._ours = trio.socket.from_stdlib_socket(ours)
        self._stream = trio.SocketStream(self._ours)
        self._buffer = bytearray()
        self._room = LONGEST

    @property
    def theirs(self) -> int:
        """Descriptor number that the tool inherits."""
        return self._theirs.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.handed_over()
        self._ours.close()

    def handed_over(self) -> None:
        """Close this process's copy of the tool's end after the tool inherited it.

        Otherwise the end of file would never arrive.
        """
        self._theirs.close()

    async def serve(self, me: Actor, clock: Clock, tool: str) -> None:
        """Send `go`, then answer questions on behalf of `me` until the tool closes its socket."""
        await self._send(["go"])
        try:
            while fields := await self._receive():
                with clock.stopped():
                    status, values = await answer_to(me, fields, tool)
                await self._send([status, str(len(values)), *values])
        except NotUnderstood as error:
            # After a protocol error the position in the stream is unknown, so the socket is closed.
            await self._send(["no", "1", str(error)])
            await self._stream.aclose()

    async def _send(self, words: list[str]) -> None:
        data = b"".join(word.replace("\0", "").encode("utf-8", "replace") + b"\0" for word in words)
        # Ignore a tool that exited before it read its answer: the process supervisor handles its end.
        with contextlib.suppress(trio.BrokenResourceError):
            await self._stream.send_all(data)

    async def _receive(self) -> list[str]:
        self._room = LONGEST
        first = await self._word()
        if first is None:
            return []
        if not re.fullmatch(r"[0-9]{1,4}", first) or not 0 < int(first) <= MOST_FIELDS:
            raise NotUnderstood(f"a question must begin with the number of its fields, not with {first[:40]!r}")
        words = [await self._word() for _ in range(int(first))]
        # The tool closed the socket in the middle of a question: treat it as the end.
        return [word for word in words if word is not None] if None not in words else []

    async def _word(self) -> str | None:
        looked = 0
        while (end := self._buffer.find(b"\0", looked)) < 0:
            looked = len(self._buffer)
            if looked > self._room:
                raise NotUnderstood(f"a question may have at most {LONGEST // 1024} KiB")
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                return None
            self._buffer += data
        word = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._room -= end + 1
        return word.decode("utf-8", "replace")


Status = Literal["ok", "no"]


async def answer_to(me: Actor, fields: list[str], tool: str) -> tuple[Status, list[str]]:
    """Ask the user on behalf of `me`. Return `ok` with the values of the answer, or `no` with the reason.

    Raises:
        NotUnderstood: the fields form no valid question.
    """
    question = _question(fields, tool)
    try:
        for _ in range(TRIES):
            values, problem = _check(question, (await me.ask_person(question)).value)
            if not problem:
                return "ok", values
            question = msgspec.structs.replace(question, problem=problem)
        return "no", [f"the answer can't be used: {question.problem}"]
    except (NobodyToAsk, QuestionTimeout, Saturated) as error:
        return "no", [str(error)]
    except ShuttingDown:
        return "no", ["the run is being stopped"]


def _question(fields: list[str], tool: str) -> Question:
    one: dict[str, str] = {}
    options: list[str] = []
    for field in fields:
        name, found, value = field.partition("=")
        if not found:
            raise NotUnderstood(f"a field of a question must be name=value, not {field[:40]!r}")
        if name == "option":
            options.append(value)
        else:
            one[name] = value
    kind = one.get("kind", "text")
    if kind not in get_args(QuestionKind):
        raise NotUnderstood(
            f"the kind of a question must be one of {', '.join(get_args(QuestionKind))}, not {kind[:40]!r}"
        )
    if kind in ("choice", "checkbox") and not options:
        raise NotUnderstood(f"a question of the kind {kind} needs options")
    return Question(
        id="",
        actor="",
        text=one.get("text") or f"The tool '{tool}' waits for a line of input.",
        kind=cast("QuestionKind", kind),
        options=tuple(options),
        free=kind == "text" or (kind == "choice" and one.get("free") == "1"),
        default=one.get("default"),
        timeout=_seconds(one.get("timeout", "")),
        secret=one.get("secret") == "1",
        people=one.get("guard") == "1",
        node=one.get("node"),
    )


def _seconds(text: str) -> float | None:
    try:
        return max(float(text), 0.0) if text else None
    except ValueError as error:
        raise NotUnderstood(f"the timeout of a question must be a number of seconds, not {text[:40]!r}") from error


def _check(question: Question, given: str | list[str]) -> tuple[list[str], str]:
    values = [given] if isinstance(given, str) else list(given)
    if question.kind == "confirm":
        said = yes_or_no(values[0]) if values else None
        return ([], "answer yes or no") if said is None else ([said], "")
    if question.kind != "checkbox":
        values = values[:1] or [""]
    if question.options and not question.free:
        strange = [value for value in values if value not in question.options]
        if strange:
            return [], f"{strange[0]!r} is not among the options"
    return values, ""
