"""Passes a call's arguments to its runner in a memory file, without a shell.

Python and TypeScript get JSON. Bash gets words that each end with a NUL, which `runners/run.sh` reads with `mapfile`
and never evaluates:

    raw NUL <NAME> NUL <arguments as JSON>   before the others; a variable that is too long for the environment
    direct NUL <function> NUL <record>...
    line NUL <word> NUL <word>...            a file with a generated parser of its own gets its command line

    need <program>
    env  <NAME> <required> <has default> <default> <default function> <choices function> <n> <choice> * n
    arg  <name> <label> <one|many> <positional> <given> <default function> <choices function> <n> <value> * n

What can be decided here is decided here: defaults and choices that stand in the file. What a function of the file says
is asked in bash, after the file was read, and so are environment variables, which the file may set itself.
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
"""Of the descriptors that a tool inherits."""

NO_RAW: Mapping[str, str] = {}

_WORD = re.compile(r"[A-Za-z0-9_]+")


def out_of_the_way(fd: int) -> int:
    """The descriptor under a number that no script means when it writes `exec 9>lock`; the given one is closed."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_NUMBER)
    except OSError:  # this user may not have that many
        return fd
    os.close(fd)
    return high


def memory_file(data: bytes) -> int:
    """A descriptor of a file that is nowhere, with this in it, to be read from the beginning. The caller closes it."""
    fd = out_of_the_way(os.memfd_create("callboard-call"))
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def raw_json(arguments: Arguments, declaration: Declaration) -> str:
    """The arguments as JSON.

    Raises:
        ToolFailed: there is half a character in them.
    """
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError as error:
        raise _half_a_character(declaration, error) from error


class Host(msgspec.Struct, frozen=True):
    """The program that a Python function was written for, where that is not Loki, as `run.py` plays it.

    Attributes:
        script: a Python file; its `enter(given, ask)` returns an object with `arguments(function)` and `result(value)`.
        given: passed to it.
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
    """What the runner reads.

    Args:
        environ: the call's environment, where an argument may have a variable stand in for it.
        raw: variables set in bash here if the environment lacks them. Programs that the file starts don't
            see these.
        host: of a Python function that has one.

    Raises:
        ToolFailed: a value can't be told to bash, or does not fit the file's choices.
    """
    if declaration.language != "bash":
        call: dict[str, Json] = {
            "file": os.path.abspath(declaration.file),  # noqa: PTH100 - `resolve` would follow links away from the file
            "function": declaration.function,
            "arguments": arguments,
            "names": list(declaration.parameters.get("properties", {})),
        }
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
    """The command line that says the same, word by word, as Loki's generated parsers take it: no shell reads it."""
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
            words += _said(argument, value)
    for name, value in arguments.items():
        if name not in known:
            words += _guessed(name, value)
    # A positional that looks like an option is one to any parser, unless `--` ends the options.
    dashed = any(word.startswith("-") for word in positional)
    return [*words, *(["--"] if dashed else []), *positional]


def as_text(value: Json) -> str:
    """A JSON value as bash sees it: a text as it is, anything else as JSON."""
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
        # Options with several values each, given several times, are lists of lists; to bash it is one list.
        return [as_text(one) for each in value for one in (each if isinstance(each, list) else [each])]
    if isinstance(value, str) and argument.comma:
        return value.split(argument.comma)
    return [as_text(value)]


def _count(value: Json) -> int:
    return max(int(value), 0) if isinstance(value, bool | int | float) else int(bool(value))


def _option(argument: Argument) -> str:
    return f"--{argument.long}" if argument.long else argument.short


def _said(argument: Argument, value: Json) -> Iterator[str]:
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
    """An argument that the declaration does not name, by its type alone."""
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
    if "\0" in word:
        raise ToolFailed(f"Tool '{declaration.name}' can't be given a NUL character: it is a bash tool")
    try:
        return word.encode() + b"\0"
    except UnicodeEncodeError as error:
        raise _half_a_character(declaration, error) from error


def _half_a_character(declaration: Declaration, error: UnicodeEncodeError) -> ToolFailed:
    return ToolFailed(f"Tool '{declaration.name}' was given text with half a character in it ({error})")
