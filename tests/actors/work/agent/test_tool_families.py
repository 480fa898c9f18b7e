"""Tools by the names that Loki's successor has for them."""

from __future__ import annotations

import json
from typing import Any

from support.agent_runs import Stage
from support.answering_person import Person
from support.fake_models import Reply


async def told(stage: Stage, name: str, arguments: dict[str, Any], target: str = "boss") -> Any:
    """What the model reads after one call of this tool."""
    stage.models.script(Reply(calls=[(name, arguments)]), "done")
    outcome = await stage.run("go", target=target)
    assert outcome.error is None, outcome.error
    return json.loads(stage.models.requests[-1].results[-1])


async def test_a_name_that_the_instructions_say_is_offered_and_any_other_works_all_the_same(stage: Stage) -> None:
    stage.plain("instructions: Use user__select.\ncan_spawn_agents: true", "boss")
    person = Person(stage.root, lambda _: "b")
    with stage.root.questions.attach(person):
        question = {"question": "Which?", "options": ["a", "b"]}
        assert await told(stage, "user__select", question) == {"answer": "b"}
    offered = stage.models.requests[0].offered
    assert {"user__ask", "user__select", "agent__list"} <= set(offered)
    assert not {"agent__list_running", "agent__list_available"} & set(offered)
    assert (await told(stage, "agent__list_running", {}))["active_count"] == 0


async def test_agents_that_may_be_spawned_are_listed_with_their_descriptions(stage: Stage) -> None:
    stage.plain("can_spawn_agents: true\nspawnable_agents: [clerk, coder, nowhere]", "boss")
    stage.plain("description: Writes  letters.", "clerk")
    stage.plain("description: Never asked.", "other")
    listed = await told(stage, "agent__list_available", {})
    clerk, coder = listed["agents"]
    assert listed["count"] == 2
    assert clerk == {"name": "clerk", "description": "Writes letters."}
    assert coder["name"] == "coder"
    assert coder["description"]


async def test_all_agents_are_listed_where_nothing_is_said_and_the_agent_itself_is_not(stage: Stage) -> None:
    stage.plain("can_spawn_agents: true", "boss")
    (stage.plain("description: x", "broken") / "config.yaml").write_text("instructions: [")
    names = [each["name"] for each in (await told(stage, "agent__list_available", {}))["agents"]]
    assert {"broken", "explore"} <= set(names)
    assert "boss" not in names


async def test_documents_are_searched_by_the_successors_name(knowing: Stage) -> None:
    home = knowing.plain("documents: [notes/]\nknowledge: tool", "boss")
    (home / "notes").mkdir()
    (home / "notes" / "cake.md").write_text("A cake needs flour and eggs.\n")
    knowing.models.script(Reply(calls=[("rag__query", {"query": "flour", "top_k": 2})]), "done")
    await knowing.run("go", target="boss")
    assert "A cake needs flour" in knowing.models.requests[-1].results[-1]


async def test_a_node_lists_a_tool_by_the_successors_name(stage: Stage) -> None:
    stage.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, tools: [user__select], state_updates: {r: "{{output}}"}, next: e}
          e: {type: end, output: "{{r}}"}
        """
    )
    outcome = await stage.run("go")
    assert outcome.error is None, outcome.error
    assert stage.models.requests[0].offered == ["user__select"]
