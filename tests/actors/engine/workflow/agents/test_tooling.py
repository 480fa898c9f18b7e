"""Tools of agent nodes: Python functions, MCP servers, and what is told of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from support.fake_mcp_http import INITIALIZED, SESSION, Legacy, Talk, fake_mcp
from support.fake_mcp_http import result as result_of
from support.fake_models import Reply, Request
from support.mcp_processes import SERVERS
from support.messages import has_message
from support.workflow_agents import Agents, said

from callboard.actors.work.tools.permissions import Permissions

CITY = '''
from __future__ import annotations


def get_city_num(city: str) -> dict:
    """Looks up the number of a city.

    Args:
        city: its name.
    """
    return {"city": city, "city_num": 3701}


def shout(text, _context=None):
    return text.upper() + "!"


def slow() -> str:
    """Takes its time."""
    import time

    time.sleep(60)
    return "done"


def _hidden() -> None: ...
'''


@pytest.fixture
def functions(agents: Agents) -> Path:
    directory = agents.home / "functions" / "function_calling"
    directory.mkdir(parents=True)
    (directory / "city.py").write_text(CITY)
    return directory


def calling(tooling: str, more: str = "") -> str:
    return f"""
graph:
  start: [A]
  nodes:
    - id: A
      type: agent
      config:
        {{fake}}
        tooling:
{tooling}
{more}
""".replace("{fake}", "provider: openai\n        base_url: BASE\n        api_key: k\n        name: m")


def with_functions(agents: Agents, *names: str, extra: str = "") -> str:
    tools = ", ".join(f"{{name: {name}}}" for name in names)
    entry = f"          - {{type: function, config: {{tools: [{tools}]{extra}}}}}"
    return calling(entry).replace("BASE", agents.models.openai_base)


def offered(agents: Agents, number: int = 0) -> dict[str, Any]:
    tools = agents.models.requests[number].json.get("tools", [])
    return {tool["function"]["name"]: tool["function"] for tool in tools}


async def test_a_function_is_described_and_called(agents: Agents, functions: Path) -> None:
    agents.models.script(Reply(text="I look.", calls=[("get_city_num", {"city": "Oslo"})]), "3701")
    result = await agents.run(with_functions(agents, "get_city_num"))
    assert (result.error, result.output) == (None, "3701")
    function = offered(agents)["get_city_num"]
    assert function["description"] == "Looks up the number of a city."
    assert function["parameters"]["properties"] == {"city": {"type": "string", "description": "its name."}}
    assert '"city_num": 3701' in agents.models.requests[1].results[0].replace('":3701', '": 3701')
    assert list(offered(agents)) == ["get_city_num"]


async def test_all_of_a_file_stands_for_its_functions_with_a_prefix(agents: Agents, functions: Path) -> None:
    yaml = with_functions(agents, "'city:All'").replace("{type: function", "{prefix: geo, type: function")
    agents.models.script(Reply(calls=[("geo_shout", {"text": "hi"})]), "done")
    await agents.run(yaml)
    assert list(offered(agents)) == ["geo_get_city_num", "geo_shout", "geo_slow"]
    assert list(offered(agents)["geo_shout"]["parameters"]["properties"]) == ["text"]
    assert agents.models.requests[1].results == ["HI!"]


async def test_the_file_may_say_what_a_function_is_for(agents: Agents, functions: Path) -> None:
    entry = "{name: shout, description: Loud, parameters: {type: object, properties: {text: {type: string}}}}"
    await agents.run(with_functions(agents, "shout").replace("{name: shout}", entry))
    assert offered(agents)["shout"] == {
        "name": "shout",
        "description": "Loud",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }


async def test_a_call_has_the_time_that_its_entry_gives(agents: Agents, functions: Path) -> None:
    agents.models.script(Reply(calls=[("slow", {})]), "gave up")
    with trio.fail_after(60):
        result = await agents.run(with_functions(agents, "slow", extra=", timeout: 0.5"))
    assert result.output == "gave up"
    assert "did not finish within 0.5 s" in agents.models.requests[1].results[0]


async def test_two_tools_of_one_name_are_told_apart_by_a_prefix_or_not_at_all(agents: Agents, functions: Path) -> None:
    twice = with_functions(agents, "shout")
    line = twice[twice.index("          - {type") :].rstrip()
    result = await agents.run(twice.replace(line, f"{line}\n{line}"))
    assert has_message(str(result.error), "engine.workflow.nodes.agent.tools_of_node", name="shout")
    assert not agents.models.requests
    both = line.replace("{type", "{prefix: my, type")
    assert (await agents.run(twice.replace(line, f"{line}\n{both}"))).error is None
    assert list(offered(agents)) == ["shout", "my_shout"]


async def test_a_function_that_is_nowhere_is_the_authors_mistake(agents: Agents, functions: Path) -> None:
    result = await agents.run(with_functions(agents, "shoot"), compat="devall")
    assert has_message(str(result.error), "engine.workflow.nodes.agent._declared.3", name="shoot", why="…'shout'…")
    result = await agents.run(with_functions(agents, "'town:All'"))
    assert has_message(str(result.error), "engine.workflow.nodes.agent._declared", module="town")


async def test_a_model_that_never_stops_calling_is_stopped(agents: Agents, functions: Path) -> None:
    agents.models.answer_with(
        lambda request: Reply(
            text=f"round {len(request.results)}", calls=[("shout", {"text": str(len(request.results))})]
        )
    )
    yaml = with_functions(agents, "shout").replace(
        "        tooling:", "        params: {tool_loop_limit: 3}\n        tooling:"
    )
    result = await agents.run(yaml)
    assert (result.error, result.output) == (None, "round 2")
    assert len(agents.models.requests) == 3
    assert agents.warnings == ["tool_loop_limit"]


async def test_a_window_remembers_the_turns_of_the_tool_loop(agents: Agents, functions: Path) -> None:
    yaml = with_functions(agents, "shout").replace("      type: agent", "      type: agent\n      context_window: -1")
    yaml = yaml.replace(
        "  nodes:",
        "  edges: [{from: A, to: G}, {from: G, to: A}, {from: G, to: Z}]\n  end: [Z]\n  nodes:\n"
        "    - {id: G, type: passthrough, config: {}}\n"
        "    - {id: Z, type: passthrough, config: {}}",
    ).replace("{from: G, to: Z}", "{from: G, to: Z, condition: {type: keyword, config: {any: [stop]}}}")
    agents.models.script(Reply(text="let me", calls=[("shout", {"text": "a"})]), "once", "stop")
    result = await agents.run(yaml)
    assert result.error is None
    assert said(agents.models.requests[2]) == [
        ("user", "TASK"),
        ("assistant", "let me"),
        ("assistant", "once"),
        ("user", "once"),
    ]


# --- servers ----------------------------------------------------------------------------------------------


def local(agents: Agents, *flags: str, prefix: str = "") -> str:
    args = ", ".join(f"'{each}'" for each in ("-S", str(SERVERS / "scripted.py"), *flags))
    config = f"{{command: '{sys.executable}', args: [{args}], env: {{COLOUR: blue}}}}"
    entry = f"          - {{type: mcp_local, prefix: '{prefix}', config: {config}}}"
    return calling(entry).replace("BASE", agents.models.openai_base)


async def test_the_tools_of_a_local_server_are_offered_by_their_own_names(agents: Agents) -> None:
    agents.models.script(Reply(calls=[("env", {"name": "COLOUR"}), ("pid", {})]), "blue")
    result = await agents.run(local(agents, "--legacy"))
    assert (result.error, result.output) == (None, "blue")
    assert {"add", "echo", "pid"} <= set(offered(agents))
    colour, pid = agents.models.requests[1].results
    assert colour == "blue"
    with trio.fail_after(60):  # it ended with its run
        while psutil.pid_exists(int(pid)):
            await trio.sleep(0.01)


async def test_agents_of_a_run_share_a_server_and_prefixes_tell_its_tools_apart(agents: Agents) -> None:
    yaml = local(agents, "--legacy", prefix="one")
    second = yaml[yaml.index("    - id: A") :].replace("id: A", "id: B").replace("'one'", "'two'")
    yaml += second + "  edges: [{from: A, to: B}]\n"
    agents.models.script(Reply(calls=[("one_count", {})]), "next", Reply(calls=[("two_count", {})]), "done")
    result = await agents.run(yaml)
    assert result.error is None
    assert [agents.models.requests[i].results for i in (1, 3)] == [["1"], ["2"]]


async def test_a_server_that_can_not_be_started_fails_the_node(agents: Agents) -> None:
    result = await agents.run(local(agents, "--exit", "3", "--complain", "no luck"))
    assert "no luck" in str(result.error)
    assert not agents.models.requests


async def test_the_tools_of_a_remote_server_are_called_over_http(agents: Agents, nursery: trio.Nursery) -> None:
    async def answer(request: Request, talk: Talk) -> None:
        called = request.json["method"] == "tools/call"
        text = {"type": "text", "text": f"heard {request.json['params'].get('arguments')}"}
        listed = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        await talk.json(result_of(request, {"content": [text]} if called else listed))

    async def with_tools(request: Request, talk: Talk) -> None:
        if request.json.get("method") == "initialize":
            has_tools = {**INITIALIZED, "capabilities": {"tools": {}}}
            await talk.json(result_of(request, has_tools), mcp_session_id=SESSION)
        else:
            await Legacy(answer)(request, talk)

    server = await fake_mcp(nursery, with_tools)
    config = f"{{server: '{server.url}', headers: {{X-Key: abc}}, timeout: 5}}"
    entry = f"          - {{type: mcp_remote, config: {config}}}"
    agents.models.script(Reply(calls=[("echo", {"text": "hello"})]), "done")
    result = await agents.run(calling(entry).replace("BASE", agents.models.openai_base))
    assert (result.error, result.output) == (None, "done")
    assert agents.models.requests[1].results == ["heard {'text': 'hello'}"]
    assert all(request.headers["x-key"] == "abc" for request in server.requests)


async def test_two_servers_of_one_command_are_two(agents: Agents) -> None:
    yaml = local(agents, "--legacy", prefix="one")
    line = yaml[yaml.index("          - {type") :].rstrip()
    other = line.replace("'one'", "'two'").replace("blue", "red")
    agents.models.script(Reply(calls=[("one_env", {"name": "COLOUR"}), ("two_env", {"name": "COLOUR"})]), "done")
    result = await agents.run(yaml.replace(line, f"{line}\n{other}"))
    assert result.error is None
    assert agents.models.requests[1].results == ["blue", "red"]


async def test_a_call_needs_permission_as_any_other(agents: Agents, functions: Path) -> None:
    agents.permissions = Permissions({"shout": "deny"})
    agents.models.script(Reply(calls=[("shout", {"text": "hi"})]), "silent")
    result = await agents.run(with_functions(agents, "shout"))
    assert result.output == "silent"
    assert "tool_call_error" in agents.models.requests[1].results[0]


async def test_an_address_that_is_none_is_told(agents: Agents) -> None:
    entry = "          - {type: mcp_remote, config: {server: 'ftp://x'}}"
    result = await agents.run(calling(entry).replace("BASE", agents.models.openai_base))
    assert has_message(str(result.error), "engine.workflow.nodes.agent._server", server="ftp://x")
