"""`callboard convert`: what it writes, and what it says of workflows that can't be graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Callboard = Callable[..., "tuple[int, str, str]"]

FLOW = """
graph:
  nodes:
    - {id: Ask, type: human, config: {description: "Well?"}}
    - {id: Yes, type: literal, config: {content: agreed}}
    - {id: No, type: literal, config: {content: refused}}
  end: [Yes, No]
  edges:
    - {from: Ask, to: Yes, condition: {type: keyword, config: {any: ["yes"]}}}
    - {from: Ask, to: No, condition: {type: keyword, config: {none: ["yes"]}}}
"""


@pytest.mark.parametrize(("answer", "result"), [("yes", "agreed"), ("well", "refused")])
def test_the_graph_does_what_the_workflow_does(answer: str, result: str, callboard: Callboard, tmp_path: Path) -> None:
    flow, graph = tmp_path / "flow.yaml", str(tmp_path / "flow")
    flow.write_text(FLOW)
    code, out, err = callboard("convert", str(flow), graph)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{graph}/graph.yaml"
    assert callboard("validate", graph, "--strict")[0] == 0
    assert callboard("run", graph, "go", "--answer", answer, "-q")[1] == result + "\n"
    code, _, err = callboard("convert", str(flow), graph)
    assert (code, "nothing in it is overwritten" in err) == (2, True)


def test_every_reason_is_told_with_its_line_and_nothing_is_written(callboard: Callboard, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        FLOW.replace("type: literal, config: {content: agreed}", 'type: python, config: {code: "1"}')
        + "    - {from: Yes, to: Ask}\n  start: Ask\n"
    )
    code, _, err = callboard("convert", str(flow), str(tmp_path / "flow"))
    assert code == 2
    assert "flow.yaml:4:" in err
    assert "messages go round: 'Ask', 'Yes'" in err
    assert "flow.yaml:5:" in err
    assert "'Yes' is a python node" in err
    assert "can't be a graph, for 2 reasons" in err
    assert not (tmp_path / "flow").exists()


def test_a_function_of_the_users_own_is_not_taken_for_the_common_one(callboard: Callboard, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.replace('{type: keyword, config: {any: ["yes"]}}', "code_pass"))
    assert callboard("convert", str(flow), str(tmp_path / "common"))[0] == 0
    (tmp_path / "functions" / "edge").mkdir(parents=True)
    (tmp_path / "functions" / "edge" / "own.py").write_text("def code_pass(data: str) -> bool:\n    return False\n")
    code, _, err = callboard("convert", str(flow), str(tmp_path / "own"))
    assert (code, "flow.yaml:9:" in err, "asks the function 'code_pass'" in err) == (2, True, True)
