"""Agents that nodes call: variables without a value, and names that are none, are found before anything is paid."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_runs import AgentRunner

import callboard
from callboard.protocol.errors import InvalidFile

NEEDS = "name: kid\nvariables: [{name: who, description: w}, {name: mood, default: calm}]\n"
GRAPH = "name: g\nstart: a\nnodes:\n  a: {type: agent, agent: %s, prompt: x%s, next: d}\n  d: {type: end, output: ok}\n"
FLOW = "graph:\n  id: f\n  nodes:\n    - {id: A, type: agent, config: {provider: callboard, name: %s}}\n  edges: []\n"

KIDS = {
    "an agent": ("kid", "kid/config.yaml", NEEDS),
    "a graph": ("kid", "kid/graph.yaml", NEEDS + "start: d\nnodes: {d: {type: end, output: ok}}\n"),
    "of aichat": ("kid", "kid/index.yaml", NEEDS + "instructions: x\n"),
    "a file beside it": ("kid.yaml", "g/kid.yaml", NEEDS),
}


def write(config: Path, file: str, text: str) -> Path:
    path = config / "agents" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found(config: Path, target: Path, **options: str) -> list[tuple[str, str, str | None]]:
    problems = callboard.validate(target, config_dir=config, **options)
    return [(problem.severity, problem.code, problem.node) for problem in problems]


@pytest.mark.parametrize("kid", KIDS)
async def test_a_variable_without_a_value_refuses_the_run_before_its_first_request(
    agent_runner: AgentRunner, kid: str
) -> None:
    name, file, text = KIDS[kid]
    write(agent_runner.config_dir, file, text)
    home = write(agent_runner.config_dir, "g/graph.yaml", GRAPH % (name, "")).parent
    assert found(agent_runner.config_dir, home) == [("error", "missing_input", "a")]
    with pytest.raises(InvalidFile, match=r"inputs: \{who: \.\.\.\}"):
        await agent_runner.run("x")
    assert agent_runner.models.requests == []


@pytest.mark.parametrize(
    ("inputs", "codes"),
    [
        ("{who: me}", []),
        ("{who: '{{initial_prompt}}', mood: wild}", []),
        ("{woh: me}", ["missing_input", "unknown_input"]),
        ("{who: me, extra: x}", ["unknown_input"]),
    ],
)
def test_inputs_are_held_against_the_variables_of_the_agent(tmp_path: Path, inputs: str, codes: list[str]) -> None:
    write(tmp_path, "kid/config.yaml", NEEDS)
    file = write(tmp_path, "g/graph.yaml", GRAPH % ("kid", f", inputs: {inputs}"))
    assert found(tmp_path, file) == [("error", code, "a") for code in codes]
    assert found(tmp_path, file, compat="loki") == [("warning", code, "a") for code in codes]


@pytest.mark.parametrize(("value", "codes"), [('{"who": "me"}', []), ('{"mood": "wild"}', ["missing_input"])])
def test_a_value_may_be_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, codes: list[str]
) -> None:
    monkeypatch.setenv("KID_VARIABLES", value)
    write(tmp_path, "kid/config.yaml", NEEDS)
    file = write(tmp_path, "g/graph.yaml", GRAPH % ("kid", ""))
    assert found(tmp_path, file) == [("error", code, "a") for code in codes]


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("kid", [("error", "missing_input", "A")]),
        ("kidd", [("warning", "missing_agent", "A")]),
        ("free", []),
        ("coder", []),
    ],
)
def test_agents_of_workflows_are_there_and_need_no_variables(
    tmp_path: Path, name: str, problems: list[tuple[str, str, str | None]]
) -> None:
    write(tmp_path, "kid/config.yaml", NEEDS)
    write(tmp_path, "free/config.yaml", "name: free\ninstructions: Help.\n")
    assert found(tmp_path, write(tmp_path, "w/f.yaml", FLOW % name)) == problems


async def test_a_workflow_is_refused_for_a_variable_that_it_cannot_give(agent_runner: AgentRunner) -> None:
    write(agent_runner.config_dir, "kid/config.yaml", NEEDS)
    file = write(agent_runner.config_dir, "w/f.yaml", FLOW % "kid")
    with pytest.raises(InvalidFile, match="a workflow gives none"):
        await agent_runner.run("x", file)
    assert agent_runner.models.requests == []
