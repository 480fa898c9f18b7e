"""The JSON Schema agrees with the reader: what one takes the other takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from support.workflow_files import FILES, GOOD, keys_of

import callboard
from callboard.protocol.tree import plain
from callboard.protocol.workflow import read_workflow
from callboard.protocol.workflow.schema import workflow_schema
from callboard.protocol.yaml_tree import parse

SCHEMA = jsonschema.Draft202012Validator(workflow_schema())
CASES: list[dict[str, Any]] = msgspec.json.decode((FILES / "devall.json").read_bytes())
PAGE = (Path(__file__).parents[3] / "docs" / "workflows.md").read_text(encoding="utf-8")
SHAPES = {"unknown_key", "wrong_type", "missing_key", "unknown_value", "out_of_range", "unknown_type", "misplaced_key"}
SHAPES |= {"no_nodes"}

OTHER_WAYS = {"A14 bad retrieve_stage"}
"""Read with a warning that an editor need not be told to accept."""


def value_of(text: str) -> Any:
    node, _ = parse(text, "f.yaml")
    assert node is not None
    return plain(node)


def test_the_schema_is_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(workflow_schema())


def test_a_good_file_validates() -> None:
    assert list(SCHEMA.iter_errors(value_of(GOOD))) == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["name"] not in OTHER_WAYS], ids=lambda case: case["name"]
)
def test_reader_and_schema_agree_about_a_recorded_file(case: dict[str, Any]) -> None:
    codes = {problem.code for problem in read_workflow(case["yaml"], "f.yaml", environ={})[1]}
    assert bool(list(SCHEMA.iter_errors(value_of(case["yaml"])))) == bool(codes & SHAPES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type: loop_counter", "type: loop"),
        ("content: Write plainly.", "text: Write plainly."),
        ("carry_data: false", "carry_data: [1]"),
        ("          any: [REVISE]", "          ony: [REVISE]"),
        ("group_size: 2", "group_size: 1"),
        ("type: blackboard", "type: board"),
        ("retrieve_stage: [gen]", "retrieve_stage: [generate]"),
        ("            json_path: articles", "            jsonpath: articles"),
        ("          edges: []", "          x-edges: []"),
        ("                - name: get_weather", "                - get_weather"),
        ("        provider: gemini\n", ""),
    ],
)
def test_a_wrong_shape_is_refused_by_both(old: str, new: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    assert {problem.code for problem in read_workflow(text, "f.yaml")[1]} & SHAPES
    assert list(SCHEMA.iter_errors(value_of(text)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_parallel: 4", "max_parallel: ${ROUNDS}"),
        ("carry_data: false", "carry_data: ${FLAG}"),
        ("          allow: [layout]", "          allow: [{name: layout}]"),
        ("start: [brief]", "start: brief"),
        ("retrieve_stage: [gen]", "retrieve_stage: gen"),
        ("context_window: 5", 'context_window: "5"'),
        ("          any: [REVISE]", "          any: REVISE"),
        ("    - from: brief", "    - x-note: first\n      from: brief"),
    ],
)
def test_other_ways_to_write_a_value_are_taken_by_both(old: str, new: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new).replace("ROUNDS: 3", "ROUNDS: 3\n  FLAG: false")
    assert read_workflow(text, "f.yaml")[0] is not None
    assert list(SCHEMA.iter_errors(value_of(text))) == []


def test_the_page_names_every_key() -> None:
    missing = {key for key in keys_of(workflow_schema()) if not re.search(rf"\b{re.escape(key)}\b", PAGE)}
    assert missing == set()


def test_the_first_workflow_of_the_page_is_a_good_one() -> None:
    text = PAGE.split("```yaml\n")[1].split("```")[0]
    workflow, problems = read_workflow(text, "workflows.md", strict=True)
    assert problems == []
    assert workflow is not None


def test_the_page_names_every_warning() -> None:
    source = Path(callboard.__file__).parent / "protocol" / "workflow"
    code = re.compile(r'"warning",\s+"(\w+)"|warn\(\s*"(\w+)"|"warning" if \w+ else "error",\s+"(\w+)"')
    codes = {
        name for file in source.rglob("*.py") for found in code.findall(file.read_text()) for name in found if name
    }
    assert len(codes) > 20
    assert {name for name in codes if f"`{name}`" not in PAGE} == set()
