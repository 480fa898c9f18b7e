"""Files made to break the reader: it never raises, never takes long, and what it returns is sound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import process_time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.cpu_time import slowness

from callboard.actors.work.tools.declare.declaration import MOST_PROBLEMS, NAME, ToolFile
from callboard.actors.work.tools.declare.read import LARGEST, read_tools

EXAMPLES = 40

BASH = [
    *(
        "# @describe ",
        "# @cmd ",
        "# @option ",
        "# @flag ",
        "# @arg ",
        "# @env ",
        "# @meta ",
        "# @alias ",
        "# @x ",
        "# ",
    ),
    *(
        "--a",
        "-b",
        "--a-b",
        "+c",
        "name",
        "!",
        "*",
        "+",
        "*,",
        "~",
        "=x",
        "=`fn`",
        "[a|b]",
        "[=a|b]",
        "[`f`]",
        "[?`f`]",
    ),
    *(
        "[",
        "]",
        "|",
        "`",
        "'",
        '"',
        "\\",
        "<INT>",
        "<A> <B+>",
        "<",
        ">",
        "$$",
        "$X",
        "require-tools jq",
        "é",
        "\t",
        " ",
    ),
    *("\n", "\n", "\n", "\nmain() {\n}\n", "\na () {\n}\n", "function _instructions\n", "<<EOF", "\nEOF\n", "\r\n"),
    *("# ARGC-BUILD {\n", "# } ARGC-BUILD\n", "inherit-flag-options", "\x00", "\x0b", "\u2028"),
]
PYTHON = [
    *(
        "def run(",
        "def a(",
        "async def b(",
        "):\n",
        "):\n    'D'\n",
        '):\n    """D\n\n    Args:\n        a (',
        "class A",
        "(",
        ")",
    ),
    *(":\n", ": ", ", ", "=", "->", "a", "b", "A", "*", "**", "/", "*args", "int", "str", "list[", "]", "dict[str, "),
    *(
        "Optional[",
        "Literal[",
        "Annotated[",
        "'",
        '"',
        "'A'",
        '"""',
        "\\ud800",
        " | ",
        "None",
        "1",
        "-",
        "1e999",
        "...",
        "\n",
        "\n    ",
    ),
    *(
        "@dataclass\nclass A:\n    a: ",
        "class B(TypedDict, total=False):\n    b: ",
        "class E(Enum):\n    X = ",
        "auto()",
        "E.X",
    ),
    *(
        "A = ",
        "NewType('A', ",
        "type X = ",
        "from typing import List as A\n",
        "field(default=",
        "\\",
        "\t",
        "é",
        "\x00",
        "\ufeff",
    ),
]
TYPESCRIPT = [
    *(
        "/** D */\n",
        "/**\n * @param a - ",
        "\n */\n",
        "*/",
        "// x\n",
        "export ",
        "function run(",
        "function a(",
        "async ",
        "default ",
    ),
    *(
        "const x = ",
        "() => 1",
        ") {}",
        ") {}\n",
        "a",
        "b?",
        ": ",
        ", ",
        "string",
        "number",
        "A",
        "[]",
        "Array<",
        ">",
        "Record<",
    ),
    *("{ a: ", " }", "{", "}", "(", ")", "[", "]", " | ", " & ", "null", "'x'", "`${", "1", "-", " = ", "...", "this"),
    *(
        "interface A { a: ",
        "interface A extends A {}\n",
        "type A = ",
        "enum A { X, Y = ",
        "A.X",
        ";\n",
        "\n",
        "\\",
        "é",
        "\x00",
        "import",
    ),
]
"""Pieces of each language, from which hostile files are put together."""


def check(read: ToolFile, lines: int) -> None:
    for problem in read.problems:
        assert 0 <= problem.line <= lines + 1, str(problem)
        assert problem.column >= 0
        assert problem.message
    for one in read.declarations:
        assert NAME.fullmatch(one.name)
        assert one.description
        assert 1 <= one.line <= lines
        assert set(one.parameters["required"]) <= set(one.parameters["properties"])
        Draft202012Validator.check_schema(one.parameters)
        assert msgspec.json.decode(msgspec.json.encode([one.description, one.parameters]))


def texts(pieces: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=60).map("".join)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize(("name", "pieces"), [("t.sh", BASH), ("t.py", PYTHON), ("t.ts", TYPESCRIPT)])
@given(data=st.data(), agent=st.booleans())
def test_no_text_crashes_the_reader(
    tmp_path: Path, name: str, pieces: Sequence[str], data: st.DataObject, agent: bool
) -> None:
    text = data.draw(texts(pieces))
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    check(read_tools(tmp_path / name, agent=agent), text.count("\n") + 1)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize(
    ("name", "pieces", "around"),
    [
        ("t.sh", BASH, "# @describe D\n# @option {}\nmain() {{ :; }}\n"),
        ("t.py", PYTHON, "def run(a: {}, b = 1):\n    'D'\n"),
        ("t.ts", TYPESCRIPT, "/** D */\nexport function run(a: {}) {{}}\n"),
    ],
)
@given(data=st.data())
def test_no_type_or_option_crashes_the_reader(
    tmp_path: Path, name: str, pieces: Sequence[str], around: str, data: st.DataObject
) -> None:
    text = around.format(data.draw(st.lists(st.sampled_from(pieces), max_size=8).map("".join)))
    (tmp_path / name).write_text(text, newline="")
    check(read_tools(tmp_path / name, agent=False), text.count("\n") + 1)


@pytest.mark.parametrize(
    ("name", "begin", "piece", "end"),
    [
        ("t.sh", "", "# ARGC-BUILD {\n", ""),
        ("t.sh", "", "cat <<EOF\nEOF\n", ""),
        ("t.sh", "# @describe D\n# @option --a[", "'a'|", "]\nmain() { :; }"),
        ("t.sh", "# @describe D\n# @option ", " ", ""),
        ("t.py", "x = ", "(", ""),
        ("t.py", "def run(p: ", "-", "1):\n    'D'"),
        ("t.py", "def run(p: '", "a|", "a'):\n    'D'"),
        ("t.py", 'def run(a):\n    """D\n\n    Args:\n        a (', " ", '): x"""'),
        ("t.ts", "/** D */ export function run(a: ", "(", ") {}"),
        ("t.ts", "/** D */ export function run(a: ", "abcdefgh|", "b) {}"),
        ("t.ts", "/** @param ", "{", " */ export function run(a) {}"),
        ("t.ts", "export const ", "abcdefghi=()=>1,", "b=1"),
    ],
)
@pytest.mark.sample(4)
def test_the_largest_file_of_repetitions_is_read_in_bearable_time(
    tmp_path: Path, name: str, begin: str, piece: str, end: str
) -> None:
    """Time that grows with the square of the size would be hours."""
    (tmp_path / name).write_text(begin + piece * ((LARGEST - len(begin + end)) // len(piece)) + end)
    began = process_time()
    read = read_tools(tmp_path / name, agent=True)
    assert process_time() - began < 20 * slowness()
    assert len(read.problems) <= 2 * MOST_PROBLEMS
