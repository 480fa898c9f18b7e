"""How writes are merged: the table of reducers, the mistakes, and the laws. Case numbers are those of D5."""

from __future__ import annotations

import copy
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import fragment, has_message

from callboard.actors.engine.graph.reducers import REDUCERS, changed, merge_writes, same_json
from callboard.protocol.errors import GraphMistake
from callboard.protocol.graph import Reducer


def merged(current: dict[str, Any], reducer: str, *values: Any) -> Any:
    writes = {f"n{number}": {"k": value} for number, value in enumerate(values)}
    return merge_writes(current, writes, {"k": reducer})["k"]


def test_the_reducers_are_those_of_the_language() -> None:
    assert set(REDUCERS) == set(get_args(Reducer))


def test_d5_47_writes_are_merged_in_the_order_of_node_ids() -> None:
    writes = {"wb": {"results": "beta"}, "wa": {"results": "alpha"}}
    assert merge_writes({}, writes, {"results": "append"}) == {"results": ["alpha", "beta"]}


def test_d5_48_several_writers_need_a_reducer() -> None:
    with pytest.raises(GraphMistake) as caught:
        merge_writes({}, {"wa": {"results": 1}, "wb": {"results": 2}}, {})
    assert str(caught.value).startswith(
        fragment("engine.graph.reducers.merge_writes.2", key="results", nodes="2", key_2="results")
    )
    assert "wa, wb" in str(caught.value)


def test_every_culprit_is_named_and_nothing_is_merged() -> None:
    current = {"list": "text", "ok": 1}
    writes = {"a": {"x": 1, "y": 1, "list": 1, "ok": 2}, "b": {"x": 2, "y": 2}}
    before = copy.deepcopy(current)
    with pytest.raises(GraphMistake) as caught:
        merge_writes(current, writes, {"list": "append"})
    text = str(caught.value)
    assert "Key 'x'" in text
    assert "Key 'y'" in text
    assert has_message(text, "engine.graph.reducers.merge_writes", key="list", nodes="a")
    assert current == before


@pytest.mark.parametrize(
    ("reducer", "current", "values", "result"),
    [
        ("sum", 1, [3], 4),  # d5_53
        ("append", [1], [[1, 2]], [1, [1, 2]]),  # d5_54
        ("extend", [1], [[1, 2]], [1, 1, 2]),  # d5_54
        ("concat", "", ["x", "y"], "x\ny"),  # d5_55 from here on
        ("merge", {"a": 1}, [{"a": 2, "b": 3}], {"a": 2, "b": 3}),
        ("max", 3, [2.5], 3),
        ("sum", 1.5, [1.5], 3),
        ("overwrite", 0, ["a", "b"], "b"),
        ("concat", "a", ["", "b"], "a\n\nb"),
        ("concat", "", ["", ""], ""),
        ("min", 3, [2.5, 7], 2.5),
        ("max", 2.0, [1], 2),
        ("sum", 2**63 - 1, [1], 2**63),
        ("sum", 0.1, [0.2], 0.1 + 0.2),
    ],
)
def test_d5_55_what_the_reducers_do(reducer: str, current: Any, values: list[Any], result: Any) -> None:
    found = merged({"k": current}, reducer, *values)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("reducer", "value", "result"),
    [
        ("append", [1], [[1]]),
        ("extend", [1], [1]),
        ("concat", "v", "v"),
        ("sum", 2, 2),
        ("max", 2, 2),
        ("min", 2.0, 2),
        ("merge", {"a": 1}, {"a": 1}),
        ("overwrite", None, None),
    ],
)
def test_d5_55_the_first_write_of_an_absent_key(reducer: str, value: Any, result: Any) -> None:
    assert merged({}, reducer, value) == result


@pytest.mark.parametrize(
    ("reducer", "current", "value", "text"),
    [
        ("append", "s", 1, "reducer 'append' requires an array (or absent) for the current value, got string"),
        ("append", None, 1, "reducer 'append' requires an array (or absent) for the current value, got null"),
        ("extend", {}, [1], "reducer 'extend' requires an array (or absent) for the current value, got object"),
        ("extend", [], "x", "reducer 'extend' requires an array for the incoming value, got string"),
        ("concat", 1, "x", "reducer 'concat' requires a string (or absent) for the current value, got number"),
        ("concat", "x", True, "reducer 'concat' requires a string for the incoming value, got bool"),
        ("sum", 1, "x", "reducer 'sum' requires a number for the incoming value, got string"),
        ("sum", True, 1, "reducer 'sum' requires a number (or absent) for the current value, got bool"),
        ("max", 1, [], "reducer 'max' requires a number for the incoming value, got array"),
        ("merge", {}, [], "reducer 'merge' requires an object for the incoming value, got array"),
        ("sum", 1.7e308, 1.7e308, "reducer 'sum' gives a number too large for JSON"),
    ],
)
def test_d5_56_values_that_do_not_suit(reducer: str, current: Any, value: Any, text: str) -> None:
    with pytest.raises(GraphMistake) as caught:
        merged({"k": current}, reducer, value)
    assert text in str(caught.value)


# --- what counts as a write -------------------------------------------------------------------------------


def test_d5_53_an_equal_value_is_no_write() -> None:
    assert changed({"n": 1, "l": [1, {"a": 2}]}, {"n": 1, "l": [1, {"a": 2}]}) == {}


def test_new_and_different_values_are_writes() -> None:
    before: dict[str, Any] = {"same": "x", "number": 1, "bool": 1, "null": None}
    after = {"same": "x", "number": 1.0, "bool": True, "null": None, "new": None}
    assert changed(before, after) == {"number": 1.0, "bool": True, "new": None}
    assert not same_json([1, [True]], [1, [1]])
    assert not same_json({"a": 1}, {"b": 1})


# --- laws -------------------------------------------------------------------------------------------------

writers = st.dictionaries(st.text("abc", min_size=1), st.integers(-100, 100), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(writers, st.sampled_from(sorted(REDUCERS)), st.randoms())
def test_the_order_of_arrival_does_not_matter(values: dict[str, int], reducer: str, random: Any) -> None:
    wrap = {"extend": lambda v: [v], "concat": str, "merge": lambda v: {str(v): v}}.get(reducer, lambda v: v)
    writes = {node: {"k": wrap(value)} for node, value in values.items()}
    shuffled = list(writes.items())
    random.shuffle(shuffled)
    assert merge_writes({}, writes, {"k": reducer}) == merge_writes({}, dict(shuffled), {"k": reducer})


@settings(deadline=None, max_examples=60)
@given(writers, st.lists(st.integers(), max_size=3))
def test_append_keeps_everything_and_leaves_the_old_list_alone(values: dict[str, int], old: list[int]) -> None:
    current = {"k": old}
    before = list(old)
    after = merge_writes(current, {node: {"k": value} for node, value in values.items()}, {"k": "append"})
    assert after["k"] == [*before, *(values[node] for node in sorted(values))]
    assert current["k"] == before


@settings(deadline=None, max_examples=60)
@given(writers)
def test_sum_max_min_are_what_they_say(values: dict[str, int]) -> None:
    writes = {node: {"s": value, "b": value, "t": value} for node, value in values.items()}
    after = merge_writes({}, writes, {"s": "sum", "b": "max", "t": "min"})
    assert after == {"s": sum(values.values()), "b": max(values.values()), "t": min(values.values())}


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text("abc"), st.integers(), max_size=4), st.dictionaries(st.text("abc"), st.integers()))
def test_a_lone_writer_without_reducers_replaces(current: dict[str, int], written: dict[str, int]) -> None:
    assert merge_writes(current, {"n": written}, {}) == {**current, **written}
