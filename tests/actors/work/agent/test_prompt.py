"""The system prompt: variables put in once, blocks in order."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.messages import fragment

from callboard.actors.work.agent.prompt import blocks, filled_in, special_variables, system_prompt
from callboard.actors.work.tools.tool import Tool, ToolSpec
from callboard.protocol.agent import Agent


async def nothing(*_: object) -> None:
    return None


TOOLS = [
    Tool(spec=ToolSpec(name="fs_cat", description="Reads a file.\nAll of it."), run=nothing),
    Tool(spec=ToolSpec(name="add", description="Adds."), run=nothing),
]


def test_tools_are_listed_by_number_with_the_first_line_of_their_descriptions() -> None:
    assert filled_in("{{__tools__}}", {}, {}, TOOLS) == "1. fs_cat: Reads a file.\n2. add: Adds."


def test_special_variables_describe_the_machine() -> None:
    values = special_variables({"SHELL": "/usr/bin/zsh", "LANG": "de_DE.UTF-8"})
    assert values["__shell__"] == "zsh"
    assert values["__locale__"] == "de-DE"
    assert values["__os__"] == os.uname().sysname.lower()
    assert values["__arch__"] == os.uname().machine
    assert values["__os_family__"] == "unix"
    assert values["__cwd__"] == str(Path.cwd())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", values["__now__"])


@pytest.mark.parametrize("environ", [{}, {"LANG": "C"}, {"LC_ALL": "POSIX", "LANG": "de_DE"}])
def test_a_machine_without_a_locale_speaks_english(environ: dict[str, str]) -> None:
    assert re.fullmatch(r"[a-z]{2}-[A-Z]{2}", special_variables(environ)["__locale__"])


def test_a_value_is_never_looked_at_again_and_an_unknown_name_stays() -> None:
    values = {"a": "{{b}} {{__os__}}", "b": "B"}
    assert filled_in("{{a}}, {{b}}, {{c}}, {{ b }}", values, {}) == "{{b}} {{__os__}}, B, {{c}}, {{ b }}"


def test_an_agents_variable_may_hide_a_special_one() -> None:
    assert filled_in("{{__os__}}", {"__os__": "beos"}, {}) == "beos"


def headings(agent: Agent, *, teammates: bool = True, user: bool = True) -> list[str]:
    return [block.split("\n", 1)[0] for block in blocks(agent, teammates=teammates, user=user)]


def test_blocks_stand_in_fixed_order() -> None:
    agent = Agent(name="a", auto_continue=True, can_spawn_agents=True, max_concurrent_agents=7)
    assert headings(agent) == ["## Todo list", "## Child agents", "## Messages", "## Asking the user"]
    assert "At most 7 run at a time" in blocks(agent, teammates=True, user=True)[1]


@pytest.mark.parametrize(
    ("switch", "heading"),
    [
        ("inject_todo_instructions", "## Todo list"),
        ("inject_spawn_instructions", "## Child agents"),
        ("inject_teammate_instructions", "## Messages"),
        ("inject_user_instructions", fragment("work.agent.prompt.4")),
    ],
)
def test_each_block_can_be_switched_off(switch: str, heading: str) -> None:
    agent = Agent(name="a", auto_continue=True, can_spawn_agents=True, **{switch: False})
    assert heading not in headings(agent)
    assert len(headings(agent)) == 3


def test_nothing_is_said_about_tools_that_are_not_there() -> None:
    assert headings(Agent(name="a"), teammates=False, user=False) == []


def test_an_empty_line_stands_between_the_parts() -> None:
    assert system_prompt("Be kind.\n", ["A", "B"]) == "Be kind.\n\nA\n\nB"
    assert system_prompt("", ["A"]) == "A"
    assert system_prompt("", []) == ""
