"""Agents and conversations in a role."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.work.roles import MOST_EMBEDDED, agent_in_role, examples, prompt_in_role
from callboard.protocol.agent import Agent
from callboard.protocol.chat import AssistantTurn, UserTurn
from callboard.protocol.errors import UsageError
from callboard.protocol.role import INPUT, Role, read_role

FILE = """\
---
model: x:role
temperature: 0.2
enabled_tools: fs_cat
enabled_mcp_servers: git
auto_continue: true
---
Be brief.
"""


def role(text: str = FILE) -> Role:
    found, problems = read_role(text, "r.md", "r")
    assert found is not None, problems
    return found


def of(agent: Agent, text: str = FILE, *, model: str | None = None, own_tools: bool = False) -> Agent:
    return agent_in_role(agent, role(text), model=model, own_tools=own_tools, settings={"max_auto_continues": 4})


def test_what_the_agent_leaves_open_the_role_fills_in() -> None:
    agent = of(Agent(name="ask"))
    assert (agent.instructions, agent.model, agent.temperature) == ("Be brief.", "x:role", 0.2)
    assert (agent.global_tools, agent.mcp_servers) == (("fs_cat",), ("git",))
    assert (agent.auto_continue, agent.max_auto_continues) == (True, 4)


def test_what_was_chosen_for_the_run_goes_before_the_role() -> None:
    agent = Agent(name="ask", instructions="Shout.", temperature=0.9, global_tools=("web",))
    made = of(agent, model="x:other", own_tools=True)
    assert (made.instructions, made.model, made.temperature) == ("Shout.", None, 0.9)
    assert (made.global_tools, made.mcp_servers) == (("web",), ())


def test_a_role_that_names_no_tools_leaves_those_there_are() -> None:
    assert of(Agent(name="ask", global_tools=("web",)), "x").global_tools == ("web",)
    assert of(Agent(name="ask", global_tools=("web",)), "---\nenabled_tools: []\n---\n").global_tools == ()


def test_how_much_is_thought_is_said_in_one_place() -> None:
    text = "---\nreasoning_effort: low\n---\n"
    assert of(Agent(name="ask"), text).reasoning_effort == "low"
    assert of(Agent(name="ask", thinking_budget=2000), text).reasoning_effort is None


@pytest.mark.parametrize("prompt", ["a", "__INPUT__ {{__cwd__}} __ARG1__", "\\1"])
def test_a_prompt_is_embedded_and_never_looked_at_again(prompt: str) -> None:
    found = role("{{__cwd__}}: <__INPUT__|__INPUT__> {{other}}")
    assert prompt_in_role(found, prompt, {}, Path("/here")) == f"/here: <{prompt}|{prompt}> {{{{other}}}}"
    assert prompt_in_role(role(), prompt, {}, None) == prompt


@pytest.mark.parametrize("around", ["{{{{{}}}}}", "{{{}}}", "{{{{x{}y}}}}", "{{{{__cwd__}}}}{}", "{}}}"])
def test_braces_around_the_place_of_the_prompt_stay(around: str) -> None:
    wanted = around.format("hi").replace("{{__cwd__}}", "/here")
    assert prompt_in_role(role(around.format(INPUT)), "hi", {}, Path("/here")) == wanted


def test_an_embedded_prompt_has_a_bound_for_both_texts_together() -> None:
    found, prompt = role(INPUT * 100), "x" * (MOST_EMBEDDED // 100)
    with pytest.raises(
        UsageError, match=f"'r' inserts the prompt in 100 places, .*at most {MOST_EMBEDDED} .*; shorten"
    ):
        prompt_in_role(found, prompt, {}, None)
    prompt = prompt[len(INPUT) :]
    assert prompt_in_role(found, prompt, {}, None) == prompt * 100


def test_examples_are_turns() -> None:
    found = role("### INPUT:\nwhere?\n### OUTPUT:\n{{__cwd__}}\n")
    assert examples(found, {}, Path("/here")) == (UserTurn("where?"), AssistantTurn("/here"))
