"""Which agents are served, and what clients are told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_runs import Stage
from support.mcp_guest import HELLO
from support.messages import has_message, says

from callboard.actors.front.mcp_server.service import read_agents
from callboard.actors.io.vault.vault import Vault
from callboard.protocol.errors import InvalidFile, UsageError
from callboard.protocol.settings import Settings, VaultSettings

END = "start: a\nnodes: {a: {type: end}}"


async def test_without_names_all_agents_of_the_user_are_served_and_no_built_in_one(stage: Stage) -> None:
    stage.agent(HELLO, name="hello", think="echo {}")
    stage.plain("description: x", name="clerk")
    offers, problems = read_agents(stage.root)
    assert list(offers) == ["clerk", "hello"]
    assert problems == []


async def test_a_built_in_agent_is_served_by_its_name(stage: Stage) -> None:
    offers, _ = read_agents(stage.root, ["explore"])
    assert list(offers) == ["explore"]


async def test_an_agent_with_errors_is_left_out_and_told_unless_it_was_named(stage: Stage) -> None:
    stage.agent(END, name="good")
    stage.agent("start: nowhere\nnodes: {a: {type: end}}", name="bad")
    offers, problems = read_agents(stage.root)
    assert list(offers) == ["good"]
    assert len(problems) == 1
    assert has_message(problems[0], "front.mcp_server.service.read_agents", target="…bad")
    with pytest.raises(InvalidFile, match="nowhere"):
        read_agents(stage.root, ["good", "bad"])


async def test_no_agent_at_all_is_told_with_what_to_do(stage: Stage) -> None:
    with pytest.raises(UsageError, match=says("front.mcp_server.service.read_agents.3")):
        read_agents(stage.root)
    stage.agent("start: nowhere\nnodes: {a: {type: end}}", name="bad")
    with pytest.raises(UsageError, match=says("front.mcp_server.service.read_agents", target="…bad")):
        read_agents(stage.root)


async def test_two_agents_of_one_name_are_told_apart_by_refusing_them(stage: Stage) -> None:
    one = stage.agent(END, name="one")
    other = stage.config_dir / "one"
    other.mkdir()
    (other / "graph.yaml").write_text((one / "graph.yaml").read_text())
    with pytest.raises(UsageError, match=says("front.mcp_server.service.read_agents.2", name="one")):
        read_agents(stage.root, ["one", other])


async def test_a_name_becomes_one_that_tools_may_have(stage: Stage) -> None:
    stage.agent(f"name: 'Über agent {'x' * 80}'\n{END}", name="strange")
    ((name, offer),) = read_agents(stage.root)[0].items()
    assert name == f"_ber_agent_{'x' * 53}"
    assert offer.tool["name"] == name


async def test_an_agents_arguments_are_its_prompt_and_variables(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.plain(
        "variables: [{name: who, description: Whom to play.}, {name: tone, default: dry}, {name: env}]", name="clerk"
    )
    monkeypatch.setenv("CLERK_VARIABLES", '{"env": "set"}')
    schema = read_agents(stage.root)[0]["clerk"].schema
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


async def test_a_variable_whose_secret_is_in_the_vault_need_not_be_given(stage: Stage, tmp_path: Path) -> None:
    stage.plain("variables: [{name: a, default: '{{KEPT}}'}, {name: b, default: '{{GONE}}'}]", name="clerk")
    settings = Settings(vault=VaultSettings(identity=str(tmp_path / "identity.txt")))
    stage.root.vault = Vault(settings, tmp_path, {})
    assert stage.root.vault.file is not None
    stage.root.vault.file.change(lambda secrets: secrets.update(KEPT="s3cret-value"))
    schema = read_agents(stage.root)[0]["clerk"].schema
    assert schema["properties"]["variables"]["required"] == ["b"]
    assert "s3cret" not in str(schema)


async def test_a_graph_needs_no_prompt_and_names_its_state(stage: Stage) -> None:
    stage.agent(f"initial_state: {{mood: grim, secret: hunter2}}\n{END}", name="g")
    offer = read_agents(stage.root)[0]["g"]
    assert offer.schema["required"] == []
    assert list(offer.schema["properties"]["state"]["properties"]) == ["mood", "secret"]
    assert "hunter2" not in str(offer.tool)
    assert has_message(offer.tool["description"], "front.mcp_server.service._offer", name="g")
