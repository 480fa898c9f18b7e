"""Encoding of a call's arguments for its runner, passed in a memory file without a shell.

Python and TypeScript runners read JSON. The bash runner reads words that each end with a NUL; `runners/run.sh` reads
them with `mapfile` and never evaluates them:

    raw NUL <NAME> NUL <arguments as JSON>   before the others; a variable that is too long for the environment
    direct NUL <function> NUL <record>...
    line NUL <word> NUL <word>...            a file with a generated parser of its own gets its command line

    need <program>
    env  <NAME> <required> <has default> <default> <default function> <choices function> <n> <choice> * n
    arg  <name> <label> <one|many> <positional> <given> <default function> <choices function> <n> <value> * n

Constant defaults and choices are resolved here. Functions of the file that compute them run in bash, after the file was
read. Environment variables are also read there, because the file may set them.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .....protocol.errors import ToolFailed
from ..tool import Arguments, Json

if TYPE_CHECKING:
    from ..declare.declaration import Argument, Declaration

FIRST_NUMBER = 300
"""Lowest number of descriptors that a tool inherits."""

NO_RAW: Mapping[str, str] = {}

_WORD = re.compile(r"[A-Za-z0-9_]+")


def out_of_the_way(fd: int) -> int:
    """Move the descriptor to a high number that no script uses by itself (`exec 9>lock`). The original is closed."""
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
    """Return the content of the call file.

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
        raise ToolFailed(f"Tool '{declaration.name}' can't be given a NUL character: it is a bash tool")
    try:
        return word.encode() + b"\0"
    except UnicodeEncodeError as error:
        raise _half_a_character(declaration, error) from error


def _half_a_character(declaration: Declaration, error: UnicodeEncodeError) -> ToolFailed:
    return ToolFailed(f"Tool '{declaration.name}' was given text with half a character in it ({error})")
