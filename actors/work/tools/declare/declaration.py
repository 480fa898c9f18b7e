"""What a tool file declares: one `Declaration` for each function that a model may call.

`parameters` is all that the model sees of the arguments. How a JSON property then reaches the function depends on the
language: Python gets keyword arguments, TypeScript positional ones in the order of `parameters`, and bash what its
`arguments` say, because an option, a flag and a positional look the same in JSON.

A property that is not in `required` may be missing from a call. If the function itself has a default for it, that
counts (also where the schema can't show it, as with `default=time.time()`); if it has none (`Optional[int]` without
`= None`), the function is given None, null, or for bash nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from .....protocol.problems import Problem
from .....protocol.repeats import Repeats

Language: TypeAlias = Literal["bash", "python", "typescript"]
Schema: TypeAlias = dict[str, Any]
"""A JSON Schema. It holds no `$ref`: nested types stand where they are used, as not every provider follows one."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for the value of an argument or a variable, and what it may be.

    Attributes:
        default: as written in the file, or None.
        default_function: the shell function that prints the default, or None.
        choices: the values allowed.
        choices_function: the shell function that prints them, one a line, or None.
        check_choices: whether other values are refused (``[?`fn`]`` only suggests).
    """

    default: str | None = None
    default_function: str | None = None
    choices: tuple[str, ...] = ()
    choices_function: str | None = None
    check_choices: bool = True


class Argument(Value, frozen=True, kw_only=True):
    """How one JSON property reaches a bash function.

    Attributes:
        name: the JSON property, and the variable after `argc_`: as in the file, with `_` for `-`, `.` and `:`.
        kind: `@option`, `@flag` or `@arg`.
        long: the name as in the file (`file-path`), of positionals too; "" for an option with a short name only.
        short: the short name with its dash (`-b`), or "".
        multiple: takes several values (`*`, `+`); of a flag, that it may be repeated: its JSON value is a count then.
        comma: separates the values of one word (`*,` means ","), or "". In JSON they are an array all the same.
        capture: takes every word that is left (`~`).
        values: words that one occurrence takes: 2 for `--from-to <SRC> <DEST>`, 0 for a flag. More than one is an array
            in JSON.
        more: the last of several notations takes any number of words (`<SRC> <DEST+>`).
        required: the call must have it (`!`, `+`).
        environment: the variable that stands in for a missing value (`$NAME`, or `$$` for the name itself), or "".
    """

    name: str
    kind: Literal["option", "flag", "positional"]
    long: str = ""
    short: str = ""
    multiple: bool = False
    comma: str = ""
    capture: bool = False
    values: int = 1
    more: bool = False
    required: bool = False
    environment: str = ""


class EnvVar(Value, frozen=True, kw_only=True):
    """A variable that a bash tool reads (`@env`)."""

    name: str
    description: str = ""
    required: bool = False


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, as its file declares it.

    Attributes:
        name: what the model calls: the function's name, or the file's for a global tool.
        description: for the model; never empty, except of `_instructions`.
        parameters: JSON Schema of type object, always with `properties` and `required`, in the order of the file.
        file: where it stands.
        function: what is to be called there.
        line: where the function is defined, 1-based.
        language: decides how it is run.
        interpreter: command of the file's `#!` line, without `env`; () means the default of the language.
        requires: programs that must be on the PATH (`@meta require-tools`).
        arguments: bash only, in the order of the file.
        environment: bash only; the file's own and the function's.
        built: bash only; the file holds a parser that argc or Loki generated into it, and is to be run with a command
            line.
        repeats: what the file says of a call that is made twice; see `repeats`.
    """

    name: str
    description: str
    parameters: Schema
    file: Path
    function: str
    line: int
    language: Language
    interpreter: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    environment: tuple[EnvVar, ...] = ()
    built: bool = False
    repeats: Repeats | None = None


class ToolFile(msgspec.Struct, frozen=True, kw_only=True):
    """A tool file that was read.

    Attributes:
        file: which.
        declarations: what a model may call, in the order of the file. A function with an error is left out.
        instructions: the function `_instructions`, which writes an agent's instructions.
        problems: everything that was found, errors and warnings, by line.
    """

    file: Path
    declarations: list[Declaration] = msgspec.field(default_factory=list)
    instructions: Declaration | None = None
    problems: list[Problem] = msgspec.field(default_factory=list)
