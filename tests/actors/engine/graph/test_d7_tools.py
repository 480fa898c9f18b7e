"""Cases 71 and 74 of loki.md: llm nodes with tools, in both providers' formats, whole and in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import has_message, says
from support.waiting import jump_when

from callboard.protocol.errors import InvalidFile, Unsupported

GRAPH = """
global_tools: [fs_cat.sh, fs_ls]
start: a
nodes:
  a: {{type: llm, prompt: "{{{{initial_prompt}}}}", tools: [{tools}], {options}next: e}}
  f: {{type: end, output: "fell back"}}
  e: {{type: end, output: "{{{{r}}}}"}}
"""


def graph(tools: str = "fs_cat", options: str = "state_updates: {r: '{{output}}'}, ") -> str:
    return GRAPH.format(tools=tools, options=options)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "a.txt").write_text("the letter a")
    monkeypatch.chdir(here)


CAT = ("fs_cat", {"path": "a.txt"})


async def test_case_71_texts_of_all_turns_are_the_output(wired: AgentRunner, compat: str) -> None:
    wired.agent(graph())
    wired.models.script(Reply(text="A", calls=[CAT]), "B")
    outcome = await wired.run("go", compat=compat)
    assert outcome.output == "A\nB"
    assert "the letter a" in wired.models.requests[1].results[0]
    assert (outcome.turns, outcome.tool_calls) == (2, 1)


async def test_case_71_a_tool_call_every_turn_hits_max_iterations(wired: AgentRunner, compat: str) -> None:
    wired.agent(graph(options="max_iterations: 2, on_error: fail, "))
    wired.models.answer_with(lambda request: Reply(calls=[CAT]))
    outcome = await wired.run("go", compat=compat)
    assert outcome.error is not None
    assert has_message(
        outcome.error.message,
        "engine.conversation.decider.ConversationDecider._turn",
        bound="max_iterations",
        max_turns=2,
    )
    assert outcome.error.node == "a"
    assert outcome.exit_code == 4
    assert len(wired.models.requests) == 2


async def test_case_71_max_iterations_takes_the_fallback(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(graph(options="max_iterations: 1, fallback: f, "))
    agent_runner.models.answer_with(lambda request: Reply(calls=[CAT]))
    assert (await agent_runner.run("go", compat=compat)).output == "fell back"


async def test_case_74_exactly_the_listed_tools_are_offered(wired: AgentRunner, compat: str) -> None:
    wired.agent(graph())
    await wired.run("go", compat=compat)
    assert wired.models.requests[0].offered == ["fs_cat"]


async def test_case_74_an_alias_stands_for_its_tools_and_user_tools_can_be_listed(agent_runner: AgentRunner) -> None:
    agent_runner.agent(graph("fs_cat.sh, user__ask, fs_ls"))
    await agent_runner.run("go")
    assert agent_runner.models.requests[0].offered == ["fs_cat", "user__ask", "fs_ls"]


async def test_a_node_may_list_what_an_alias_of_the_graph_holds_and_a_function_of_the_caller(
    agent_runner: AgentRunner,
) -> None:
    def shout(text: str) -> str:
        """Shouts."""
        return text.upper()

    agent_runner.agent(graph("fs_cat, fs_grep, shout").replace("[fs_cat.sh, fs_ls]", "[fs]"))
    agent_runner.models.script(Reply(calls=[("shout", {"text": "hey"})]), "done")
    assert (await agent_runner.run("go", tools=[shout])).output == "done"
    assert agent_runner.models.requests[0].offered == ["fs_cat", "fs_grep", "shout"]
    assert agent_runner.models.requests[1].results == ["HEY"]


async def test_a_node_may_use_a_tool_of_its_agents_own_file(agent_runner: AgentRunner) -> None:
    home = agent_runner.agent(graph("shout"))
    (home / "tools.py").write_text('def shout(text: str):\n    """Shouts."""\n    return text.upper()\n')
    agent_runner.models.script(Reply(calls=[("shout", {"text": "hey"})]), "done")
    assert (await agent_runner.run("go")).output == "done"
    assert agent_runner.models.requests[1].results == ['{"output":"HEY"}']


async def test_a_shape_is_seen_to_after_the_tools(agent_runner: AgentRunner, compat: str) -> None:
    shape = "output_schema: {type: object, properties: {r: {type: integer}}, required: [r]}, "
    agent_runner.agent(graph(options=shape))
    agent_runner.models.script(Reply(calls=[CAT]), '{"r": 3}')
    outcome = await agent_runner.run("go", compat=compat)
    assert outcome.state["r"] == 3
    assert all("response_format" not in request.json for request in agent_runner.models.requests)


async def test_an_unknown_tool_is_found_before_anything_is_asked(agent_runner: AgentRunner) -> None:
    agent_runner.agent(graph("fs_cta"))
    with pytest.raises(
        InvalidFile, match=says("engine.graph.node_checks._check_tools.4", tool="fs_cta", known="fs_cat, fs_ls…")
    ):
        await agent_runner.run("go")
    assert agent_runner.models.requests == []


async def test_what_llm_nodes_can_not_list_is_said_in_one_line(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        graph("agent__spawn").replace("  f: {", "  x: {type: agent, agent: g, prompt: p, next: e}\n  f: {")
    )
    with pytest.raises(Unsupported, match=says("runs.prepared.refuse_spawning")):
        await agent_runner.run("go")


async def test_a_graphs_permissions_can_only_be_stricter(agent_runner: AgentRunner) -> None:
    agent_runner.agent("permissions: {fs_cat: deny}\n" + graph().strip())

    def answer(request: Request) -> Reply | str:
        return request.results[0] if request.results else Reply(calls=[CAT])

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", yes=True)
    assert has_message(outcome.output, "work.tools.permissions.Permissions.admit")


async def test_a_timeout_interrupts_a_tool_in_the_middle(
    agent_runner: AgentRunner, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    home = agent_runner.agent(graph("slow", options="timeout: 60, fallback: f, "))
    (home / "tools.py").write_text('import time\ndef slow():\n    """Sleeps."""\n    time.sleep(3600)\n')
    agent_runner.models.script(Reply(calls=[("slow", {})]))
    nursery.start_soon(jump_when, mock_clock, lambda: agent_runner.of("tool.call.started"), 60)
    assert (await agent_runner.run("go")).output == "fell back"
    finished = agent_runner.of("tool.call.finished")
    assert [data.error for data in finished] == ["interrupted"]
