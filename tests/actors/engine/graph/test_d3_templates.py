"""Loki's conformance cases D3, as far as they need no run, and the laws of templates."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.engine.graph.templates import MISSING, compile_template, getter, parse_path, render, root_of
from callboard.protocol.errors import GraphMistake

STATE: dict[str, Any] = {
    "u": {"n": "A"},
    "l": [{"x": 1}, {"x": 2}],
    "b": True,
    "z": None,
    "o": {"k": [1]},
    "m": [[1, 2], [3, 4]],
    "f": 1.5,
    "t": "ä\n",
}


def strict(text: str, state: dict[str, Any], *, loki: bool = False) -> str:
    return compile_template(text).strict(state, expand_again=loki)


def lenient(text: str, state: dict[str, Any], *, loki: bool = False) -> str:
    return compile_template(text).lenient(state, expand_again=loki)


both_modes = pytest.mark.parametrize("loki", [False, True], ids=["standard", "loki"])


@both_modes
@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{u.n}}", "A"),
        ("{{l[1].x}}", "2"),
        ("{{b}}", "true"),
        ("{{z}}", "null"),
        ("{{o}}", '{"k":[1]}'),
        ("{{l}}", '[{"x":1},{"x":2}]'),
        ("{{m[1][0]}}", "3"),
        ("{{f}}", "1.5"),
        ("{{t}}", "ä\n"),
        ("<{{u.n}}{{u.n}}>", "<AA>"),
        ("", ""),
        ("no token", "no token"),
        ("{{{u.n}}}", "{A}"),
    ],
)
def test_d3_29_what_a_path_renders_as(template: str, text: str, loki: bool) -> None:
    assert strict(template, STATE, loki=loki) == text
    assert lenient(template, STATE, loki=loki) == text


@both_modes
def test_d3_30_strict_names_everything_that_is_missing(loki: bool) -> None:
    with pytest.raises(GraphMistake) as caught:
        strict("{{a}} {{b}} {{a}}", {}, loki=loki)
    assert re.fullmatch(says("engine.graph.templates._complaint", names="'a', 'b'"), str(caught.value))


@pytest.mark.parametrize(
    "path", ["l[9]", "l.0", "u.n.x", "b[0]", "u[0]", "a..b", "l[", "l[]", "l[x]", ".u", "[0]", "u."]
)
def test_d3_30_what_is_out_of_range_or_malformed_is_missing(path: str) -> None:
    assert getter(path)(STATE) is MISSING
    with pytest.raises(GraphMistake, match=says("engine.graph.templates._complaint")):
        strict("{{" + path + "}}", STATE)


@both_modes
@pytest.mark.parametrize("text", ["{{ a }}", "{{}}", "{{a|upper}}", "{{'a'}}", "{a}", "{{-a}}", "{{a\u00a0}}"])
def test_d3_30_what_is_no_token_stays_as_it_is(text: str, loki: bool) -> None:
    assert strict(text, {"a": 1}, loki=loki) == text


NAMES = {
    "my-key": "dash",
    "größe": "gr",
    "名": "x",
    "l": [1, 2, {"a-b": 3}],
    "a_1-b": {"x-y": "z"},
    "नाम": "h",
    "ชื่อ": "t",
    "e\u0301": "nfd",
}


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        *(("{{my-key}}", "dash"), ("{{größe}}", "gr"), ("{{名}}", "x"), ("{{l[-1].a-b}}", "3"), ("{{l[-3]}}", "1")),
        *(("{{नाम}}", "h"), ("{{ชื่อ}}", "t"), ("{{e\u0301}}", "nfd")),
        *(("{{a_1-b.x-y}}", "z"), ("{{l[0]}}-{{my-key}}", "1-dash")),
    ],
)
def test_names_of_any_script_hyphens_and_negative_indexes_are_read(text: str, rendered: str) -> None:
    assert strict(text, NAMES) == rendered
    assert lenient(text, NAMES) == rendered
    assert strict(text.replace("{{l[0]}}", ""), NAMES, loki=True).count("{{") == 1  # as they are written


@pytest.mark.parametrize("text", ["{{my-kex}}", "{{grösse}}", "{{l[-4]}}", "{{l[-]}}"])
def test_what_such_a_name_does_not_find_is_missing(text: str) -> None:
    with pytest.raises(GraphMistake):
        strict(text, NAMES)
    assert lenient(text, NAMES) == ""
    assert strict(text, NAMES, loki=True) == text


def test_d3_30_a_near_miss_is_hinted_at() -> None:
    with pytest.raises(
        GraphMistake, match=says("engine.graph.templates._complaint.2", text="…'topc'…", near="'topic'")
    ):
        strict("{{topc}}", {"topic": "x"})


@both_modes
def test_d3_31_lenient_puts_nothing_where_nothing_is(loki: bool) -> None:
    assert lenient("[{{missing}}] {{output}}", {"output": "DATA"}, loki=loki) == "[] DATA"


def test_d3_33_a_value_is_never_expanded_in_standard() -> None:
    assert strict("{{a}} {{b}}", {"a": "{{b}}", "b": "X"}) == "{{b}} X"
    assert lenient("{{a}} {{b}}", {"a": "{{b}}", "b": "X"}) == "{{b}} X"


def test_d3_33_a_value_is_expanded_again_in_loki() -> None:
    assert strict("{{a}} {{b}}", {"a": "{{b}}", "b": "X"}, loki=True) == "X X"
    assert strict("{{b}} {{a}}", {"a": "{{b}}", "b": "X"}, loki=True) == "X {{b}}"
    assert strict("{{a}}", {"a": "{{b}}", "b": "X"}, loki=True) == "{{b}}"


def test_d3_34_a_single_path_also_gives_the_value_itself() -> None:
    template = compile_template("  {{o}}\n")
    assert template.single == "o"
    assert template.value(STATE) == {"k": [1]}
    assert template.lenient(STATE) == '  {"k":[1]}\n'
    assert compile_template("{{gone}}").value(STATE) is MISSING


@pytest.mark.parametrize("text", ["x {{o}}", "{{o}}{{o}}", "", "o"])
def test_d3_34_other_templates_have_no_single_value(text: str) -> None:
    template = compile_template(text)
    assert template.single is None
    with pytest.raises(ValueError, match=says("engine.graph.templates.CompiledTemplate.value")):
        template.value(STATE)


def test_the_paths_a_template_reads() -> None:
    assert compile_template("{{a.b}} {{c[0]}} {{a.b}}").paths == ("a.b", "c[0]")
    assert [root_of(path) for path in ("a", "a.b", "c[0].d")] == ["a", "a", "c"]


def test_the_same_text_is_compiled_once() -> None:
    assert compile_template("{{once}}") is compile_template("{{once}}")


@pytest.mark.parametrize("number", [2**80, -(2**70)])
def test_numbers_beyond_64_bits_are_rendered_too(number: int) -> None:
    assert render(number) == str(number)
    assert render([number]) == f"[{number}]"


# --- laws -------------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
keys = st.text("abc", min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(keys, json_values, max_size=4), st.lists(texts | keys.map(lambda key: "{{" + key + "}}")))
def test_rendering_is_one_substitution(state: dict[str, Any], parts: list[str]) -> None:
    text = "".join(parts)
    expected = re.sub(
        r"\{\{([a-zA-Z0-9_.\[\]]+)\}\}",
        lambda token: "" if getter(token[1])(state) is MISSING else render(getter(token[1])(state)),
        text,
    )
    assert lenient(text, state) == expected


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(keys, st.integers(), max_size=4), st.lists(texts | keys.map(lambda key: "{{" + key + "}}")))
def test_where_no_value_holds_braces_both_modes_agree(state: dict[str, Any], parts: list[str]) -> None:
    text = "".join(parts)
    assert lenient(text, state) == lenient(text, state, loki=True)


@settings(deadline=None, max_examples=60)
@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_what_is_rendered_is_json(value: Any) -> None:
    assert json.loads(render(value)) == value


@settings(deadline=None, max_examples=60)
@given(texts)
def test_texts_are_rendered_as_they_are(text: str) -> None:
    assert strict("{{k}}", {"k": text}) == text


@settings(deadline=None, max_examples=60)
@given(st.lists(keys | st.integers(0, 3), max_size=4), keys)
def test_a_path_finds_what_was_put_there(steps: list[str | int], first: str) -> None:
    value: Any = "found"
    for step in reversed(steps):
        value = {step: value} if isinstance(step, str) else [*range(step), value]
    path = first + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    assert parse_path(path) == (first, *steps)
    assert getter(path)({first: value}) == "found"
