"""YAML as values with places: what is read, what is refused, and that every place is right."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cpu_time import slowness
from support.messages import has_message

from callboard.protocol import yaml_tree
from callboard.protocol.problems import Problem
from callboard.protocol.tree import Mapping, Node, Scalar, Sequence, plain
from callboard.protocol.yaml_tree import Source, parse, parse_mapping


@pytest.fixture(params=["C", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both of PyYAML's parsers: which one is there depends on how it was built."""
    if request.param == "C" and not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml_tree, "_Parser", yaml.CLoader if request.param == "C" else yaml.Loader)
    return str(request.param)


def values(text: str) -> Any:
    node, problems = parse(text, "f.yaml")
    assert problems == []
    assert node is not None
    return plain(node)


def only_problem(text: str) -> Problem:
    _, problems = parse_mapping(text, "f.yaml")
    assert len(problems) == 1, problems
    return problems[0]


# --- what is read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("On", "On"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("0x10", 16),
        ("0o17", 15),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("1.0.0", "1.0.0"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ('"5"', "5"),
        ("'yes'", "yes"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("! 5", 5),
    ],
)
def test_scalars_follow_yaml_1_2(parser: str, text: str, value: Any) -> None:
    found = values(f"k: {text}")["k"]
    assert found == value
    assert type(found) is type(value)


def test_a_bare_yes_stays_text_as_key_and_in_a_list(parser: str) -> None:
    assert values("yes: a\nno: [on, off]") == {"yes": "a", "no": ["on", "off"]}


def test_aliases_and_merge_keys_are_copied_out(parser: str) -> None:
    text = "base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo: {<<: [*b, {x: 9, z: 4}]}\n"
    assert values(text) == {"base": {"x": 1, "y": 2}, "one": {"y": 3, "x": 1}, "two": {"x": 1, "y": 2, "z": 4}}


def test_aliased_values_are_not_shared() -> None:
    found = values("a: &x [1]\nb: *x")
    found["a"].append(2)
    assert found["b"] == [1]


def test_key_order_is_the_files() -> None:
    assert list(values("b: 1\na: 2\nc: 3")) == ["b", "a", "c"]


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("", "empty_file", 0, 0),
        ("# nothing\n", "empty_file", 0, 0),
        ("- a", "not_a_mapping", 1, 1),
        ("just text", "not_a_mapping", 1, 1),
        ("a: 1\na: 2", "duplicate_key", 2, 1),
        ("a:\n  b: 1\n  c: 2\n  b: 3", "duplicate_key", 4, 3),
        ("1: a", "non_string_key", 1, 1),
        ("true: a", "non_string_key", 1, 1),
        ("? [a]\n: b", "non_string_key", 1, 3),
        ("a: 1\n---\nb: 2", "many_documents", 2, 1),
        ("\ta: 1", "yaml_syntax", 1, 1),
        ("a:\n\t- b", "yaml_syntax", 2, 1),
        ("a: b: c", "yaml_syntax", 1, 5),
        ("a: 1\nb: \x00", "yaml_syntax", 2, 4),
        ("a: \ud800", "yaml_syntax", 1, 4),
        ("a: *nobody", "bad_alias", 1, 4),
        ("a: &x [*x]", "bad_alias", 1, 8),
        ("a: !python/object:os.system x", "unknown_tag", 1, 4),
        ("a: !!binary aGk=", "unknown_tag", 1, 4),
        ("a: !!int x", "bad_scalar", 1, 4),
        ("a: .nan", "bad_scalar", 1, 4),
        ("a: 1e999", "bad_scalar", 1, 4),
        ("a: " + "9" * 5000, "bad_scalar", 1, 4),
        ("<<: 5", "bad_merge", 1, 1),
    ],
)
def test_every_refusal_is_a_problem_with_its_place(parser: str, text: str, code: str, line: int, column: int) -> None:
    problem = only_problem(text)
    assert (problem.code, problem.line, problem.column) == (code, line, column)
    assert problem.severity == "error"
    assert problem.message.startswith("YAML parsing error: ")
    assert problem.expected


HELLO = "name: x\nstart: a\nnodes:\n  a:\n    type: llm\n    prompt: {quote}Hello {{{{x}}}}\n    next: b\n"


@pytest.mark.parametrize(
    ("quote", "rest"),
    [
        ('"', '  b: {type: end, output: "done"}\n'),
        ('"', '  b:\n    type: end\n    output: "done: it is"\n'),
        ('"', ""),
        ("'", "  b:\n    type: end\n    output: don't\n"),
        ("'", ""),
    ],
)
def test_a_quote_that_is_not_closed_is_reported_where_it_was_opened(parser: str, quote: str, rest: str) -> None:
    problem = only_problem(HELLO.format(quote=quote) + rest)
    assert (problem.code, problem.line, problem.column) == ("yaml_syntax", 6, 13)
    assert has_message(problem.message, "protocol.yaml_tree._Builder._unreadable.4")
    assert problem.hint == f"Hint: close it where the text ends, with {quote}."


def test_a_text_in_quotes_over_several_lines_is_not_blamed_for_a_later_mistake(parser: str) -> None:
    assert only_problem('a: "one\n  two"\nb: [1, 2\nc: 3\n').line > 2
    assert only_problem('a: "one\n  two \\q three"\n').line == 2


def test_a_tab_is_told_by_name() -> None:
    problem = only_problem("a:\n\tb: 1")
    assert has_message(problem.message, "protocol.yaml_tree._Builder._unreadable.6")
    assert has_message(str(problem.hint), "protocol.yaml_tree._Builder._unreadable.7")


@pytest.mark.parametrize("indent", ["  ", "    "])
def test_a_block_text_may_begin_with_a_tab(indent: str) -> None:
    node, problems = parse(f"a: |\n{indent}\tgcc x\n{indent}done\nb: 1\n", "f")
    assert problems == []
    assert plain(node) == {"a": "\tgcc x\ndone\n", "b": 1}


def test_all_duplicates_are_found_at_once() -> None:
    _, problems = parse("a: 1\na: 2\nb: {c: 1, c: 2}\n", "f.yaml")
    assert [(p.code, p.line, p.key) for p in problems] == [("duplicate_key", 2, "a"), ("duplicate_key", 3, "b.c")]


def test_problems_inside_a_node_name_it() -> None:
    assert only_problem("nodes:\n  plan:\n    type: llm\n    type: llm\n").node == "plan"


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (bomb(30), "too_large"),
        ("[" * 50_000, "too_deep"),
        ("{" * 50_000, "too_deep"),
        ("- " * 50_000, "too_deep"),
        ("a: &a " + "[" * 90 + "]" * 90 + "\nb: " + "[" * 90 + "*a" + "]" * 90, "too_deep"),
        ("".join(" " * n + "k:\n" for n in range(500)), "too_deep"),
    ],
)
def test_bombs_are_refused_before_they_grow(parser: str, text: str, code: str) -> None:
    started = time.process_time()
    node, problems = parse_mapping(text, "f.yaml")
    assert node is None
    assert problems[-1].code == code
    assert time.process_time() - started < 60 * slowness()  # one that grows would take hours


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_no_text_makes_it_raise(text: str) -> None:
    node, problems = parse_mapping(text, "f.yaml")
    assert node is not None or problems


# --- places -----------------------------------------------------------------------------------------------

TEXT = """\
name: g
nodes:
  a:
    next: [b, "c"]
    text: |
      long
  "b": {x: 1}
"""


@pytest.mark.parametrize(
    ("path", "key", "place"),
    [
        ((), False, (1, 1)),
        (("name",), False, (1, 7)),
        (("name",), True, (1, 1)),
        (("nodes", "a", "next", 1), False, (4, 15)),
        (("nodes", "a", "text"), False, (5, 11)),
        (("nodes", "b"), True, (7, 3)),
        (("nodes", "b", "x"), False, (7, 12)),
        (("nodes", "b", "gone"), False, (7, 8)),
        (("nodes", "a", "next", 9), False, (4, 11)),
        (("name", 0), False, (1, 7)),
    ],
)
def test_where_finds_the_value_the_key_or_the_nearest_parent(
    path: tuple[str | int, ...], key: bool, place: tuple[int, int]
) -> None:
    assert Source("f.yaml", TEXT).where(path, key=key) == place


def test_a_source_without_text_has_no_places() -> None:
    assert Source().where(("a",)) == (0, 0)


def test_a_later_problem_carries_place_and_key() -> None:
    problem = Source("f.yaml", TEXT).problem("error", "x", "bad", ("nodes", "a", "next", 0), node="a")
    assert str(problem) == "f.yaml:4:12: error: [a] bad"
    assert problem.key == "nodes.a.next[0]"


json_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff", exclude_categories=["Cc"]))
)
json_values = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef", min_size=1), inner, max_size=4),
    max_leaves=12,
)


class Quoting(yaml.SafeDumper):
    """Writes every text in quotes: PyYAML decides by YAML 1.1 which ones need them."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(json_values.filter(lambda value: value is not None), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_dumped_is_read_and_every_place_points_at_it(value: Any, flow: bool) -> None:
    text = yaml.dump(value, Dumper=Quoting, default_flow_style=flow, allow_unicode=True, width=10**6)
    node, problems = parse(text, "f.yaml")
    assert problems == []
    assert node is not None
    assert plain(node) == value
    lines = text.splitlines()
    for place in places(node):
        found = lines[place.line - 1][place.column - 1 :]
        if isinstance(place, Scalar) and place.text and not isinstance(place.value, str):
            assert found.startswith(place.text)
        elif isinstance(place, Scalar) and place.text:
            assert found.startswith('"')


def places(node: Node) -> list[Node]:
    children: list[Node] = []
    if isinstance(node, Sequence):
        children = node.items
    elif isinstance(node, Mapping):
        children = [entry.value for entry in node.entries.values()]
    return [node, *(found for child in children for found in places(child))]


def test_a_template_without_quotes_is_named(parser: str) -> None:
    problem = only_problem("prompt: {{name}}\n")
    assert (problem.code, problem.hint) == ("non_string_key", 'Hint: a template needs quotes: "{{name}}".')
