"""`config.yaml` of agents that work in a loop: every field, its default, and the problems."""

from __future__ import annotations

import pytest
from support.messages import has_message

from callboard.protocol.agent import Agent, read_agent
from callboard.protocol.graph import Variable
from callboard.protocol.problems import Problem


def agent_of(text: str) -> Agent:
    agent, problems = read_agent(text, "config.yaml")
    assert [problem for problem in problems if problem.code != "ignored_key"] == []
    assert agent is not None
    return agent


def only_problem(text: str) -> Problem:
    _, problems = read_agent(text, "config.yaml")
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def test_the_defaults_are_lokis() -> None:
    agent = agent_of("name: a")
    assert (agent.description, agent.version, agent.instructions) == ("", "", "")
    assert (agent.global_tools, agent.mcp_servers, agent.documents, agent.variables) == ((), (), (), ())
    assert (agent.auto_continue, agent.max_auto_continues, agent.inject_todo_instructions) == (False, 10, True)
    assert (agent.can_spawn_agents, agent.max_concurrent_agents, agent.max_agent_depth) == (False, 4, None)
    assert (agent.inject_spawn_instructions, agent.summarization_threshold) == (True, 4000)
    assert (agent.escalation_timeout, agent.compression_threshold) == (300, None)
    assert (agent.model, agent.temperature, agent.top_p, agent.agent_session) == (None, None, None, None)
    assert (agent.dynamic_instructions, agent.continuation_prompt, agent.summarization_model) == (False, None, None)


@pytest.mark.parametrize(("written", "version"), [("1", "1"), ("1.0", "1.0"), ("1.0.0", "1.0.0"), ("'2'", "2")])
def test_a_version_may_be_written_as_a_number(written: str, version: str) -> None:
    assert agent_of(f"name: a\nversion: {written}").version == version
    assert only_problem("name: a\nversion: true").code == "wrong_type"


def test_every_field_is_accepted() -> None:
    agent = agent_of(
        """\
name: a
description: d
version: 1.0.0
instructions: i
dynamic_instructions: true
model: openai:gpt
temperature: 1
top_p: 0.5
reasoning_effort: low
global_tools: [fs_cat.sh]
mcp_servers: [srv]
mcp_tools: {srv: [a]}
documents: [./docs]
variables: [{name: dir, description: d, default: "."}, {name: key}]
conversation_starters: [hi]
agent_session: temp
auto_continue: true
max_auto_continues: 25
inject_todo_instructions: false
continuation_prompt: go on
can_spawn_agents: true
spawnable_agents: [b]
max_concurrent_agents: 10
max_agent_depth: 2
max_concurrent_jobs: 2
inject_spawn_instructions: false
summarization_model: m
summarization_threshold: 8000
escalation_timeout: 1.5
compression_threshold: 0
compression_keep_last: 4
max_tool_result_chars: 1000
memory: true
skills_enabled: true
enabled_skills: [s]
inject_skill_instructions: true
skill_instructions: si
enabled_macros: [m]
"""
    )
    assert agent.variables == (Variable(name="dir", description="d", default="."), Variable(name="key"))
    assert agent.version == "1.0.0"


def test_a_missing_name() -> None:
    problem = only_problem("description: d")
    assert problem.message.startswith("YAML parsing error: missing field `name`")
    assert (problem.line, problem.column) == (1, 1)


def test_an_unquoted_default_is_a_number() -> None:
    problem = only_problem("name: a\nvariables:\n  - name: n\n    default: 1\n")
    assert (problem.line, problem.column, problem.key) == (4, 14, "variables[0].default")
    assert has_message(str(problem.hint), "protocol.reading._remedy.2", quoted='"1"')


@pytest.mark.parametrize("key", ["nodes", "start", "settings"])
def test_a_key_of_a_graph_says_so(key: str) -> None:
    problem = only_problem(f"name: a\n{key}: {{}}")
    assert problem.severity == "warning"
    assert "graph.yaml" in str(problem.hint)


def test_the_places_are_kept_for_later() -> None:
    assert agent_of("name: a\nmodel: m").where(("model",)) == (2, 8)


@pytest.mark.parametrize("text", ["", "- a", "name: a\nname: b"])
def test_what_is_no_agent_gives_problems_only(text: str) -> None:
    agent, problems = read_agent(text, "config.yaml")
    assert agent is None
    assert problems
