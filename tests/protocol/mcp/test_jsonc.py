"""JSON with comments and trailing commas: read as JSON is, every mistake with its place, and nothing ever raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.protocol.mcp.jsonc import MAX_DEPTH, parse
from callboard.protocol.tree import Mapping, Node, Scalar, Sequence, plain

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BLANKS = st.sampled_from(["", " ", "\n", "\r\n\t", '// a } ] , " word\n', "/* /* \n // , */", "/**/ //\n"])


def written(value: Any, blank: Any) -> str:
    """The value with blanks drawn between all tokens, and a comma after every last item."""
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}{blank()}:{blank()}{written(each, blank)}" for key, each in value.items()]
    elif isinstance(value, list):
        items = [written(each, blank) for each in value]
    else:
        return json.dumps(value, ensure_ascii=blank() == "")
    inside = "".join(f"{blank()}{item}{blank()}," for item in items) + blank()
    return f"{{{inside}}}" if isinstance(value, dict) else f"[{inside}]"


@given(VALUES, st.data())
def test_comments_and_trailing_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    text = data.draw(BLANKS) + written(value, lambda: data.draw(BLANKS)) + data.draw(BLANKS)
    node, problems = parse(text, "f")
    assert problems == []
    assert _plain(node) == value


@given(VALUES)
def test_json_is_read_as_json(value: Any) -> None:
    node, problems = parse(json.dumps(value, indent=1), "f")
    assert problems == []
    assert _plain(node) == value


@example('{"a":')
@given(st.text(alphabet='{}[]:,"\\/*\n 1ae-.tn\ud800\x00'))
def test_no_text_raises_and_what_is_accepted_without_liberties_json_accepts_too(text: str) -> None:
    node, problems = parse(text, "f")
    assert (node is None) == any(problem.severity == "error" for problem in problems)
    if node is None:
        assert 1 <= problems[-1].line <= text.count("\n") + 1
    elif "/" not in text and "," not in text:
        assert plain(node) == json.loads(text)


def test_everything_knows_its_line_and_column() -> None:
    node, _ = parse('{ // one\n  "a": [1,\n   "x"],\n\t"b": {"c": null}}', "f")
    assert isinstance(node, Mapping)
    assert (node.line, node.column) == (1, 1)
    a = node.entries["a"]
    assert (a.line, a.column) == (2, 3)
    assert isinstance(a.value, Sequence)
    assert [(item.line, item.column) for item in (a.value, *a.value.items)] == [(2, 8), (2, 9), (3, 4)]
    inner = node.entries["b"].value
    assert isinstance(inner, Mapping)
    assert (inner.entries["c"].line, inner.entries["c"].column) == (4, 8)


def test_a_number_keeps_the_digits_that_were_written() -> None:
    node, _ = parse("[1.50, 1e3]", "f")
    assert isinstance(node, Sequence)
    assert [item.text for item in node.items if isinstance(item, Scalar)] == ["1.50", "1e3"]


MISTAKES = [
    ("", 1, 1, "the file is empty"),
    (" // nothing\n", 2, 1, "the file is empty"),
    ('{"a": 1} x', 1, 10, "`x` follows the end of the JSON value"),
    ('{"a": 1', 1, 8, "the `{` of line 1 is not closed (expected a `}`)"),
    ('{"a": 1 "b": 2}', 1, 9, '`"b"` stands after a value of the `{` of line 1 (expected a comma, or a `}`)'),
    ("[1\n2]", 2, 1, "`2` stands after a value of the `[` of line 1 (expected a comma, or a `]`)"),
    ("{'a': 1}", 1, 2, "`'a'` is where a key should be (expected a key in quotes)"),
    ("{a: 1}", 1, 2, "`a` is where a key should be (expected a key in quotes)"),
    ('{"a" 1}', 1, 6, "`1` stands after the key 'a' (expected a colon)"),
    ('{"a": }', 1, 7, "`}` is not a JSON value"),
    ('{"a":', 1, 6, "the end of the file is not a JSON value"),
    ("[,]", 1, 2, "`,` is not a JSON value"),
    ('["a\n"]', 1, 2, "this text is not closed on its line"),
    ('["a', 1, 2, "this text is not closed on its line"),
    (r'["\x"]', 1, 2, r'`"\x"` is not a valid JSON text: invalid escape character in string'),
    ('["\\ud800"]', 1, 2, "is not a valid JSON text"),
    ("[True]", 1, 2, "`True` is not a JSON value\n    write true."),
    ("[NaN]", 1, 2, "`NaN` is not a JSON value"),
    ("[1e999]", 1, 2, "`1e999` is not a JSON value"),
    ("[/* 1]", 1, 2, "this comment is not closed (expected a `*/`)"),
    ("[" * (MAX_DEPTH + 2), 1, MAX_DEPTH + 2, "nested deeper than"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), MISTAKES)
def test_a_mistake_says_where_and_what(text: str, line: int, column: int, words: str) -> None:
    node, problems = parse(text, "f.json")
    assert node is None
    [problem] = problems
    assert (problem.severity, problem.line, problem.column) == ("error", line, column)
    assert words in str(problem)


def test_deep_enough_is_not_too_deep() -> None:
    node, problems = parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, "f")
    assert (isinstance(node, Sequence), problems) == (True, [])


def test_the_last_of_two_equal_keys_counts_as_in_json_and_is_warned_about() -> None:
    text = '{"a": 1,\n "b": 2, "a": 3}'
    node, problems = parse(text, "f")
    assert _plain(node) == json.loads(text)
    [problem] = problems
    assert (problem.severity, problem.line, problem.column, problem.code) == ("warning", 2, 10, "duplicate_key")


def test_a_megabyte_of_comments_is_read_at_once() -> None:
    node, problems = parse("/* x */ // y\n" * 80_000 + "[]", "f")
    assert (_plain(node), problems) == ([], [])


def _plain(node: Node | None) -> Any:
    assert node is not None
    return plain(node)
