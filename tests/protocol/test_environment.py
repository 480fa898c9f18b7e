"""Every scalar of config.yaml can be said by a variable, ours or Loki's, and means the same there as in the file."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import inspect

from callboard.protocol.environment import PREFIXES, names_of, variable_value
from callboard.protocol.reading import Field
from callboard.protocol.settings import WITHOUT_EFFECT, read_settings, without_effect
from callboard.protocol.settings.read import bare, scalars

FIELDS = {field.name: field for _, field in scalars()}
SPECIAL = {"model": "openai:gpt-x", "reasoning_effort": "high", "thinking_budget": "2000", "rag_language": "de"}


def sample(field: Field) -> str:
    """A value that is not the default, as the text of a scalar."""
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    wanted = bare(field.type)
    if isinstance(wanted, inspect.BoolType):
        return "false" if field.default is True else "true"
    if isinstance(wanted, inspect.IntType):
        return "7"
    if isinstance(wanted, inspect.FloatType):
        return "0.5"
    if isinstance(wanted, inspect.LiteralType):
        return str(next(value for value in wanted.values if value != field.default))
    return "text"


def value(settings: Any, key: str) -> Any:
    return settings.other[key] if key in settings.other else getattr(settings, key, None)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("key", FIELDS)
def test_a_variable_means_what_the_key_in_the_file_means(key: str, prefix: str) -> None:
    text = sample(FIELDS[key])
    of_file, problems = read_settings(f"{key}: {text}\n", "config.yaml", {})
    assert not problems
    by_variable, problems = read_settings("", "config.yaml", {f"{prefix}{key.upper()}": text})
    assert not problems
    assert value(by_variable, key) == value(of_file, key) != FIELDS[key].default
    warned = [problem.key for problem in without_effect(by_variable)]
    assert warned == [problem.key for problem in without_effect(of_file)] == ([key] if key in WITHOUT_EFFECT else [])


def test_ours_goes_before_lokis_and_both_before_the_file() -> None:
    environ = {"LOKI_MODEL": "a:loki"}
    settings, _ = read_settings("model: a:file\n", "config.yaml", environ)
    assert (settings.model, settings.model_from) == ("a:loki", "LOKI_MODEL")
    settings, _ = read_settings("model: a:file\n", "config.yaml", environ | {"CALLBOARD_MODEL": "a:ours"})
    assert (settings.model, settings.model_from) == ("a:ours", "CALLBOARD_MODEL")
    settings, _ = read_settings("model: a:file\n", "config.yaml", {"CALLBOARD_MODEL": ""})
    assert (settings.model, settings.model_from) == ("a:file", "config.yaml")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("key", "text"), [("temperature", "warm"), ("rag_top_k", "0"), ("stream", "maybe"), ("mcp_tools", "some")]
)
def test_a_value_of_the_wrong_type_names_the_variable(key: str, text: str, prefix: str) -> None:
    _, problems = read_settings("", "config.yaml", {f"{prefix}{key.upper()}": text})
    (problem,) = problems
    assert problem.severity == "error"
    assert f"{prefix}{key.upper()} is '{text}'" in str(problem)
    assert problem.expected


def test_the_variable_that_counts() -> None:
    assert names_of("rag_top_k") == ("CALLBOARD_RAG_TOP_K", "LOKI_RAG_TOP_K")
    assert variable_value("x", {"LOKI_X": "1"}) == ("LOKI_X", "1")
    assert variable_value("x", {"LOKI_X": "1", "CALLBOARD_X": ""}) == ("LOKI_X", "1")
    assert variable_value("x", {}) == ("", "")
