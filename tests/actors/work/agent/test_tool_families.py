"""Tools by the names that Loki's successor has for them."""

from __future__ import annotations

import json
from typing import Any

from support.agent_runs import AgentRunner
from support.answering_person import Person
from support.fake_models import Reply


async def told(agent_runner: AgentRunner, name: str, arguments: dict[str, Any], target: str = "boss") -> Any:
    """What the model reads after one call of this tool."""
    agent_runner.models.script(Reply(calls=[(name, arguments)]), "done")
    outcome = await agent_runner.run("go", target=target)
    assert outcome.error is None, outcome.error
    return json.loads(agent_runner.models.requests[-1].results[-1])


async def test_a_name_that_the_instructions_say_is_offered_and_any_other_works_all_the_same(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.plain("instructions: Use user__select.\ncan_spawn_agents: true", "boss")
    person = Person(agent_runner.root, lambda _: "b")
    with agent_runner.root.questions.attach(person):
        question = {"question": "Which?", "options": ["a", "b"]}
        assert await told(agent_runner, "user__select", question) == {"answer": "b"}
    offered = agent_runner.models.requests[0].offered
    assert {"user__ask", "user__select", "agent__list"} <= set(offered)
    assert not {"agent__list_running", "agent__list_available"} & set(offered)
    assert (await told(agent_runner, "agent__list_running", {}))["active_count"] == 0


async def test_agents_that_may_be_spawned_are_listed_with_their_descriptions(agent_runner: AgentRunner) -> None:
    agent_runner.plain("can_spawn_agents: true\nspawnable_agents: [clerk, coder, nowhere]", "boss")
    agent_runner.plain("description: Writes  letters.", "clerk")
    agent_runner.plain("description: Never asked.", "other")
    listed = await told(agent_runner, "agent__list_available", {})
    clerk, coder = listed["agents"]
    assert listed["count"] == 2
    assert clerk == {"name": "clerk", "description": "Writes letters."}
    assert coder["name"] == "coder"
    assert coder["description"]


async def test_all_agents_are_listed_where_nothing_is_said_and_the_agent_itself_is_not(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.plain("can_spawn_agents: true", "boss")
    (agent_runner.plain("description: x", "broken") / "config.yaml").write_text("instructions: [")
    names = [each["name"] for each in (await told(agent_runner, "agent__list_available", {}))["agents"]]
    assert {"broken", "explore"} <= set(names)
    assert "boss" not in names


async def test_documents_are_searched_by_the_successors_name(knowing: AgentRunner) -> None:
    home = knowing.plain("documents: [notes/]\nknowledge: tool", "boss")
    (home / "notes").mkdir()
    (home / "notes" / "cake.md").write_text("A cake needs flour and eggs.\n")
    knowing.models.script(Reply(calls=[("rag__query", {"query": "flour", "top_k": 2})]), "done")
    await knowing.run("go", target="boss")
    assert "A cake needs flour" in knowing.models.requests[-1].results[-1]


async def test_a_node_lists_a_tool_by_the_successors_name(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, tools: [user__select], state_updates: {r: "{{output}}"}, next: e}
          e: {type: end, output: "{{r}}"}
        """
    )
    outcome = await agent_runner.run("go")
    assert outcome.error is None, outcome.error
    assert agent_runner.models.requests[0].offered == ["user__select"]
