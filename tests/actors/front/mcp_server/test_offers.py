"""Which agents are served, and what clients are told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.mcp_guest import HELLO
from support.messages import has_message, says

from callboard.actors.front.mcp_server.service import read_agents
from callboard.actors.io.vault.vault import Vault
from callboard.protocol.errors import InvalidFile, UsageError
from callboard.protocol.settings import Settings, VaultSettings

END = "start: a\nnodes: {a: {type: end}}"


async def test_without_names_all_agents_of_the_user_are_served_and_no_built_in_one(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    agent_runner.plain("description: x", name="clerk")
    offers, problems = read_agents(agent_runner.root)
    assert list(offers) == ["clerk", "hello"]
    assert problems == []


async def test_a_built_in_agent_is_served_by_its_name(agent_runner: AgentRunner) -> None:
    offers, _ = read_agents(agent_runner.root, ["explore"])
    assert list(offers) == ["explore"]


async def test_an_agent_with_errors_is_left_out_and_told_unless_it_was_named(agent_runner: AgentRunner) -> None:
    agent_runner.agent(END, name="good")
    agent_runner.agent("start: nowhere\nnodes: {a: {type: end}}", name="bad")
    offers, problems = read_agents(agent_runner.root)
    assert list(offers) == ["good"]
    assert len(problems) == 1
    assert has_message(problems[0], "front.mcp_server.service.read_agents", target="…bad")
    with pytest.raises(InvalidFile, match="nowhere"):
        read_agents(agent_runner.root, ["good", "bad"])


async def test_no_agent_at_all_is_told_with_what_to_do(agent_runner: AgentRunner) -> None:
    with pytest.raises(UsageError, match=says("front.mcp_server.service.read_agents.3")):
        read_agents(agent_runner.root)
    agent_runner.agent("start: nowhere\nnodes: {a: {type: end}}", name="bad")
    with pytest.raises(UsageError, match=says("front.mcp_server.service.read_agents", target="…bad")):
        read_agents(agent_runner.root)


async def test_two_agents_of_one_name_are_told_apart_by_refusing_them(agent_runner: AgentRunner) -> None:
    one = agent_runner.agent(END, name="one")
    other = agent_runner.config_dir / "one"
    other.mkdir()
    (other / "graph.yaml").write_text((one / "graph.yaml").read_text())
    with pytest.raises(UsageError, match=says("front.mcp_server.service.read_agents.2", name="one")):
        read_agents(agent_runner.root, ["one", other])


async def test_a_name_becomes_one_that_tools_may_have(agent_runner: AgentRunner) -> None:
    agent_runner.agent(f"name: 'Über agent {'x' * 80}'\n{END}", name="strange")
    ((name, offer),) = read_agents(agent_runner.root)[0].items()
    assert name == f"_ber_agent_{'x' * 53}"
    assert offer.tool["name"] == name


async def test_an_agents_arguments_are_its_prompt_and_variables(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.plain(
        "variables: [{name: who, description: Whom to play.}, {name: tone, default: dry}, {name: env}]", name="clerk"
    )
    monkeypatch.setenv("CLERK_VARIABLES", '{"env": "set"}')
    schema = read_agents(agent_runner.root)[0]["clerk"].schema
    assert schema["required"] == ["prompt", "variables"]
    assert schema["properties"]["variables"] == {
        "type": "object",
        "properties": {
            "who": {"type": "string", "description": "Whom to play."},
            "tone": {"type": "string", "default": "dry"},
            "env": {"type": "string"},
        },
        "required": ["who"],
        "additionalProperties": False,
    }


async def test_a_variable_whose_secret_is_in_the_vault_need_not_be_given(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    agent_runner.plain("variables: [{name: a, default: '{{KEPT}}'}, {name: b, default: '{{GONE}}'}]", name="clerk")
    settings = Settings(vault=VaultSettings(identity=str(tmp_path / "identity.txt")))
    agent_runner.root.vault = Vault(settings, tmp_path, {})
    assert agent_runner.root.vault.file is not None
    agent_runner.root.vault.file.change(lambda secrets: secrets.update(KEPT="s3cret-value"))
    schema = read_agents(agent_runner.root)[0]["clerk"].schema
    assert schema["properties"]["variables"]["required"] == ["b"]
    assert "s3cret" not in str(schema)


async def test_a_graph_needs_no_prompt_and_names_its_state(agent_runner: AgentRunner) -> None:
    agent_runner.agent(f"initial_state: {{mood: grim, secret: hunter2}}\n{END}", name="g")
    offer = read_agents(agent_runner.root)[0]["g"]
    assert offer.schema["required"] == []
    assert list(offer.schema["properties"]["state"]["properties"]) == ["mood", "secret"]
    assert "hunter2" not in str(offer.tool)
    assert has_message(offer.tool["description"], "front.mcp_server.service._offer", name="g")
