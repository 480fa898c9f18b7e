"""Nothing that a client sends is of any length: each text, list and dictionary of every request has a bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from callboard.actors.front.control.methods import METHODS
from callboard.actors.front.http.routes import routes
from callboard.protocol.control import acp, method_structs
from callboard.protocol.control.method_structs import BY_FRAME


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


REQUESTS: dict[str, type] = {
    **{
        f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}": kind
        for kind in (*below(method_structs.Params), *below(acp.Params))
    },
    **{name: method.params for name, method in METHODS.items()},
    **{f"{route.method} {route.path} body": route.body for route in routes() if route.body is not None},
    **{f"{route.method} {route.path} query": route.query for route in routes() if route.query is not None},
}


def unbounded(kind: inspect.Type, where: str, seen: tuple[Any, ...] = ()) -> Iterator[str]:
    """Places in a type that take something of any length."""
    if isinstance(kind, inspect.Metadata):
        if not (isinstance(kind.type, inspect.AnyType) and kind.extra == BY_FRAME):
            yield from unbounded(kind.type, where, seen)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from unbounded(each, where, seen)
    elif isinstance(kind, inspect.StructType):
        if kind.cls not in seen:
            for field in kind.fields:
                yield from unbounded(field.type, f"{where}.{field.name}", (*seen, kind.cls))
    elif isinstance(kind, inspect.StrType | inspect.BytesType):
        if kind.max_length is None and not getattr(kind, "pattern", None):
            yield where
    elif isinstance(kind, inspect.CollectionType | inspect.DictType):
        if kind.max_length is None:
            yield where
        inner = (kind.key_type, kind.value_type) if isinstance(kind, inspect.DictType) else (kind.item_type,)
        for each in inner:
            yield from unbounded(each, f"{where}[]", seen)
    elif not isinstance(
        kind, inspect.IntType | inspect.FloatType | inspect.BoolType | inspect.NoneType | inspect.LiteralType
    ):
        yield where


@pytest.mark.parametrize("name", REQUESTS)
def test_every_text_list_and_dictionary_of_a_request_has_a_bound(name: str) -> None:
    assert not list(unbounded(inspect.type_info(REQUESTS[name]), name))


class Inner(msgspec.Struct):
    words: list[str]


class Outer(msgspec.Struct):
    inner: dict[str, Inner]
    any: Any
    raw: msgspec.Raw


def test_what_has_no_bound_is_found() -> None:
    found = set(unbounded(inspect.type_info(Outer), "outer"))
    assert found == {
        f"outer.{place}" for place in ("inner", "inner[]", "inner[].words", "inner[].words[]", "any", "raw")
    }
