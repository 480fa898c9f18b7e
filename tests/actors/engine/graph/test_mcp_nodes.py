"""Graphs whose llm nodes use the tools of MCP servers: real ones, started by the test."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.mcp_entries import _own_cache, mcp_json, scripted, starts  # noqa: F401 - a fixture
from support.messages import has_message, says

import callboard
from callboard.protocol.errors import ConfigError, InvalidFile

GRAPH = """
mcp_servers: [{servers}]
{top}
start: a
nodes:
  a: {{type: llm, prompt: p, tools: [{tools}], {options}state_updates: {{r: '{{{{output}}}}'}}, next: e}}
  e: {{type: end, output: "{{{{r}}}}"}}
"""


def graph(tools: str, servers: str = "srv", top: str = "", options: str = "") -> str:
    return GRAPH.format(tools=tools, servers=servers, top=top, options=options)


async def offered(agent_runner: AgentRunner, text: str, **options: Any) -> list[str]:
    """The names that the node's model is offered."""
    agent_runner.agent(text)
    outcome = await agent_runner.run("go", **options)
    assert outcome.error is None, outcome.error
    return agent_runner.models.requests[-1].offered


async def test_case_74_a_node_lists_a_whole_server_or_single_tools(agent_runner: AgentRunner, compat: str) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    everything = await offered(agent_runner, graph("'mcp:srv'"), compat=compat)
    assert {"srv__echo", "srv__add"} <= set(everything)
    assert await offered(agent_runner, graph("srv__echo, srv__add"), compat=compat) == ["srv__echo", "srv__add"]
    three = ["mcp_search_srv", "mcp_describe_srv", "mcp_invoke_srv"]
    assert await offered(agent_runner, graph("'mcp:srv'", top="mcp_tools: meta"), compat=compat) == three
    assert await offered(agent_runner, graph("mcp_invoke_srv, srv__echo"), compat=compat) == [
        "mcp_invoke_srv",
        "srv__echo",
    ]
    assert await offered(agent_runner, graph("mcp__search_srv"), compat=compat) == ["mcp_search_srv"]
    assert await offered(agent_runner, graph("srv__echo, 'mcp:srv'", options="mcp_tools: {srv: [echo, add]}, ")) == [
        "srv__echo",
        "srv__add",
    ]


async def test_a_node_calls_a_tool_and_goes_on_with_its_answer(wired: AgentRunner, compat: str) -> None:
    mcp_json(wired.config_dir, srv=scripted())
    wired.agent(graph("srv__add"))
    wired.models.script(Reply(calls=[("srv__add", {"a": 20, "b": 22})]), "it is 42")
    outcome = await wired.run("go", compat=compat)
    assert outcome.output == "it is 42"
    assert wired.models.requests[-1].results == ["42"]
    assert outcome.tool_calls == 1


async def test_a_node_is_offered_what_its_server_got_in_the_middle_of_its_conversation(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.agent(graph("'mcp:srv'"))
    agent_runner.models.script(Reply(calls=[("srv__change", {})]), "done")
    await agent_runner.run("go")
    before, after = [request.offered for request in agent_runner.models.requests]
    assert after == [*before, "srv__more_0"]


async def test_a_nodes_mode_and_lists_come_on_top_of_its_graphs(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    text = graph("'mcp:srv'", top="mcp_tools: {srv: [echo, add, pid]}", options="mcp_tools: {srv: ['a*', cwd]}, ")
    assert await offered(agent_runner, text) == ["srv__add"]
    text = graph("'mcp:srv'", top="mcp_tools: direct", options="mcp_tools: meta, ")
    assert (await offered(agent_runner, text))[0] == "mcp_search_srv"


async def test_an_alias_of_servers_works_in_graph_and_node(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, one=scripted(), two=scripted())
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    more = {"mapping_mcp_servers": {"both": "one,two"}, "mcp_tools": "meta"}
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, **more}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.root = root
        assert len(await offered(agent_runner, graph("'mcp:both'", servers="both"))) == 6
        assert len(await offered(agent_runner, graph("'mcp:two'", servers="both"))) == 3


async def test_lists_hold_for_aliases_and_for_all(agent_runner: AgentRunner) -> None:
    """A list that holds for nobody would let everything through."""
    mcp_json(agent_runner.config_dir, one=scripted(), two=scripted())
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    more = {"mapping_mcp_servers": {"both": "one,two"}, "mcp_tools": "direct"}
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, **more}))
    text = graph("'mcp:both'", "both", "mcp_tools: {both: [echo, pid]}", "mcp_tools: {one: [echo], all: ['e*', add]}, ")
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.root = root
        assert await offered(agent_runner, text) == ["one__echo", "two__echo"]
        assert agent_runner.of("run.warning") == []


async def test_what_a_nodes_mcp_tools_say_of_a_stranger_is_a_warning(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.agent(graph("'mcp:srv'", options="mcp_tools: {svr: [echo]}, "))
    (problem,) = callboard.validate("g", config_dir=agent_runner.config_dir)
    assert (problem.code, problem.severity, problem.node) == ("unknown_server", "warning", "a")
    assert has_message(problem.message, "engine.graph.node_checks._check_lists", name="svr")
    assert has_message(problem.hint, "protocol.problems.suggestion", name="srv")


async def test_a_server_that_is_not_configured_is_one_warning_and_its_tools_are_absent(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, github=scripted())
    text = graph("'mcp:gitub', gitub__search, mcp_invoke_gitub, github__echo", servers="gitub, github")
    assert await offered(agent_runner, text) == ["github__echo"]
    (warning,) = agent_runner.of("run.warning")
    assert has_message(warning.message, "engine.graph.node_checks._check_globals", server="gitub")
    (problem,) = callboard.validate("g", config_dir=agent_runner.config_dir)
    assert (problem.code, problem.severity, problem.line) == ("unknown_server", "warning", 2)
    assert has_message(problem.hint, "protocol.problems.suggestion", name="github")
    (problem,) = callboard.validate("g", config_dir=agent_runner.config_dir, strict=True)
    assert problem.severity == "error"
    with pytest.raises(InvalidFile, match=says("engine.graph.node_checks._check_globals", server="gitub")):
        await agent_runner.run("go", strict=True)


async def test_lokis_dialect_passes_over_servers_that_are_not_configured(agent_runner: AgentRunner) -> None:
    text = graph("'mcp:gone'", servers="gone", top="settings: {compat: loki}")
    assert await offered(agent_runner, text) == []
    assert callboard.validate("g", config_dir=agent_runner.config_dir) == []
    assert await offered(agent_runner, graph("'mcp:gone'", servers="gone"), compat="loki") == []
    assert agent_runner.of("run.warning") == []


async def test_an_entry_that_cannot_be_used_is_an_error_if_a_node_lists_it_and_else_a_warning(
    agent_runner: AgentRunner,
) -> None:
    (agent_runner.config_dir / "mcp.json").write_text(
        '{"mcpServers": {"srv": {"command": 7}, "other": {"command": "x"}}}'
    )
    agent_runner.agent(graph("'mcp:srv'"))
    (problem,) = callboard.validate("g", config_dir=agent_runner.config_dir)
    assert (problem.code, problem.severity, problem.line) == ("broken_server", "error", 2)
    with pytest.raises(InvalidFile, match=says("engine.graph.node_checks._check_globals.2", server="srv")):
        await agent_runner.run("go")
    agent_runner.agent(graph("user__ask"))
    (problem,) = callboard.validate("g", config_dir=agent_runner.config_dir)
    assert (problem.code, problem.severity) == ("broken_server", "warning")


async def test_a_server_that_the_graph_does_not_list_is_an_error_at_load(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(), other=scripted())
    for tool in ("'mcp:other'", "other__echo", "mcp_invoke_other"):
        agent_runner.agent(graph(tool))
        with pytest.raises(InvalidFile, match="llm node references unknown"):
            await agent_runner.run("go")


async def test_a_tool_that_its_server_does_not_have_fails_the_graph_with_its_neighbour(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.agent(graph("srv__ecko"))
    outcome = await agent_runner.run("go")
    assert outcome.error is not None
    assert outcome.error.message == (
        "at node 'a': llm node references unknown tool 'srv__ecko' of MCP server 'srv'; did you mean 'srv__echo'?"
    )
    assert (outcome.error.node, agent_runner.models.requests) == ("a", [])


async def test_a_server_that_can_not_be_started_costs_its_own_tools_only_and_is_told_once(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, bad=scripted("--exit", "3"), srv=scripted())
    text = graph("'mcp:bad', bad__echo, srv__echo", servers="bad, srv")
    loop = text.replace("next: e}", "next: b}").replace(
        "  e:", "  b: {type: llm, prompt: p, tools: [bad__x], next: e}\n  e:"
    )
    agent_runner.agent(loop)
    agent_runner.models.script(Reply(calls=[("bad__echo", {"text": "x"})]), "done")
    outcome = await agent_runner.run("go")
    assert outcome.status == "done"
    assert agent_runner.models.requests[0].offered == ["srv__echo"]
    assert "exited with status 3" in agent_runner.models.requests[1].results[0]
    assert [data.code for data in agent_runner.of("run.warning")] == ["mcp_server"]


async def test_the_model_reads_why_a_server_has_no_tools_and_so_does_each_call_of_one(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, bad=scripted("--exit", "3"), srv=scripted())
    agent_runner.agent(graph("'mcp:bad', 'mcp:srv'", servers="bad, srv"))
    agent_runner.models.script(Reply(calls=[("bad__any_name", {}), ("bad_but_of_none", {})]), "done")
    assert (await agent_runner.run("go")).status == "done"
    first, second = agent_runner.models.requests
    assert "bad" in first.system
    assert "exited with status 3" in first.system
    refused, other = second.results
    assert "exited with status 3" in refused
    assert "exited with status 3" not in other


async def test_servers_that_are_turned_off_are_an_error(agent_runner: AgentRunner) -> None:
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, "mcp_server_support": False}))
    agent_runner.agent(graph("'mcp:srv'"))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        with pytest.raises(ConfigError, match=says("work.mcp.tools.chosen.servers_of")):
            await callboard.run("g", "go", root=root)


# --- sharing -------------------------------------------------------------------------------------------------

TWICE = """
mcp_servers: [srv]
start: a
nodes:
  a: {type: llm, prompt: p, tools: [srv__count], state_updates: {a: "{{output}}"}, next: b}
  b: {type: llm, prompt: p, tools: [srv__count], state_updates: {b: "{{output}}"}, next: e}
  e: {type: end, output: "{{a}} {{b}}"}
"""


def count(request: Request) -> Reply | str:
    return " ".join(request.results) if request.results else Reply(calls=[("srv__count", {})])


@pytest.mark.parametrize(
    ("share", "output", "again"),
    [("pool", "1 2", 1), ("per-run", "1 2", 2), ("per-agent", "1 2", 2), ("never", "1 1", 4)],
)
async def test_nodes_share_a_server_as_far_as_it_says(
    agent_runner: AgentRunner, share: str, output: str, again: int
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(share=share, idle_timeout_seconds=60))
    agent_runner.agent(TWICE)
    agent_runner.models.answer_with(count)
    assert (await agent_runner.run("go")).output == output
    second = (await agent_runner.run("go")).output
    assert second == ("3 4" if share == "pool" else output)
    assert starts(agent_runner.config_dir, "srv") == again
    assert all(status.leases == 0 for status in agent_runner.root.mcp.status())


async def test_parallel_nodes_and_items_call_one_server_at_once(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.agent(
        """
        mcp_servers: [srv]
        initial_state: {items: [1, 2, 3, 4, 5, 6, 7, 8]}
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: one, output_key: r, collect_into: all, next: e}
          one: {type: llm, prompt: "{{item}}", tools: ["mcp:srv"], state_updates: {r: "{{output}}"}, next: null}
          e: {type: end, output: "{{all}}"}
        """.replace(", next: null", "")
    )
    agent_runner.models.answer_with(
        lambda request: (
            request.results[0] if request.results else Reply(calls=[("srv__echo", {"text": request.prompt})])
        )
    )
    outcome = await agent_runner.run("go")
    assert json.loads(outcome.output) == [str(n) for n in range(1, 9)]
    assert starts(agent_runner.config_dir, "srv") == 1


async def test_a_graph_that_is_cancelled_in_a_call_gives_everything_back(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.agent(graph("srv__slow"))
    agent_runner.models.script(Reply(calls=[("srv__slow", {"seconds": 60})]))
    with trio.CancelScope() as scope:

        def on_event(event: Any) -> None:
            if event.kind == "tool.call.started":
                scope.cancel()

        await agent_runner.run("go", on_event=on_event)
    assert [status.leases for status in agent_runner.root.mcp.status()] == [0]


async def test_a_node_timeout_interrupts_a_call_and_takes_the_fallback(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    text = graph("srv__slow", options="timeout: 1, fallback: f, ").replace(
        "  e:", "  f: {type: end, output: fell}\n  e:"
    )
    agent_runner.agent(text)
    agent_runner.models.script(Reply(calls=[("srv__slow", {"seconds": 60})]))
    assert (await agent_runner.run("go")).output == "fell"
