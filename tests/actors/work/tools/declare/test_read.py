"""Reading a tool file of any language: what is refused whole, and that reading is all that happens."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from support.messages import has_message, says

from callboard.actors.work.tools.declare.declaration import interpreter_of
from callboard.actors.work.tools.declare.read import LARGEST, read_tools
from callboard.protocol.errors import ConfigError
from callboard.protocol.problems import Problem


def only_problem(path: Path) -> Problem:
    read = read_tools(path, agent=False)
    assert read.declarations == []
    assert len(read.problems) == 1, [str(problem) for problem in read.problems]
    return read.problems[0]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    problem = only_problem(tmp_path / "x.py")
    assert str(problem) == f"{tmp_path}/x.py: error: the file can't be read: No such file or directory"


def test_a_path_with_a_nul() -> None:
    assert only_problem(Path("/tmp/\0.py")).code == "tool_file"


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.sh")
    assert re.fullmatch(says("work.tools.declare.read._text_of.3"), only_problem(tmp_path / "x.sh").message)


def test_a_file_beyond_reason(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"#" * (LARGEST + 1))
    assert has_message(only_problem(tmp_path / "x.py").message, "work.tools.declare.read._text_of.5")


def test_a_file_that_is_not_utf_8_says_where(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"# one\n# \xff\n")
    problem = only_problem(tmp_path / "x.py")
    assert (problem.message, problem.line) == ("the file is not UTF-8", 2)


@pytest.mark.parametrize(("name", "message"), [("x.rb", "the extension '.rb'"), ("x", "a name without an extension")])
def test_other_languages(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("")
    problem = only_problem(tmp_path / name)
    assert problem.message == f"a tool file can't have {message}"
    assert ".sh, .py, .ts" in str(problem.hint)


def test_typescript_without_its_extra_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    (tmp_path / "x.ts").write_text("export function run() {}")
    with pytest.raises(ConfigError, match=says("work.tools.declare.typescript._parsed")):
        read_tools(tmp_path / "x.ts", agent=False)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.sh", "# @describe D\n# @option --a! A\nmain() { :; }\n"),
        ("x.py", 'def run(a: str):\n    """D\n\n    Args:\n        a: A\n    """\n'),
        ("x.ts", "/**\n * D\n * @param a - A\n */\nexport function run(a: string) {}\n"),
    ],
)
def test_a_mark_at_the_beginning_and_windows_lines_change_nothing(
    tmp_path: Path, name: str, text: str, mark: str, newline: str
) -> None:
    (tmp_path / name).write_bytes((mark + text.replace("\n", newline)).encode())
    read = read_tools(tmp_path / name, agent=False)
    assert read.problems == []
    (one,) = read.declarations
    assert (one.name, one.description) == ("x", "D")
    assert one.parameters == {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "A"}},
        "required": ["a"],
    }


def test_reading_neither_runs_nor_writes(tmp_path: Path) -> None:
    made = tmp_path / "made"
    python = tmp_path / "x.py"
    python.write_text(f'open({str(made)!r}, "w")\ndef run(a: str = open({str(made)!r}, "w").name):\n    """D"""\n')
    bash = tmp_path / "y.sh"
    bash.write_text(f"touch {made}\n# @describe D\n# @option --a[`touch {made}`]\nmain() {{ touch {made}; }}\n")
    bash.chmod(0o400)
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in (python, bash)]
    read_tools(python, agent=False)
    read_tools(bash, agent=False)
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in (python, bash)] == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.py", "y.sh"]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", ()),
        ("# no", ()),
        ("#!", ()),
        ("#!/bin/bash", ("/bin/bash",)),
        ("#! /bin/bash -eu", ("/bin/bash", "-eu")),
        ("#!/usr/bin/env python3.11", ("python3.11",)),
        ("#!/usr/bin/env -S deno run -A", ("deno", "run", "-A")),
        ("#!/usr/bin/env -S uv run --with 'a b'", ("uv", "run", "--with", "a b")),
        ("#!/usr/bin/env -i bash", ("/usr/bin/env", "-i", "bash")),
        ("#!/usr/bin/env A=1 bash", ("/usr/bin/env", "A=1", "bash")),
        ("#!/usr/bin/env", ("/usr/bin/env",)),
        ("#!/opt/it's", ("/opt/it's",)),
    ],
)
def test_the_first_line_names_the_interpreter(line: str, command: tuple[str, ...]) -> None:
    assert interpreter_of(line) == command


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("my tool.sh", "# @describe D\nmain() { :; }"),
        ("my tool.py", 'def run():\n    """D"""'),
        ("my tool.ts", "/** D */\nexport function run() {}"),
    ],
)
def test_a_file_name_that_no_provider_takes_as_a_tool(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    problem = only_problem(tmp_path / name)
    assert re.fullmatch(says("work.tools.declare.declaration.ToolScript.usable_name", name="my tool"), problem.message)
    assert problem.hint == "rename it, for instance to 'my_tool'"


@pytest.mark.parametrize(
    ("name", "missing"),
    [("x.sh", "the file has no function 'main'"), ("x.py", "the file has no function 'run'"),
     ("x.ts", "the file exports no function 'run'")],
)  # fmt: skip
def test_a_global_tool_needs_its_function(tmp_path: Path, name: str, missing: str) -> None:
    (tmp_path / name).write_text("")
    problem = only_problem(tmp_path / name)
    assert (problem.severity, problem.message) == ("error", missing)


@pytest.mark.parametrize("name", ["tools.sh", "tools.py", "tools.ts"])
def test_an_agents_file_without_tools_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    (problem,) = read_tools(tmp_path / name, agent=True).problems
    assert (problem.severity, problem.message) == ("warning", "the file declares no tools")
