"""`callboard run`, `validate`, `graph` on DevAll workflows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]

FLOW = """
graph:
  id: review
  nodes:
    - {id: Draft, type: literal, config: {content: "a ${TONE} draft"}}
    - {id: Boss, type: human, config: {description: "Print it?"}}
    - {id: Print, type: python, config: {code: "print('printed')"}}
    - {id: Drop, type: literal, config: {content: dropped}}
  start: Draft
  end: [Print, Drop]
  edges:
    - {from: Draft, to: Boss}
    - {from: Boss, to: Print, condition: {type: keyword, config: {any: ["yes"]}}}
    - {from: Boss, to: Drop, condition: {type: keyword, config: {none: ["yes"]}}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return str(tmp_path / "flow.yaml")


def test_the_result_is_on_stdout_and_the_story_on_stderr(callboard: Callboard, flow: str) -> None:
    code, out, err = callboard("run", flow, "go", "--var", "TONE=dry", "--answer", "yes")
    assert (code, out) == (0, "printed\n")
    assert "Boss asks: Print it? === INPUT FROM Draft (user) === a dry draft" in err
    assert "Print (python)" in err


def test_json_has_the_messages(callboard: Callboard, flow: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "runs")
    code, out, _ = callboard("run", flow, "--var", "TONE=dry", "--answer", "no", "-o", "json", "--save", saved)
    outcome = json.loads(out)
    assert (code, outcome["output"]) == (0, "dropped")
    assert outcome["final_messages"] == [{"role": "user", "content": "dropped", "source": "Drop"}]
    assert (Path(saved) / outcome["run_id"] / "outcome.json").is_file()


def test_a_person_who_is_not_there_is_told_how_to_answer_beforehand(callboard: Callboard, flow: str) -> None:
    code, _, err = callboard("run", flow, "--var", "TONE=dry", "--no-input")
    assert code == 5
    assert "--answer" in err


def test_validate_finds_what_is_wrong_and_takes_variables(callboard: Callboard, flow: str) -> None:
    code, out, _ = callboard("validate", flow, "-o", "json")
    (problem,) = json.loads(out)["problems"]
    assert (code, problem["severity"], problem["code"]) == (0, "warning", "unknown_variable")
    assert "TONE" in problem["message"]
    code, out, _ = callboard("validate", flow, "--strict")
    assert code == 2
    assert "TONE" in out
    code, out, _ = callboard("validate", flow, "--var", "TONE=dry")
    assert (code, out) == (0, f"{flow}: no problems\n")
    Path(flow).write_text(FLOW.replace("type: python", "type: pyton"))
    code, out, _ = callboard("validate", flow, "--var", "TONE=dry")
    assert code == 2
    assert "flow.yaml:7:" in out


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg", "ascii"])
def test_it_can_be_drawn(form: str, callboard: Callboard, flow: str) -> None:
    code, out, _ = callboard("graph", flow, "-o", form, "--var", "TONE=dry")
    assert code == 0
    for word in ("Draft", "Boss", "Print", "human", "yes"):
        assert word in out


def test_what_only_agents_have_is_not_looked_for_in_a_workflow(callboard: Callboard, flow: str) -> None:
    Path(flow).write_text(FLOW.replace("${TONE}", "dry"))
    code, _, err = callboard("tools", "list", "--agent", flow)
    assert code == 2
    assert has_message(err, "runs.target.load_agent")
