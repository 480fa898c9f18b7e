"""JavaScript tools as llm-functions has them: CommonJS exports, and one object whose properties the comment has."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.work.tools.declare.read import read_tools

COMMENT = """/**
 * Adds numbers.
 *
 * @typedef {Object} Args
 * @property {number} a - The first.
 * @property {'x'|'y'} kind - Which.
 * @property {string[]} [tags] - Some words.
 * @param {Args} args
 */
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "number", "description": "The first."},
        "kind": {"type": "string", "enum": ["x", "y"], "description": "Which."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Some words."},
    },
    "required": ["a", "kind"],
}

WAYS = {
    "a function": COMMENT + "exports.run = function (args) { return args.a; }",
    "an async arrow function": COMMENT + "exports.run = async ({ a, kind, tags }) => a;",
    "an arrow function without parentheses": COMMENT + "exports.run = args => args.a;",
    "by module": COMMENT + "module.exports.run = async function run(args) { return args.a; }",
    "by a list": COMMENT + "async function run(args) { return args.a; }\nmodule.exports = { run };",
    "by a list with keys": COMMENT + "const sum = (args) => args.a;\nmodule.exports = { run: sum };",
    "as a module": COMMENT + "export async function run(args) { return args.a; }",
    "a comment of its own": "/** Adds numbers.\n * @param {Args} args */\nexports.run = function (args) {}\n"
    + COMMENT.replace(" * Adds numbers.\n", "").replace(" * @param {Args} args\n", ""),
}


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_a_function_that_takes_one_object_is_a_tool(tmp_path: Path, text: str) -> None:
    (tmp_path / "add.js").write_text(text)
    read = read_tools(tmp_path / "add.js", agent=False)
    assert read.problems == []
    (tool,) = read.declarations
    assert (tool.name, tool.function, tool.description) == ("add", "run", "Adds numbers.")
    assert (tool.parameters, tool.takes_object) == (SCHEMA, True)


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("Integer", {"type": "integer"}),
        ("int", {"type": "integer"}),
        ("Number", {"type": "number"}),
        ("Boolean", {"type": "boolean"}),
        ("bool", {"type": "boolean"}),
        ("String[]", {"type": "array", "items": STRING}),
        ("Array", {"type": "array"}),
        ("Array.<string>", {"type": "array", "items": STRING}),
        ("Object", {"type": "object"}),
        ("Object.<string, number>", {"type": "object", "additionalProperties": {"type": "number"}}),
        ("!string", STRING),
        ("*", {}),
        ("'foo'|'bar'", {"type": "string", "enum": ["foo", "bar"]}),
        ("Buffer", STRING),
    ],
)
def test_types_of_comments_are_those_of_jsdoc_in_any_case(tmp_path: Path, written: str, schema: object) -> None:
    text = f"/**\n * One.\n * @typedef {{Object}} Args\n * @property {{{written}}} a\n * @param {{Args}} args\n */\n"
    (tmp_path / "one.js").write_text(text + "exports.run = function (args) { return args.a; }\n")
    read = read_tools(tmp_path / "one.js", agent=False)
    assert read.problems == []
    assert read.declarations[0].parameters == {"type": "object", "properties": {"a": schema}, "required": ["a"]}


@pytest.mark.parametrize("written", ["?string", "string="])
def test_a_type_that_jsdoc_lets_be_left_out_is_not_required(tmp_path: Path, written: str) -> None:
    text = f"/**\n * One.\n * @typedef {{Object}} Args\n * @property {{{written}}} a\n * @param {{Args}} args\n */\n"
    (tmp_path / "one.js").write_text(text + "exports.run = function (args) { return args.a; }\n")
    (tool,) = read_tools(tmp_path / "one.js", agent=False).declarations
    assert tool.parameters == {"type": "object", "properties": {"a": STRING}, "required": []}


def test_every_export_of_an_agents_file_is_a_tool(tmp_path: Path) -> None:
    text = "/** One. */\nexports.one = () => 1;\n/** Two.\n * @param {string} a - A. */\nexports.two = (a) => a;\n"
    (tmp_path / "tools.js").write_text(text + "exports._instructions = () => 'Hello.';\nexports.VERSION = 3;\n")
    read = read_tools(tmp_path / "tools.js", agent=True)
    assert read.problems == []
    assert [(tool.name, tool.takes_object, list(tool.parameters["properties"])) for tool in read.declarations] == [
        ("one", False, []),
        ("two", False, ["a"]),
    ]
    assert read.instructions is not None


def test_a_function_without_words_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "add.js").write_text("exports.run = function (args) {}")
    read = read_tools(tmp_path / "add.js", agent=False)
    assert [problem.code for problem in read.problems] == ["no_description"]
