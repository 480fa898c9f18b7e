"""`callboard convert`: what it writes, and what it says of workflows that can't be graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.messages import has_message

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
    assert (code, has_message(err, "cli.commands.files.convert.2")) == (2, True)


def test_every_reason_is_told_with_its_line_and_nothing_is_written(callboard: Callboard, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        FLOW.replace("type: literal, config: {content: agreed}", 'type: python, config: {code: "1"}')
        + "    - {from: Yes, to: Ask}\n  start: Ask\n"
    )
    code, _, err = callboard("convert", str(flow), str(tmp_path / "flow"))
    assert code == 2
    assert "flow.yaml:4:" in err
    assert has_message(err, "engine.workflow.convert.reasons.3", named="'Ask', 'Yes'")
    assert "flow.yaml:5:23:" in err
    assert "'Yes' is a python node" in err
    assert "can't be converted to a graph, for 2 reasons" in err
    assert not (tmp_path / "flow").exists()


def test_a_function_of_the_users_own_is_not_taken_for_the_common_one(callboard: Callboard, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.replace('{type: keyword, config: {any: ["yes"]}}', "code_pass"))
    assert callboard("convert", str(flow), str(tmp_path / "common"))[0] == 0
    (tmp_path / "functions" / "edge").mkdir(parents=True)
    (tmp_path / "functions" / "edge" / "own.py").write_text("def code_pass(data: str) -> bool:\n    return False\n")
    code, _, err = callboard("convert", str(flow), str(tmp_path / "own"))
    assert (
        code,
        "flow.yaml:9:" in err,
        has_message(err, "engine.workflow.convert._of_edge.3", function="code_pass"),
    ) == (2, True, True)


def test_each_reason_stands_at_the_key_that_is_one(callboard: Callboard, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        """
graph:
  nodes:
    - {id: In, type: literal, config: {content: x}}
    - id: A
      type: agent
      config:
        provider: openai
        name: gpt-4o
        base_url: http://127.0.0.1:1
        api_key: k
        params:
          temperature: 0
          max_tokens: 10
          stop: [x]
        skills: {enabled: false}
        tooling: [{type: mcp_remote, config: {server: http://127.0.0.1:1}}]
        thinking: {type: reflection, config: {reflection_prompt: again}}
  start: In
  edges:
    - from: In
      to: A
      processor: {type: function, config: {name: uppercase_payload}}
"""
    )
    code, _, err = callboard("convert", str(flow), str(tmp_path / "g"))
    assert code == 2
    said = [line.split("error: ")[1] for line in err.splitlines() if ": error: " in line]
    assert [line.rsplit(": error:")[0].rsplit("/")[-1] for line in err.splitlines() if ": error: " in line] == [
        "flow.yaml:10:19",
        "flow.yaml:14:23",
        "flow.yaml:15:17",
        "flow.yaml:17:18",
        "flow.yaml:18:19",
        "flow.yaml:21:7",
    ]
    assert [line.split("`")[1] for line in said[1:3]] == ["max_tokens", "stop"]


def test_what_the_graph_does_in_other_words_is_noted(callboard: Callboard, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    agent = "{id: A, type: agent, on_error: continue, config: {provider: openai, name: m, retry: {%s}}}"
    flow.write_text("graph: {nodes: [" + agent % "retry_on_status_codes: [418]" + "]}\n")
    code, _, err = callboard("convert", str(flow), str(tmp_path / "g"))
    assert code == 0
    assert err.splitlines() == [
        "callboard: note: 'A' continues after a failure with only the error as its output",
        "callboard: note: 'A' selects the failures to retry (`retry`); a graph retries those that can be temporary",
    ]
    flow.write_text("graph: {nodes: [" + agent.replace("on_error: continue, ", "") % "enabled: false" + "]}\n")
    assert callboard("convert", str(flow), str(tmp_path / "h"))[2] == ""
