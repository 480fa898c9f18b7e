"""TypeScript signatures: which functions are tools, what their types become, and what is refused where."""

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
        self._file = directory / "foo.ts"

    def __call__(self, text: str, *, agent: bool = False) -> ToolFile:
        self._file.write_text(text)
        return read_tools(self._file, agent=agent)

    def tool(self, text: str) -> Declaration:
        read = self(text)
        assert read.problems == []
        return read.declarations[0]

    def type(self, annotation: str, above: str = "") -> dict[str, Any]:
        """The schema of one parameter with this annotation."""
        one = self.tool(f"{above}\n/** D */\nexport function run(p: {annotation}) {{}}")
        schema: dict[str, Any] = one.parameters["properties"]["p"]
        return schema

    def only_problem(self, text: str, *, agent: bool = False) -> Problem:
        read = self(text, agent=agent)
        assert len(read.problems) == 1, [str(problem) for problem in read.problems]
        assert (read.problems[0].severity == "error") == (read.declarations == [])
        return read.problems[0]


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    return Reads(tmp_path)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("string | null | undefined", {"type": "string"}),
        ("any", {}),
        ("object", {"type": "object"}),
        ('"a" | ("b" | null)', {"type": "string", "enum": ["a", "b"]}),
        ("true | false", {"type": "boolean", "enum": [True, False]}),
        ("1.5", {"type": "number", "enum": [1.5]}),
        ("ReadonlyArray<string[]>", {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}),
        ("[]", {"type": "array", "items": {}, "minItems": 0, "maxItems": 0}),
        ("Record<string, unknown>", {"type": "object"}),
        ("{}", {"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
        ("{ [k: string]: any }", {"type": "object", "properties": {}, "required": [], "additionalProperties": True}),
    ],
)
def test_types(reads: Reads, annotation: str, schema: dict[str, Any]) -> None:
    assert reads.type(annotation) == schema


def test_an_interface_brings_its_own_comment(reads: Reads) -> None:
    schema = reads.type("A", "/** What it is. */\nexport interface A { /** Where */ x?: number }")
    assert schema["description"] == "What it is."
    assert schema["properties"] == {"x": {"type": "number", "description": "Where"}}


def test_required_undoes_question_marks(reads: Reads) -> None:
    assert reads.type("Required<{ a?: string; b: string }>")["required"] == ["a", "b"]
    assert reads.type("Partial<{ a?: string; b: string }>")["required"] == []


@pytest.mark.parametrize(
    ("parameters", "message", "column"),
    [
        ("...args: string[]", "rest parameters are not supported in tool functions: ...args", 21),
        ("{ a, b }: { a: string }", "destructured object parameters are not supported in tool functions: { a, b }", 21),
        ("[a]: string[]", "destructured array parameters are not supported in tool functions: [a]", 21),
        ("this: Foo", "such parameters are not supported in tool functions: this", 21),
        ("a: Date", "the type 'Date' is not defined in this file", 24),
        ("/* ä */ b: Map<string, number>", "the type 'Map<string, number>' is not supported", 32),
        ("a: typeof x", "the type 'typeof x' is not supported", 24),
        ("a: () => void", "the type '() => void' is not supported", 24),
        ("a: [string, ...number[]]", "'...number[]' in a tuple is not supported", 33),
        ("a: { f(): void }", "'f(): void' can't be created from JSON", 26),
        ("a: string & number", "'string' is not an object type, so it can't be combined with &", 24),
        ("a: bigint", "the type 'bigint' is not defined in this file", 24),
        ("a: " + "(" * 60 + "string" + ")" * 60, "the type is nested too deeply", 64),
    ],
)
def test_what_is_not_supported_says_where(reads: Reads, parameters: str, message: str, column: int) -> None:
    problem = reads.only_problem(f"/** D */\nexport function run({parameters}) {{}}")
    assert (problem.severity, problem.message, problem.line, problem.column) == ("error", message, 2, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("interface A { a?: A }", fragment("work.tools.declare.schemas.TypeReader.written_out.2", name="A")),
        ("type A = B[]; type B = { a: A };", fragment("work.tools.declare.schemas.TypeReader.written_out.2", name="A")),
        ("interface A extends A { x: 1 }", fragment("work.tools.declare.schemas.TypeReader.written_out.2", name="A")),
        ("interface A<T> { a: T }", "the type 'A' has type parameters, which are not supported"),
        ("enum A { X = f() }", "the members of the enum 'A' can't be determined without running the file"),
    ],
)
def test_types_of_the_file_that_cant_be_written_out(reads: Reads, text: str, message: str) -> None:
    assert reads.only_problem(f"{text}\n/** D */\nexport function run(a: A) {{}}").message == message


def test_types_that_explode_when_written_out_are_refused_at_once(reads: Reads) -> None:
    types = "".join(f"type C{n} = {{ a: C{n + 1}; b: C{n + 1} }};\n" for n in range(15))
    problem = reads.only_problem(types + "type C15 = {};\n/** D */\nexport function run(p: C0) {}")
    assert has_message(problem.message, "work.tools.declare.schemas.TypeReader._part")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("export const run = (x: string) => x;", "'run' is an arrow function"),
        ("export const run = function (x: string) {};", "'run' is a function expression"),
        ("export default function run() {}", "'run' is a default export"),
        ("export default () => 1;", "'run' is a default export"),
        ("function run() {}\nexport { run };", "'run' is an export list"),
        ("const f = () => 1;\nexport { f as run };", "'run' is an export list"),
        ("export function* run() {}", "'run' is a generator"),
    ],
)
def test_functions_exported_otherwise_are_told(reads: Reads, text: str, kind: str) -> None:
    problem = reads.only_problem("/** D */\n" + text)
    assert problem.message == f"{kind}, which is not supported in tool files"
    assert problem.expected == "`export function run(...)`"
    assert problem.line == len(text.split("\n")) + 1


def test_other_exports_are_nobodys_business(reads: Reads) -> None:
    read = reads(
        "export const N = 1;\n"
        "export * from './x';\nexport { y } from './y';\nexport default { a: 1 };\n"
        "export class C {}\nfunction hidden(...x: any[]) {}\n"
        "export const _h = () => 1;\n/** D */\nexport function a() {}",
        agent=True,
    )
    assert read.problems == []
    assert [one.name for one in read.declarations] == ["a"]


@pytest.mark.parametrize("comment", ["", "// D", "/* D */", "/** @param a - A */", "/** */", "/** D */\nconst x = 1;"])
def test_a_comment_is_needed(reads: Reads, comment: str) -> None:
    problem = reads.only_problem(f"{comment}\nexport function run(a: string) {{}}")
    assert has_message(problem.message, "work.tools.declare.schemas.DeclarationDraft.__init__", function="run")


def test_a_line_comment_may_stand_between(reads: Reads) -> None:
    assert reads.tool("/** D */\n// @ts-ignore\nexport function run() {}").description == "D"


def test_a_comment_about_another_parameter_is_a_warning(reads: Reads) -> None:
    problem = reads.only_problem("/**\n * D\n * @param citty - C\n */\nexport function run(city: string) {}")
    assert has_message(
        problem.message,
        "work.tools.declare.schemas.DeclarationDraft.declaration",
        comment="comment",
        _function="run",
        said="citty",
    )
    assert has_message(problem.hint, "protocol.problems.suggestion", name="city")


@pytest.mark.parametrize(
    ("text", "place"), [("export function run( {", (1, 22)), ("let x = ;\n", (1, 7)), ("\n\nfoo(\n", (3, 4))]
)
def test_broken_syntax_says_where(reads: Reads, text: str, place: tuple[int, int]) -> None:
    problem = reads.only_problem(text)
    assert has_message(problem.message, "work.tools.declare.typescript._parsed.2", name="foo.ts")
    assert problem.line == place[0]


def test_all_problems_come_at_once_and_the_other_tools_remain(reads: Reads) -> None:
    read = reads(
        "export function a(x: Date, ...y: string[]) {}\n/** D */\nexport function fine() {}\n"
        "export const b = () => 1;\n",
        agent=True,
    )
    assert [one.name for one in read.declarations] == ["fine"]
    assert [problem.line for problem in read.problems] == [1, 1, 1, 4]


def test_a_name_that_not_every_provider_takes_is_a_warning(reads: Reads) -> None:
    problem = reads.only_problem("/** D */\nexport function run($größe: number) {}")
    assert has_message(problem.message, "work.tools.declare.declaration.ToolScript.doubt_name", name="$größe")
    assert (problem.severity, problem.line, problem.column) == ("warning", 2, 21)
