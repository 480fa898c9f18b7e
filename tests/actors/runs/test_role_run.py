"""Runs in a role, from Python."""

from __future__ import annotations

import pytest
from support.agent_runs import AgentRunner
from support.messages import says

import callboard
from callboard import Agent
from callboard.protocol.chat import Turn
from callboard.protocol.errors import NotFound, UsageError
from callboard.protocol.events import Event, RunStarted


def sent(agent_runner: AgentRunner) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in agent_runner.models.requests[-1].json["messages"]]


async def test_a_role_answers_where_no_agent_is_named(agent_runner: AgentRunner) -> None:
    home = agent_runner.config_dir / "roles"
    home.mkdir()
    (home / "to.md").write_text("to __ARG1__: __INPUT__")
    events: list[Event] = []
    outcome = await callboard.run("", "hi", role="to#it", root=agent_runner.root, on_event=events.append)
    assert outcome.output == "ok"
    assert sent(agent_runner) == [("user", "to it: hi")]
    started = events[0].data
    assert isinstance(started, RunStarted)
    assert started.prompt == "hi"


async def test_an_agent_made_in_python_takes_a_role(agent_runner: AgentRunner) -> None:
    agent = Agent(name="clerk", temperature=0.25, can_ask_user=False)
    await callboard.run(agent, "hi", role_prompt="Be brief.", root=agent_runner.root)
    assert sent(agent_runner) == [("system", "Be brief."), ("user", "hi")]
    assert agent_runner.models.requests[-1].json["temperature"] == 0.25


async def test_examples_stand_at_the_beginning_of_a_conversation_only(agent_runner: AgentRunner) -> None:
    said: list[Turn] = []
    await callboard.run("", "hi", role="create-title", root=agent_runner.root, on_history=said.extend)
    assert [role for role, _ in sent(agent_runner)] == ["system", "user", "assistant", "user"]
    assert len(said) == 4
    await callboard.run("", "and?", role="create-title", root=agent_runner.root, history=tuple(said))
    assert [role for role, _ in sent(agent_runner)] == ["system", *("user", "assistant") * 2, "user"]


async def test_an_agent_with_a_file_takes_none(agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    with pytest.raises(UsageError, match=says("runs.role_run._agent", name="clerk")):
        await callboard.run("clerk", "hi", role="code", root=agent_runner.root)
    with pytest.raises(NotFound, match="Unknown role `nope`"):
        await callboard.run("", "hi", role="nope", root=agent_runner.root)
    with pytest.raises(UsageError, match=says("protocol.requests.RunRequest.__post_init__.5")):
        await callboard.run("", "hi", role="code", role_prompt="x", root=agent_runner.root)
    assert agent_runner.models.requests == []
