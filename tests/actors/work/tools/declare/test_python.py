"""Python signatures: which functions are tools, what their types become, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.messages import fragment, has_message

from callboard.actors.work.tools.declare.declaration import Declaration, ToolFile
from callboard.actors.work.tools.declare.read import read_tools
from callboard.protocol.problems import Problem


class Reads:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "foo.py"

    def __call__(self, text: str, *, agent: bool = False) -> ToolFile:
        self._file.write_text(text)
        return read_tools(self._file, agent=agent)

    def tool(self, text: str) -> Declaration:
        read = self(text)
        assert read.problems == []
        return read.declarations[0]

    def type(self, annotation: str, above: str = "") -> dict[str, Any]:
        """The schema of one parameter with this annotation."""
        schema: dict[str, Any] = self.tool(f'{above}\ndef run(p: {annotation}):\n    "D"').parameters["properties"]["p"]
        return schema

    def only_problem(self, text: str, *, agent: bool = False) -> Problem:
        read = self(text, agent=agent)
        assert len(read.problems) == 1, [str(problem) for problem in read.problems]
        assert (read.problems[0].severity == "error") == (read.declarations == [])
        return read.problems[0]


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    return Reads(tmp_path)


def test_case_91_a_global_tool_is_named_after_its_file(reads: Reads) -> None:
    one = reads.tool(
        "from typing import *\n"
        'def run(a: str, b: Optional[int]=None, c: Literal["x","y"]="x", d: List[float]=[]):\n    """D"""\n'
        "def _helper(x): ...\n"
    )
    assert (one.name, one.function, one.line) == ("foo", "run", 2)
    assert one.parameters["required"] == ["a"]
    assert one.parameters["properties"] == {
        "a": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"type": "string", "enum": ["x", "y"], "default": "x"},
        "d": {"type": "array", "items": {"type": "number"}, "default": []},
    }


@pytest.mark.parametrize(
    ("signature", "line", "column"),
    [("a, *args", 1, 13), ("**options", 1, 11), ("a, /, b", 1, 9), ("\n    ä: str, /,\n", 2, 5)],
)
def test_case_91_parameters_without_a_name_say_their_line(reads: Reads, signature: str, line: int, column: int) -> None:
    problem = reads.only_problem(f'def run({signature}):\n    "D"')
    expected = f"line {line}: *args/*kwargs/positional-only parameters are not supported in tool functions"
    assert (problem.message, problem.line, problem.column) == (expected, line, column)


@pytest.mark.parametrize("body", ["    pass", '    """"""', '    """\n    Args:\n        a: A\n    """', '    f"D"'])
def test_case_91_a_docstring_is_needed(reads: Reads, body: str) -> None:
    problem = reads.only_problem(f"def run(a):\n{body}")
    assert has_message(problem.message, "work.tools.declare.schemas.DeclarationDraft.__init__", function="run")


def test_case_91_only_underscores_hide_a_function_of_an_agent(reads: Reads) -> None:
    read = reads('def a():\n    "A"\ndef _b(): ...\nasync def c():\n    "C"\ndef _instructions(): ...\n', agent=True)
    assert [one.name for one in read.declarations] == ["a", "c"]
    assert read.instructions is not None
    assert read.problems == []


@pytest.mark.parametrize(
    ("text", "line"),
    [("def run(:\n", 1), ("x = 1\n  y = 2\n", 2), ("def run():\n\t'''\n", 2), ("x = '\0'", 0), ("(" * 5_000, 0)],
)
def test_broken_syntax(reads: Reads, text: str, line: int) -> None:
    problem = reads.only_problem(text)
    assert problem.message.startswith(fragment("work.tools.declare.python._parsed"))
    assert line in (0, problem.line)


def test_a_syntax_error_names_the_file_and_the_place(reads: Reads) -> None:
    problem = reads.only_problem("x = 1\nif é =:\n")
    assert problem.message.startswith(fragment("work.tools.declare.python._parsed", where="foo.py…"))
    assert (problem.line, problem.column) == (2, 6)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("int | None", {"type": "integer"}),
        ("None", {}),
        ("Union[int, str, int]", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ("int | (str | None)", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ("Any | int", {}),
        ('Literal["a"] | Literal["b", None]', {"type": "string", "enum": ["a", "b"]}),
        ("Literal[True, False]", {"type": "boolean", "enum": [True, False]}),
        ("Literal[1, True]", {"enum": [1, True]}),
        ("Literal[-1]", {"type": "integer", "enum": [-1]}),
        ("list", {"type": "array", "items": {}}),
        ("list[list[int]]", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        ("Iterable[str]", {"type": "array", "items": {"type": "string"}}),
        ("tuple[()]", {"type": "array", "items": {}, "minItems": 0, "maxItems": 0}),
        ("frozenset[int]", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        ("dict[str, Any]", {"type": "object"}),
        ("dict[str, None]", {"type": "object", "additionalProperties": {"type": "null"}}),
        ("typing.Optional[typing.Dict]", {"type": "object"}),
        ('Annotated[int, Field(gt=1, description="N")]', {"type": "integer", "description": "N"}),
        ('Annotated[int | None, Doc("N")]', {"type": "integer", "description": "N"}),
        ("'int'", {"type": "integer"}),
        ("Path", {"type": "string"}),
    ],
)
def test_types(reads: Reads, annotation: str, schema: dict[str, Any]) -> None:
    assert reads.type(annotation) == schema


def test_a_name_of_the_file_wins_over_the_usual_meaning(reads: Reads) -> None:
    assert reads.type("Path", "class Path(TypedDict):\n    a: int\n")["properties"] == {"a": {"type": "integer"}}
    assert reads.type("T", "from typing import Text as T") == {"type": "string"}


def test_an_enum_takes_its_values_also_by_alias(reads: Reads) -> None:
    enum = "class E(str, Enum):\n    A = 'a'\n    B = 'b'\n    _x = 1\n    def m(self): ...\n"
    assert reads.type("E", enum) == {"type": "string", "enum": ["a", "b"]}
    assert reads.type("Literal[E.A]", enum) == {"type": "string", "enum": ["a"]}


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("def run(p: 3):\n    'D'", "3 is not a type", (1, 12)),
        ("def run(p: 'a b'):\n    'D'", "'a b' is not a type", (1, 12)),
        ("def run(p: f()):\n    'D'", "this is not a type", (1, 12)),
        ("def run(p: list['x y']):\n    'D'", "'x y' is not a type", (1, 17)),
        (
            "def run(p: Literal[x]):\n    'D'",
            "Literal may only contain strings, whole numbers, booleans and None",
            (1, 20),
        ),
        (
            "def run(p: Literal[1.5]):\n    'D'",
            "Literal may only contain strings, whole numbers, booleans and None",
            (1, 20),
        ),
        ("class C:\n    x: int\ndef run(p: C):\n    'D'", "the class 'C' can't be created from JSON", (1, 1)),
        (
            "class E(Enum):\n    A = f()\ndef run(p: E):\n    'D'",
            "the value of 'A' in the enum 'E' can't be determined without running the file",
            (1, 1),
        ),
        ("@dataclass\nclass N:\n    n: 'N'\ndef run(p: N):\n    'D'", "the type 'N' contains itself", (3, 8)),
        ("A = list['B']\nB = dict[str, A]\ndef run(p: A):\n    'D'", "the type 'A' contains itself", (2, 15)),
        ("class A(A, TypedDict): ...\ndef run(p: A):\n    'D'", "the type 'class A' contains itself", (2, 12)),
        ("A = A\ndef run(p: A):\n    'D'", "the type 'A' contains itself", (1, 5)),
        ("A = namedtuple('A', 'x')\ndef run(p: A):\n    'D'", "'A' can't be read as a type", (2, 12)),
        ("def run(p: " + "list[" * 60 + "int" + "]" * 60 + "):\n    'D'", "the type is nested too deeply", (1, 212)),
    ],
)
def test_what_is_no_type_says_where(reads: Reads, text: str, message: str, place: tuple[int, int]) -> None:
    problem = reads.only_problem(text)
    assert (problem.message, (problem.line, problem.column)) == (message, place)


def test_types_that_explode_when_written_out_are_refused_at_once(reads: Reads) -> None:
    classes = "".join(f"class C{n}(TypedDict):\n    a: 'C{n + 1}'\n    b: 'C{n + 1}'\n" for n in range(15))
    problem = reads.only_problem(classes + "class C15(TypedDict): ...\ndef run(p: C0):\n    'D'")
    assert has_message(problem.message, "work.tools.declare.schemas.TypeReader._part")


def test_a_type_from_elsewhere_is_a_text_and_a_warning(reads: Reads) -> None:
    problem = reads.only_problem("def run(p: pd.DataFrame, q: list[pd.DataFrame]):\n    'D'")
    assert (problem.severity, problem.line, problem.column) == ("warning", 1, 12)
    assert has_message(problem.message, "work.tools.declare.python.PythonTypes._name", name="DataFrame")


def test_a_docstring_of_another_parameter_is_a_warning(reads: Reads) -> None:
    problem = reads.only_problem('def run(city):\n    """D\n\n    Args:\n        citty: C\n    """')
    assert has_message(
        problem.message,
        "work.tools.declare.schemas.DeclarationDraft.declaration",
        comment="docstring",
        _function="run",
        said="citty",
    )
    assert has_message(problem.hint, "protocol.problems.suggestion", name="city")


def test_all_problems_come_at_once_and_the_other_tools_remain(reads: Reads) -> None:
    read = reads("def a(x: 1, *y): ...\ndef fine():\n    'D'\nclass C: ...\ndef b(p: C, q: C):\n    'D'\n", agent=True)
    assert [one.name for one in read.declarations] == ["fine"]
    assert [(problem.line, problem.message.split(":")[0]) for problem in read.problems] == [
        (1, "Missing or empty description on function"),
        (1, fragment("work.tools.declare.python.PythonTypes._quoted", value="…1")),
        (1, "line 1"),
        (4, fragment("work.tools.declare.python.class_schema.4", name="C")),
        (4, fragment("work.tools.declare.python.class_schema.4", name="C")),
    ]


def test_optional_without_a_default_need_not_be_given(reads: Reads) -> None:
    one = reads.tool("def run(a: int | None, *, b: 'Optional[str]', c: str):\n    'D'")
    assert one.parameters["required"] == ["c"]


def test_numbers_that_json_can_not_carry_are_no_default(reads: Reads) -> None:
    one = reads.tool(f"def run(a: int = {10**30}, b: float = 1e999, c: str = '\\ud800'):\n    'D'")
    assert [schema.get("default") for schema in one.parameters["properties"].values()] == [None, None, None]


def test_a_default_of_another_type_is_left_out_of_the_schema(reads: Reads) -> None:
    one = reads.tool(
        "def run(a: int = 'x', b: float = 1, c: list = {}, d: dict = [], e: bool = 1, f: Any = 1):\n    'D'"
    )
    defaults = {name: schema.get("default") for name, schema in one.parameters["properties"].items()}
    assert defaults == {"a": None, "b": 1, "c": None, "d": None, "e": None, "f": 1}
    assert one.parameters["required"] == []
