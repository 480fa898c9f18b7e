"""Forty tool files in three languages, each with the exact schemas that a model is told beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from callboard.actors.work.tools.declare.read import EXTENSIONS, read_tools

CORPUS = Path(__file__).parents[4] / "fixtures" / "tools"
FILES = sorted(file for file in CORPUS.glob("*/*") if file.suffix in EXTENSIONS)


def expected(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.with_name(file.name + ".json").read_text())
    return found


def test_the_corpus_is_whole() -> None:
    assert len(FILES) >= 40
    assert {file.suffix for file in FILES} == set(EXTENSIONS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CORPUS)))
def test_a_file_declares_exactly_what_stands_beside_it(file: Path) -> None:
    wanted = expected(file)
    read = read_tools(file, agent=wanted["agent"])
    tools = [
        {"name": one.name, "description": one.description, "parameters": one.parameters} for one in read.declarations
    ]
    # As text, because the order of the properties is part of the promise.
    assert json.dumps(tools, indent=2) == json.dumps(wanted["tools"], indent=2)
    assert [str(problem).replace(str(file), file.name) for problem in read.problems] == wanted.get("problems", [])
    assert (None if read.instructions is None else read.instructions.name) == wanted.get("instructions")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CORPUS)))
def test_schemas_are_valid_and_defaults_fit_them(file: Path) -> None:
    for tool in expected(file)["tools"]:
        Draft202012Validator.check_schema(tool["parameters"])
        for name, schema in tool["parameters"]["properties"].items():
            if "default" in schema:
                assert Draft202012Validator(schema).is_valid(schema["default"]), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CORPUS)))
def test_a_declaration_says_where_its_function_stands(file: Path) -> None:
    lines = file.read_text().split("\n")
    read = read_tools(file, agent=expected(file)["agent"])
    for one in [*read.declarations, *([read.instructions] if read.instructions else [])]:
        assert one.function in lines[one.line - 1]
        assert one.file == file
        if one.language == "bash":
            assert [argument.name for argument in one.arguments] == list(one.parameters["properties"])
