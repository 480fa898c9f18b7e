"""The tag of a message is written in its class: then a renamed class leaves rows and cassettes readable."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib import import_module

import msgspec

import callboard.protocol


def test_each_tag_is_written_in_its_class() -> None:
    for module in pkgutil.walk_packages(callboard.protocol.__path__, "callboard.protocol."):
        import_module(module.name)
    found = [each for each in _below(msgspec.Struct) if each.__module__.startswith("callboard.")]
    tagged = [each for each in found if each.__struct_config__.tag is not None and not each.__subclasses__()]
    assert len(tagged) > 100
    assert [each.__qualname__ for each in tagged if not _has_tag(each)] == []


def _below(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _has_tag(kind: type[msgspec.Struct]) -> bool:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    values = [word.value for word in definition.keywords if word.arg == "tag"]
    return any(isinstance(value, ast.Constant) and value.value is not True for value in values)
