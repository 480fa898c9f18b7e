"""`callboard.Agent`: checked when it is made, without the environment, with functions and children of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request

import callboard
from callboard.protocol.errors import UsageError
from callboard.protocol.requests import Limits
from callboard.testing import ScriptedModel, call


def look() -> str:
    """Looks."""
    return "seen"


def read(path: str) -> str:
    """Reads."""
    return path


def stable_name(value: object) -> str:
    """Return the name of a case without addresses: durations and `--last-failed` know tests by their names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "b c/../"},
        {"name": ""},
        {"name": 3},
        {"instructions": 3},
        {"max_turns": "7"},
        {"max_turns": 0},
        {"temperature": "hot"},
        {"limits": {"max_turn": 3}},
        {"limits": {"max_turns": "3"}},
        {"global_tools": "fs_ls"},
        {"permissions": {"fs_ls": "maybe"}},
        {"dynamic_instructions": True},
        {"tools": look},
        {"tools": ["look"]},
        {"tools": [look, callboard.function_tool(read, name="look")]},
        {"tools": [callboard.function_tool(read, name="fs_ls")]},
        {"tools": [callboard.function_tool(read, name="user__ask")]},
        {"agents": ["worker"]},
        {"agents": [callboard.Agent(name="w"), callboard.Agent(name="w")]},
        {"agents": [callboard.Agent(name="a")]},
        {"result": complex},
    ],
    ids=stable_name,
)
def test_what_no_agent_can_have_is_refused_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        callboard.Agent(**{"name": "a", **fields})


def test_all_problems_of_an_agent_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        callboard.Agent(name="a/b", instructions=3, tools=[look, look], result=complex)  # type: ignore[arg-type] # wrong
    assert all(word in str(caught.value) for word in ("name=", "instructions=3", "look", "complex"))


def test_lists_and_mappings_become_what_the_fields_are() -> None:
    agent = callboard.Agent(name="a", global_tools=["fs_ls"], limits={"max_turns": 3})  # type: ignore[arg-type] # converted
    assert agent.global_tools == ("fs_ls",)
    assert agent.limits is not None
    assert agent.limits.max_turns == 3


async def test_nothing_of_it_comes_from_the_environment(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOT_MODEL", "lab:none")
    monkeypatch.setenv("BOT_GLOBAL_TOOLS", '["execute_command"]')
    monkeypatch.setenv("BOT_INSTRUCTIONS", "Obey.")
    monkeypatch.setenv("BOT_TEMPERATURE", "1")
    outcome = await agent_runner.run("hi", target=callboard.Agent(name="bot", instructions="Be brief."))
    assert outcome.status == "done"
    (request,) = agent_runner.models.requests
    assert request.system == "Be brief."
    assert "tools" not in request.json
    assert "temperature" not in request.json


async def test_it_asks_the_user_only_if_it_says_so(agent_runner: AgentRunner) -> None:
    await agent_runner.run("hi", target=callboard.Agent(name="a", can_ask_user=True))
    assert any(name.startswith("user__") for name in agent_runner.models.requests[0].offered)


async def test_its_functions_are_its_own(agent_runner: AgentRunner) -> None:
    worker = callboard.Agent(name="worker", instructions="Work.", tools=[read], description="It works.")
    lead = callboard.Agent(name="lead", instructions="Lead.", tools=[look], agents=[worker])

    def answer(request: Request) -> Reply | str:
        if request.system.startswith("Work"):
            return request.results[-1] if request.results else Reply(calls=[("read", {"path": "x"})])
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "worker", "prompt": "go"})])
        if len(request.results) == 1:
            return Reply(calls=[("agent__collect", {"id": request.results[0].split('"id":"')[1].split('"')[0]})])
        return "done"

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target=lead, yes=True)
    assert outcome.status == "done", outcome.error
    assert [(child.agent, child.output, child.tool_calls) for child in outcome.children] == [("worker", "x", 1)]
    by_agent = {request.system.split(".")[0]: request.offered for request in agent_runner.models.requests}
    assert "look" in by_agent["Lead"]
    assert "read" not in by_agent["Lead"]
    assert "read" in by_agent["Work"]
    assert "look" not in by_agent["Work"]


async def test_it_spawns_its_own_agents_and_no_others(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: Other.", name="other")
    worker = callboard.Agent(name="worker", instructions="Work.")
    lead = callboard.Agent(name="lead", instructions="Lead.", agents=[worker])
    agent_runner.models.script(Reply(calls=[("agent__spawn", {"agent": "other", "prompt": "go"})]), "done")
    outcome = await agent_runner.run("go", target=lead)
    assert outcome.children == []
    assert "other" in agent_runner.models.requests[1].results[0]


@pytest.mark.parametrize("fields", [{"global_tools": ("fs_lss",)}, {"mcp_servers": ("nowhere",)}], ids=repr)
async def test_names_of_nothing_end_the_run_before_it_starts(agent_runner: AgentRunner, fields: dict[str, Any]) -> None:
    agent = callboard.Agent(name="a", **fields)
    with pytest.raises(UsageError):
        await callboard.run(agent, "go", root=agent_runner.root)
    assert agent_runner.models.requests == []


@pytest.mark.parametrize(
    "options",
    [
        {"history": [{"rol": "user", "content": "x"}]},
        {"history": 3},
        {"limits": {"max_turn": 3}},
        {"limits": 3},
        {"variables": {"a": 3}},
        {"allow": "fs_ls"},
        {"model": 3},
        {"cwd": 3},
        {"tools": [look, look]},
    ],
    ids=stable_name,
)
async def test_options_of_the_wrong_type_are_named(agent_runner: AgentRunner, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        await callboard.run(callboard.Agent(name="a"), "go", root=agent_runner.root, **options)
    assert next(iter(options)) in str(caught.value)


async def test_options_may_be_spelled_out(agent_runner: AgentRunner) -> None:
    said: Any = [{"role": "user", "content": "hi"}, {"role": "assistant", "text": "ho"}]
    limits: Any = {"max_turns": 1}
    await callboard.run(callboard.Agent(name="a"), "go", root=agent_runner.root, history=said, limits=limits)
    assert [m["content"] for m in agent_runner.models.requests[0].json["messages"]] == ["hi", "ho", "go"]
    assert Limits(**limits).max_turns == 1


@pytest.mark.parametrize("target", [3, None, [callboard.Agent(name="a")]], ids=repr)
async def test_what_is_no_agent_is_named(agent_runner: AgentRunner, target: Any) -> None:
    with pytest.raises(UsageError):
        await callboard.run(target, "go", root=agent_runner.root)


@pytest.mark.parametrize(
    ("rules", "options", "advice"),
    [
        (
            {"refund": "ask"},
            {"allow": ["refund"]},
            "`approve_all=True` (--allow or `allow` do not approve it)",
        ),
        ({"refund": "ask"}, {}, "`approve_all=True` (--allow or `allow` do not approve it)"),
        ({"refund": "ask"}, {"approve_all": True}, None),
    ],
)
async def test_a_refusal_advises_what_helps(rules: dict[str, Any], options: dict[str, Any], advice: str | None) -> None:
    def refund() -> str:
        """Pay back."""
        return "refunded"

    agent = callboard.Agent(name="a", tools=[refund], permissions=rules)
    model = ScriptedModel([call("refund"), "Done."])
    await callboard.run(agent, "Go.", model=model, **options)
    assert ("refunded" if advice is None else advice) in model.results[0]


def test_lists_are_taken_for_names() -> None:
    agent = callboard.Agent(name="a", global_tools=["fs_cat"], documents=["notes"], spawnable_agents=["b"])
    assert (agent.global_tools, agent.documents, agent.spawnable_agents) == (("fs_cat",), ("notes",), ("b",))
