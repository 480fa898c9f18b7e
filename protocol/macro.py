"""Macro: lines of a chat that are executed one after another. The file format is Loki's.

    description: Has an agent do something.
    variables:
      - name: agent                    # without a default it has to be given
      - name: task
        rest: true                     # all arguments that are left, with blanks between them
        default: What can you do?
    steps:
      - .agent {{agent}}
      - '{{task}}'

Arguments are assigned to variables by position. `{{name}}` in a step is replaced by the value, which is not scanned
again: an argument cannot insert another variable or another step. Names without a variable are unchanged.

This module reads the file; `actors.work.macros` executes the steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .errors import UsageError
from .problems import Problem, errors_in
from .reading import Reading, in_file_order
from .schema import schema_of
from .yaml_tree import Source, parse_mapping

_REFERENCE = re.compile(r"\{\{([^{}\n]+)\}\}")


class MacroVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A value that an argument gives."""

    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    default: Annotated[
        str | None,
        Meta(
            description="Value without an argument; without this key the argument is required.",
            extra={"number_too": True},
            extra_json_schema={"x-number-too": True},
        ),
    ] = None
    rest: Annotated[bool, Meta(description="Accept all remaining arguments; only for the last variable.")] = False


class MacroFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a macro."""

    description: Annotated[str, Meta(description="Description in a line, shown in lists of macros.")] = ""
    # True, because Loki runs every macro in a context of its own.
    isolated: Annotated[bool, Meta(description="Run in a conversation of its own, not in that of the caller.")] = True
    variables: tuple[MacroVariable, ...] = ()
    steps: Annotated[tuple[str, ...], Meta(description="Lines of the chat: prompts and dot-commands.")]


class Macro(MacroFile, frozen=True, kw_only=True):
    """Macro that was read.

    Attributes:
        called: its name.
        problems: warnings about its file.
    """

    called: str
    source: Source = Source()
    problems: tuple[Problem, ...] = ()

    @property
    def usage(self) -> str:
        """Usage line: `build <target> [flags]...`."""
        parts = [self.called]
        for variable in self.variables:
            form = "<{}>" if variable.default is None else "[{}]"
            parts.append(form.format(variable.name) + ("..." if self._takes_rest(variable) else ""))
        return " ".join(parts)

    def bound(self, arguments: Sequence[str]) -> dict[str, str]:
        """Return the values of its variables.

        Raises:
            UsageError: a variable has neither an argument nor a default.
        """
        values: dict[str, str] = {}
        for place, variable in enumerate(self.variables):
            given: str | None = arguments[place] if place < len(arguments) else None
            if given is not None and self._takes_rest(variable):
                given = " ".join(arguments[place:])
            value = variable.default if given is None else given
            if value is None:
                raise UsageError(f"Missing value for variable '{variable.name}'. Usage: {self.usage}")
            values[variable.name] = value
        return values

    def unused_arguments(self, arguments: Sequence[str]) -> Sequence[str]:
        """Return the arguments that no variable accepts. Loki ignores them silently."""
        takes_all = bool(self.variables) and self._takes_rest(self.variables[-1])
        return () if takes_all else arguments[len(self.variables) :]

    def rendered(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the steps with the variables replaced by their values."""

        def value(found: re.Match[str]) -> str:
            return values.get(found[1], found[0])

        return tuple(_REFERENCE.sub(value, step) for step in self.steps)

    def _takes_rest(self, variable: MacroVariable) -> bool:
        return variable.rest and variable is self.variables[-1]


def read_macro(text: str, file: str, called: str, *, strict: bool = False) -> tuple[Macro | None, list[Problem]]:
    """Return the macro of a file's text, and all problems by line; None if one of them is an error.

    Args:
        file: name of the text in problems.
        called: name of the macro.
        strict: treat warnings (unknown keys) as errors.
    """
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, [_of_macro(problem) for problem in problems]
    reading = Reading(file)
    source = Source(file, text)
    given = {"called": called, "source": source}
    macro = reading.fill(
        Macro, root, what="a macro", given=given, hidden=("called", "source", "problems"), elsewhere=_ELSEWHERE
    )
    problems += [*reading.problems, *_oddities(macro, reading)]
    problems = in_file_order(problems, strict=strict)
    return (None if errors_in(problems) else msgspec.structs.replace(macro, problems=tuple(problems))), problems


def macro_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a macro's file, for editors."""
    return schema_of(MacroFile, title="Callboard macro (macros/NAME.yaml)")


def _of_macro(problem: Problem) -> Problem:
    hint = "Hint: write `steps:` and below it a list of lines."
    return msgspec.structs.replace(problem, hint=hint) if problem.code in ("not_a_mapping", "empty_file") else problem


def _oddities(macro: Macro, reading: Reading) -> list[Problem]:
    """Return problems of values that have the right type and make no sense."""
    found: list[Problem] = []
    source, names = macro.source, [variable.name for variable in macro.variables]
    for place, name in enumerate(names):
        path = ("variables", place, "name")
        if name in names[:place]:
            text = f"two variables are called '{name}'"
            found.append(source.problem("error", "duplicate_variable", text, path, hint="rename one of the two."))
        elif _REFERENCE.fullmatch(f"{{{{{name}}}}}") is None:
            text = f"no step can refer to a variable called '{name}'"
            hint = "use a name without braces, on one line."
            found.append(source.problem("error", "bad_name", text, path, hint=hint))
        variable = macro.variables[place]
        if variable.rest and place < len(names) - 1:
            text = f"`rest` has no effect: '{name}' is not the last variable"
            hint = "put it last, or remove `rest`."
            found.append(source.problem("warning", "rest_not_last", text, ("variables", place, "rest"), hint=hint))
    if not macro.steps and not any(path[:1] == ("steps",) for path in reading.broken):
        text, expected = "the macro has no steps", "a list of lines of the chat"
        found.append(source.problem("error", "no_steps", text, ("steps",), expected=expected))
    for place, step in enumerate(macro.steps):
        if not step.strip():
            found.append(source.problem("warning", "empty_step", "this step is empty", ("steps", place)))
        for name in dict.fromkeys(_REFERENCE.findall(step)):
            if name not in names:
                text = f"`{{{{{name}}}}}` is not a variable of this macro, so it is not replaced"
                found.append(source.problem("warning", "unknown_variable", text, ("steps", place)))
    return found


_ELSEWHERE = dict.fromkeys(("instructions", "model", "temperature", "nodes", "start"), "an agent or a graph")
