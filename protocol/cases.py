"""Test cases of an agent, `tests.yaml` or `tests/*.yaml` in its directory, and paths into JSON values.

    defaults: {model: openai:gpt-4o-mini}
    cases:
      - name: greets by name
        prompt: Ann
        expect:
          output: {contains: Ann}
          calls: [{tool: look_up, arguments: {name: Ann}}]
          json: {"items[0].name": Ann}
          at_most: {turns: 3}

An expected value is either a literal value or a mapping of conditions: `equals`, `contains` (a text, or several),
`lacks`, `matches` (a regular expression), `one_of`, `at_least`, `at_most`.

The keys below `json` and `state` are paths: `items[0].name`, `$.items[-1]['first name']`, `items[*].id`. A step is a
name, a name in quotes and brackets, a number in brackets (negative from the end), or `[*]` for all items of a list.

This module reads the file and follows paths; `actors/runs/rerun/cases` compares runs with the expectations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .problems import Problem, errors_in
from .reading import Reading, in_file_order
from .schema import schema_of
from .tree import Path
from .yaml_tree import Source, parse_mapping

LIKE = ("equals", "contains", "lacks", "matches", "one_of", "at_least", "at_most")
"""Keys of a mapping that is a condition instead of a literal value."""

_Limit = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]
_Text = Annotated[str, Meta(min_length=1)]


class AtMost(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds on the usage of a run that passes."""

    cost: Annotated[_Limit | None, Meta(description="USD.")] = None
    turns: Annotated[_Count | None, Meta(description="Replies of models.")] = None
    tokens: Annotated[_Count | None, Meta(description="Input and output together.")] = None
    tool_calls: _Count | None = None
    seconds: Annotated[_Limit | None, Meta(description="Maximum seconds of the whole run.")] = None


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is called."""

    tool: Annotated[_Text, Meta(description="Its name.")]
    arguments: Annotated[dict[str, Any], Meta(description="Values or patterns of some of its arguments.")] = {}
    times: Annotated[_Count | None, Meta(description="Number of calls; at least one by default.")] = None


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """A model that judges the output."""

    rubric: Annotated[_Text, Meta(description="Required properties of the output, as text.")]
    model: Annotated[str | None, Meta(description="`client:model`; the default one where it is left out.")] = None


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """Expected result of a case."""

    status: Annotated[
        Literal["done", "failed", "cancelled"] | None,
        Meta(description="Expected status; by default `done`, or `failed` if an `error` is expected."),
    ] = None
    error: Annotated[Any, Meta(description="Code of its error, or a pattern of its text.")] = None
    output: Annotated[Any, Meta(description="Its output, or a pattern of it.")] = None
    json: Annotated[dict[str, Any], Meta(description="Values in its JSON output, by path.")] = {}
    state: Annotated[dict[str, Any], Meta(description="Values in its final state, by path.")] = {}
    schema: Annotated[dict[str, Any] | None, Meta(description="JSON Schema of its JSON output.")] = None
    nodes: Annotated[
        tuple[str, ...], Meta(description="Nodes visited in this order; other nodes may be in between.")
    ] = ()
    visits: Annotated[dict[str, _Count], Meta(description="Number of visits by node; 0 for never.")] = {}
    calls: Annotated[tuple[ExpectedCall, ...], Meta(description="Tools that are called, in any order.")] = ()
    no_calls: Annotated[tuple[str, ...], Meta(description="Tools that are not called.")] = ()
    asks: Annotated[tuple[Any, ...], Meta(description="Texts or patterns of questions to users, in order.")] = ()
    at_most: AtMost = AtMost()
    judge: Annotated[tuple[Judge, ...], Meta(description="Models that judge its output, each by a rubric.")] = ()


class CaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that end the run of a case."""

    timeout: Annotated[_Limit | None, Meta(description="Seconds.")] = None
    max_turns: _Count | None = None
    max_tokens: _Count | None = None
    max_cost: _Limit | None = None


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for the cases of a file."""

    target: Annotated[
        str | None, Meta(description="Target of the runs; by default the agent in the directory of the file.")
    ] = None
    model: Annotated[str | None, Meta(description="`client:model` for the runs, as `-m` of `callboard run`.")] = None
    variables: dict[str, str] = {}
    allow: Annotated[tuple[str, ...], Meta(description="Tools that are allowed without asking.")] = ()
    yes: Annotated[bool | None, Meta(description="No tool asks for permission.")] = None
    loose: Annotated[bool | None, Meta(description="Match requests by their position in the cassette only.")] = None
    limits: CaseLimits | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Test case: a run and its expected result."""

    name: Annotated[_Text, Meta(description="Name of the case, unique within the file.")]
    prompt: str = ""
    target: str | None = None
    model: str | None = None
    variables: dict[str, str] = {}
    state: Annotated[dict[str, Any], Meta(description="Replaces keys of a graph's `initial_state`.")] = {}
    answers: Annotated[Any, Meta(description="Answers to questions: a list in their order, or by node.")] = None
    allow: tuple[str, ...] = ()
    yes: bool | None = None
    cassette: Annotated[
        str | bool | None,
        Meta(description="File in the same directory; `false` for none, so that models are called each time."),
    ] = None
    loose: bool | None = None
    limits: CaseLimits | None = None
    expect: Expect = Expect()


class CasesFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of cases."""

    defaults: Defaults = Defaults()
    cases: tuple[Case, ...]


class Cases(CasesFile, frozen=True, kw_only=True):
    """File of cases that was read."""

    source: Source = Source()


def read_cases(text: str, file: str) -> tuple[Cases | None, list[Problem]]:
    """Return the cases of a file's text, and all problems by line; None if one of them is an error.

    Unknown keys are errors: an expectation that is never checked would always pass.
    """
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    reading = Reading(file)
    source = Source(file, text)
    cases = reading.fill(Cases, root, what="a file of cases", given={"source": source}, hidden=("source",))
    problems = in_file_order([*problems, *reading.problems], strict=True)
    problems += [problem for problem in _oddities(cases, reading) if not errors_in(problems) or problem.key]
    problems = in_file_order(problems, strict=True)
    return (None if errors_in(problems) else cases), problems


def cases_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a file of cases, for editors."""
    return schema_of(CasesFile, title="Callboard test cases (tests.yaml)")


def is_like(value: Any) -> bool:
    """Return whether an expected value is a mapping of conditions and not a literal value."""
    # `all` of nothing is True. Without `bool(value)`, the literal {} would be a condition that every value meets.
    return isinstance(value, Mapping) and bool(value) and all(key in LIKE for key in value)


def _oddities(cases: Cases, reading: Reading) -> Iterator[Problem]:
    """Yield problems of values that have the right type and make no sense."""
    source, names = cases.source, list[str]()
    if not cases.cases and not reading.broken:
        yield source.problem("error", "no_cases", "the file has no cases", ("cases",), expected="a list of cases")
    for place, case in enumerate(cases.cases):
        path: Path = ("cases", place)
        if case.name in names:
            text = f"two cases are called '{case.name}'"
            yield source.problem("error", "duplicate_case", text, (*path, "name"), hint="rename one of the two.")
        names.append(case.name)
        if case.answers is not None and not isinstance(case.answers, list | dict):
            text = "`answers` is neither a list nor a mapping of nodes"
            yield source.problem("error", "wrong_type", text, (*path, "answers"), expected="[yes, no] or {node: yes}")
        if case.cassette is True:
            text = "`cassette` is true, which names no file"
            yield source.problem(
                "error", "wrong_type", text, (*path, "cassette"), expected="the name of a file, or false"
            )
        yield from _of_expect(case.expect, source, (*path, "expect"))


def _of_expect(expect: Expect, source: Source, path: Path) -> Iterator[Problem]:
    for key in ("error", "output"):
        yield from _of_value(getattr(expect, key), source, (*path, key))
    for key in ("json", "state"):
        for place, value in getattr(expect, key).items():
            try:
                parse_path(place)
            except BadPath as error:
                yield source.problem(
                    "error",
                    "bad_path",
                    f"'{place}' is not a path into a JSON value: {error}",
                    (*path, key, place),
                    at_key=True,
                )
            yield from _of_value(value, source, (*path, key, place))
    for number, call in enumerate(expect.calls):
        for name, value in call.arguments.items():
            yield from _of_value(value, source, (*path, "calls", number, "arguments", name))
    for number, text in enumerate(expect.asks):
        yield from _of_value(text, source, (*path, "asks", number))
    if expect.error is not None and expect.status == "done":
        text = "`error` is expected, but a run with the expected status `done` has no error"
        yield source.problem("error", "contradiction", text, (*path, "status"), hint="remove `status`, or `error`.")


def _of_value(value: Any, source: Source, path: Path) -> Iterator[Problem]:
    """Yield problems of an expected value."""
    if not isinstance(value, Mapping) or not is_like(value):
        near = [key for key in value if key in LIKE] if isinstance(value, Mapping) else []
        if near:
            others = ", ".join(f"`{key}`" for key in value if key not in LIKE)
            text = f"`{near[0]}` is a condition for the value, but {others} is not a condition"
            hint = f"to expect exactly this mapping, write it below `equals`. The conditions are {', '.join(LIKE)}."
            yield source.problem("error", "unknown_key", text, path, hint=hint)
        return
    if "matches" in value:
        try:
            re.compile(str(value["matches"]))
        except re.error as error:
            text = f"'{value['matches']}' is not a regular expression: {error}"
            yield source.problem("error", "bad_pattern", text, (*path, "matches"))
    for word in ("at_least", "at_most"):
        if word in value and (isinstance(value[word], bool) or not isinstance(value[word], int | float)):
            yield source.problem("error", "wrong_type", f"`{word}` needs a number", (*path, word), expected="a number")
    if "one_of" in value and not isinstance(value["one_of"], list):
        yield source.problem("error", "wrong_type", "`one_of` needs a list", (*path, "one_of"), expected="a list")


Step: TypeAlias = "str | int | None"
"""Name, index in a list, or all of a list (None)."""

_STEP = re.compile(r"""\.?([\w-]+)|\[(-?\d+)\]|\[(\*)\]|\[(?:'([^']*)'|"([^"]*)")\]""")


class BadPath(ValueError):
    """The text is not a path; the message shows the position."""


class PathMissing(LookupError):
    """The path leads to no value; the message shows how far it leads."""


def parse_path(path: str) -> list[Step]:
    """Return the steps of a path.

    Raises:
        BadPath: the text is not a path.
    """
    text = path.strip().removeprefix("$")
    steps: list[Step] = []
    place = 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise BadPath(f"{text[place:]!r} is not a step of a path (examples: items[0].name, items[*], ['a name'])")
        name, number, star, single, double = found.groups()
        if number is not None:
            steps.append(int(number))
        elif star is not None:
            steps.append(None)
        else:
            steps.append(next(each for each in (name, single, double) if each is not None))
        place = found.end()
    return steps


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path; a list for `[*]`.

    Raises:
        BadPath: the text is not a path.
        PathMissing: the path leads to no value.
    """
    return _at(value, parse_path(path), "$")


def _at(value: Any, steps: list[Step], where: str) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if step is None:
        if not isinstance(value, list):
            raise PathMissing(f"{where} is not a list")
        return [_at(each, rest, f"{where}[{number}]") for number, each in enumerate(value)]
    if isinstance(step, int):
        if not isinstance(value, list) or not -len(value) <= step < len(value):
            raise PathMissing(f"{where} has no [{step}]")
        return _at(value[step], rest, f"{where}[{step}]")
    if not isinstance(value, dict) or step not in value:
        raise PathMissing(f"{where} has no '{step}'")
    return _at(value[step], rest, f"{where}.{step}")
