"""What tool files say of calls that are made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.work.tools.declare.declaration import ToolFile
from callboard.actors.work.tools.declare.read import read_tools

BASH = """# @describe Looks.
# @meta effect read
main() { :; }
"""

BASH_OF_AGENT = """# @meta effect idempotent
# @cmd Puts.
put() { :; }
# @cmd Adds.
# @meta effect keyed
add() { :; }
"""

PYTHON = """# @meta effect read
def look(a: str):
    'Looks.'

# about something else
# @meta effect keyed

@cached
# @meta effect write
def put(a: str):
    'Puts.'
    # @meta effect read

def plain(a: str):
    'Does.'
"""

TYPESCRIPT = """/**
 * Looks.
 * @meta effect read
 */
export function look(a: string) {}

// @meta effect keyed
/** Puts. */
export function put(a: string) {}

/** Does. */
export function plain(a: string) {}
"""


def read(directory: Path, name: str, text: str, *, agent: bool = True) -> ToolFile:
    (directory / name).write_text(text)
    return read_tools(directory / name, agent=agent)


@pytest.mark.parametrize(
    ("name", "text", "agent", "found"),
    [
        ("look.sh", BASH, False, {"look": "read"}),
        ("tools.sh", BASH_OF_AGENT, True, {"put": "idempotent", "add": "keyed"}),
        ("tools.py", PYTHON, True, {"look": "read", "put": "write", "plain": None}),
        ("tools.ts", TYPESCRIPT, True, {"look": "read", "put": "keyed", "plain": None}),
    ],
)
def test_the_comment_above_a_function_says_what_its_calls_do_that_are_made_twice(
    tmp_path: Path, name: str, text: str, agent: bool, found: dict[str, str | None]
) -> None:
    file = read(tmp_path, name, text, agent=agent)
    assert file.problems == []
    assert {one.name: one.repeats for one in file.declarations} == found
    assert all("effect" not in one.description for one in file.declarations)


@pytest.mark.parametrize(("name", "text"), [("tools.sh", BASH_OF_AGENT), ("tools.py", PYTHON)])
def test_an_effect_that_there_is_not_is_a_warning_with_its_line(tmp_path: Path, name: str, text: str) -> None:
    file = read(tmp_path, name, text.replace("keyed", "ceyed").replace("effect read", "effect reed", 1))
    assert {problem.code for problem in file.problems} == {"unknown_effect"}
    assert all(problem.severity == "warning" and problem.line for problem in file.problems)
    assert any(hint in problem.hint for problem in file.problems for hint in ("keyed", "read"))
