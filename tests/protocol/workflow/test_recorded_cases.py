"""The files whose behaviour in DevAll was recorded: what fails there fails here, and what runs there is read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.workflow_files import FILES

from callboard.protocol.problems import Problem
from callboard.protocol.workflow import Known, Mode, Workflow, read_workflow

CASES: list[dict[str, Any]] = msgspec.json.decode((FILES / "devall.json").read_bytes())
BY_ID = {case["name"].split(":")[0]: case for case in CASES}
KNOWN = Known(
    conditions=frozenset(),
    processors=frozenset(),
    tools={"weather": frozenset({"get_weather", "get_city_num"})},
    providers=frozenset({"openai", "gemini", "stub", "tstub"}),
)

WHILE_RUNNING = {
    "L10 two entry nodes triggered -> error": "two_entries",
    "L17 inner cycle double entry from outer node": "two_entries",
    "X01 node exception fails run; layer mates finish": None,
}
"""What fails only once it runs, and the warning of it."""

READ_IN_STANDARD = ("B02", "E07", "E08", "E23", "L16", "N01", "N03", "A13", "A14")
"""What DevAll refuses and its guide teaches."""

REFUSED_IN_STANDARD = {"E02": "unknown_function", "N12": "unknown_store"}
"""What DevAll passes over and its guide does not."""


def load(path: str, parent: str) -> tuple[str, str]:
    raise FileNotFoundError(f"there is no {path} beside {parent}")


def read(case: dict[str, Any], compat: Mode) -> tuple[Workflow | None, list[Problem]]:
    return read_workflow(case["yaml"], "wf.yaml", environ={}, compat=compat, known=KNOWN, load=load)


def errors(problems: list[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_recorded_case_is_read_or_refused_as_devall_does(case: dict[str, Any]) -> None:
    workflow, problems = read(case, "devall")
    name = case["name"]
    if name in WHILE_RUNNING:
        assert workflow is not None
        assert WHILE_RUNNING[name] in {None, *(problem.code for problem in problems)}
        return
    assert (workflow is None) == (case["expected"]["error"] is not None), problems
    assert all(problem.line and problem.column and problem.hint for problem in errors(problems))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_standard_dialect_differs_where_the_guide_speaks(case: dict[str, Any]) -> None:
    workflow, problems = read(case, "standard")
    ident = case["name"].split()[0]
    if ident in READ_IN_STANDARD:
        assert workflow is not None, problems
    elif ident in REFUSED_IN_STANDARD:
        assert [problem.code for problem in errors(problems)] == [REFUSED_IN_STANDARD[ident]]
    elif case["name"] not in WHILE_RUNNING:
        assert (workflow is None) == (case["expected"]["error"] is not None), problems


def test_no_recorded_case_needs_more_than_one_error_to_be_refused() -> None:
    many = {case["name"]: errors(read(case, "devall")[1]) for case in CASES}
    assert {name: found for name, found in many.items() if len(found) > 1} == {}
