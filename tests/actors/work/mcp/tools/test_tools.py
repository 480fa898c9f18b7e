"""How the tools of servers become tools of a model: names, modes, budgets, what strangers write."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.mcp_processes import McpProcesses, scripted
from support.messages import has_message, says
from support.tool_families import context_of

from callboard.actors.engine.conversation.run import CallRounds
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.actors.work.mcp.pool.pool import ServerCatalog
from callboard.actors.work.mcp.tools.chosen import ChosenServer, WantedServers
from callboard.actors.work.mcp.tools.direct import direct_tool, effect_of
from callboard.actors.work.mcp.tools.names import legal, offered_name, owner_of
from callboard.actors.work.mcp.tools.tool_list import ConversationTools, OfferedTools, meta_tools
from callboard.actors.work.mcp.tools.view import ServersView, ServerView
from callboard.actors.work.tools.calls import changes, may_be_repeated
from callboard.actors.work.tools.checking import LONGEST_NAME
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.chat import ToolCall
from callboard.protocol.errors import McpLost, PoolClosed, ToolFailed
from callboard.protocol.mcp.config import Server, ToolList, ToolMode
from callboard.protocol.mcp.model import Implementation, McpTool, ToolAnnotations
from callboard.supervisors import Actor, Root


class Known:
    """In place of a scope: servers whose tools are known, and whose answers are what they were called with."""

    def __init__(self, **servers: list[McpTool] | Exception) -> None:
        self.servers = servers
        self.asked: list[str] = []

    async def catalog(self, server: str, me: Actor) -> ServerCatalog:
        self.asked.append(server)
        found = self.servers[server]
        if isinstance(found, Exception):
            raise found
        return ServerCatalog(server=Implementation(name=server), version="1", tools=tuple(found))

    async def learned(self, server: str) -> ServerCatalog | None:
        found = self.servers[server]
        return (
            None
            if isinstance(found, Exception)
            else ServerCatalog(server=Implementation(), version="1", tools=tuple(found))
        )

    async def call(
        self, server: str, tool: str, arguments: Mapping[str, Any], caller: CallOrigin, *, on_open: Callable[[], None]
    ) -> dict[str, Any]:
        on_open()
        return {"content": [{"type": "text", "text": json.dumps([server, tool, arguments])}]}


@pytest.fixture
async def me() -> AsyncIterator[Actor]:
    async with Root() as kernel:
        yield kernel.actor


def view_of(known: Known, name: str = "s", **entry: Any) -> ServerView:
    server = Server(**{"name": name, "type": "stdio", "command": "x", **entry})
    return ServerView(talk=ServersView(scope=known, context=context_of({})), server=server)


async def offered(
    me: Actor, known: Known, mode: ToolMode, budget: int = 8000, taken: tuple[str, ...] = (), **choices: Any
) -> OfferedTools:
    talk = ServersView(scope=known, context=context_of({}))
    servers = [Server(name=name, type="stdio", command="x") for name in known.servers]
    wanted = WantedServers(
        choices=tuple(ChosenServer(server=server, **choices) for server in servers), mode=mode, budget=budget
    )
    return await ConversationTools(talk, wanted, taken=taken).first(me)


def names(found: OfferedTools) -> list[str]:
    return [tool.name for tool in found.tools]


async def played(me: Actor, found: OfferedTools, name: str, **arguments: Any) -> Any:
    calls = CallRounds(found.tools, Permissions(), unlisted=found.unlisted)
    (turn,) = await me.spawn(calls.play, [ToolCall(id="1", name=name, arguments=arguments)], link=False).result()
    try:
        return json.loads(str(turn.content))
    except ValueError:
        return turn.content


def some(count: int, size: int = 10) -> list[McpTool]:
    return [McpTool(name=f"t{n}", description=f"finds things {'x' * size}") for n in range(count)]


# --- lists that change -----------------------------------------------------------------------------------------


def offering(known: Known, mode: ToolMode = "direct", **choices: Any) -> ConversationTools:
    talk = ServersView(scope=known, context=context_of({}))
    servers = [Server(name=name, type="stdio", command="x") for name in known.servers]
    wanted = WantedServers(
        choices=tuple(ChosenServer(server=server, **choices) for server in servers), mode=mode, budget=8000
    )
    return ConversationTools(talk, wanted)


async def test_other_tools_are_offered_when_a_list_has_changed_and_only_then(me: Actor) -> None:
    known = Known(s=some(1), down=McpLost("it is down"))
    own = offering(known)
    assert names(await own.first(me)) == ["s__t0"]
    assert await own.renewed(me) is None
    known.servers["s"] = some(2)
    now = await own.renewed(me)
    assert now is not None
    assert names(now) == ["s__t0", "s__t1"]
    known.servers["down"] = some(1)
    now = await own.renewed(me)
    assert now is not None
    assert names(now) == ["s__t0", "s__t1", "down__t0"]
    assert await own.renewed(me) is None


async def test_a_list_that_changes_while_the_first_tools_are_collected_is_seen_at_the_first_turn(me: Actor) -> None:
    class Hasty(Known):
        async def catalog(self, server: str, me: Actor) -> ServerCatalog:
            found = await super().catalog(server, me)
            self.servers[server] = some(2)
            return found

    own = offering(Hasty(s=some(1)))
    assert names(await own.first(me)) == ["s__t0"]
    now = await own.renewed(me)
    assert now is not None
    assert names(now) == ["s__t0", "s__t1"]
    assert await own.renewed(me) is None


async def test_a_change_of_tools_that_the_agent_leaves_out_changes_nothing(me: Actor) -> None:
    known = Known(s=some(1))
    own = offering(known, lists=(("t0",),))
    assert names(await own.first(me)) == ["s__t0"]
    known.servers["s"] = some(2)
    assert await own.renewed(me) is None


async def test_a_listed_tool_that_its_server_has_no_more_refuses_and_the_conversation_goes_on(me: Actor) -> None:
    known = Known(s=some(2))
    own = offering(known, whole=False, names=("s__t0", "s__t1"))
    await own.first(me)
    known.servers["s"] = some(1)
    now = await own.renewed(me)
    assert now is not None
    assert names(now) == ["s__t0"]
    assert has_message(
        (await played(me, now, "s__t1"))["tool_call_error"],
        "work.mcp.tools.tool_list._listed",
        listed="s__t1",
        server="s",
    )


async def test_behind_three_tools_a_changed_list_changes_nothing(me: Actor) -> None:
    known = Known(s=some(1))
    own = offering(known, "meta")
    await own.first(me)
    known.servers["s"] = some(2)
    assert await own.renewed(me) is None


# --- meta ----------------------------------------------------------------------------------------------------


async def test_case_94_a_search_returns_eight_and_never_more_than_twenty(me: Actor) -> None:
    found = await offered(me, Known(s=some(30)), "meta")
    assert len(await played(me, found, "mcp_search_s", query="things")) == 8
    assert len(await played(me, found, "mcp_search_s", query="things", top_k=3)) == 3
    assert len(await played(me, found, "mcp_search_s", query="things", top_k=50)) == 20
    assert len(await played(me, found, "mcp_search_s", query="things", top_k=-1)) == 1
    assert (await played(me, found, "mcp_search_s", query="t7"))[0]["name"] == "t7"


async def test_meta_asks_no_server_for_its_tools_before_a_call(me: Actor) -> None:
    known = Known(a=some(1), b=some(1))
    found = await offered(me, known, "meta")
    assert known.asked == []
    await played(me, found, "mcp_describe_b", tool="t0")
    assert known.asked == ["b"]


async def test_describe_tells_the_schema_of_the_arguments(me: Actor) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = await offered(me, Known(s=[McpTool(name="add", description="Adds.", input_schema=schema)]), "meta")
    assert await played(me, found, "mcp_describe_s", tool="add") == {
        "description": "Adds.",
        "type": "object",
        "properties": {"tool": {"type": "string"}, "arguments": schema},
    }
    assert await played(me, found, "mcp_describe_s", tool="s__add") == await played(
        me, found, "mcp_describe_s", tool="add"
    )


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [({}, {}), ({"arguments": {"a": 1}}, {"a": 1}), ({"arguments": '{"a": 1}'}, {"a": 1}), ({"arguments": ""}, {})],
)
async def test_invoke_takes_arguments_as_an_object_or_its_text(me: Actor, arguments: Any, passed: Any) -> None:
    found = await offered(me, Known(s=some(1)), "meta")
    raw = await played(me, found, "mcp_invoke_s", tool="t0", **arguments)
    assert json.loads(raw["content"][0]["text"]) == ["s", "t0", passed]


@pytest.mark.parametrize("arguments", ["{", "[1]", "3"])
async def test_invoke_refuses_what_is_no_object(me: Actor, arguments: str) -> None:
    found = await offered(me, Known(s=some(1)), "meta")
    told = await played(me, found, "mcp_invoke_s", tool="t0", arguments=arguments)
    assert told["tool_call_error"].startswith("MCP tool invocation failed: 'arguments'")


async def test_errors_of_meta_tools_are_lokis(me: Actor) -> None:
    found = await offered(me, Known(s=some(1)), "meta")
    told = await played(me, found, "mcp_describe_s", tool="t00")
    assert told == {"tool_call_error": "MCP describe failed: t00 not found in s MCP server catalog; did you mean 't0'?"}
    told = await played(me, found, "mcp_invoke_s", tool="zzz")
    assert told == {"tool_call_error": "MCP tool invocation failed: zzz not found in s MCP server catalog"}
    found = await offered(me, Known(s=McpLost("it is gone")), "meta")
    assert await played(me, found, "mcp_search_s", query="x") == {"tool_call_error": "MCP search failed: it is gone"}


# --- direct --------------------------------------------------------------------------------------------------


async def test_names_are_legal_unique_and_not_taken(me: Actor) -> None:
    tools = [McpTool(name=name) for name in ("a.b", "a/b", "a_b", "taken", "x" * 80, "x" * 81, "a.b")]
    found = names(await offered(me, Known(**{"my srv": tools}), "direct", taken=("my_srv__taken",)))
    assert len(found) == len(set(found)) == 6
    assert found[0] == "my_srv__a_b"
    assert "my_srv__taken" not in found
    assert all(len(name) <= LONGEST_NAME and legal(name) == name for name in found)


async def test_two_servers_whose_names_look_alike_keep_their_tools_apart(me: Actor) -> None:
    found = await offered(
        me, Known(**{"a.b": [McpTool(name="t")], "a-b": [McpTool(name="t")], "a_b": [McpTool(name="t")]}), "direct"
    )
    answers = [await played(me, found, name) for name in names(found)]
    assert [answer[0] for answer in answers] == ["a.b", "a-b", "a_b"]


@given(st.text(max_size=100), st.text(max_size=100))
def test_every_name_is_made_legal(server: str, tool: str) -> None:
    name = offered_name(server, tool)
    assert 2 <= len(name) <= LONGEST_NAME
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": "objekt"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"$ref": "http://127.0.0.1:1/x"},
        {"$ref": "#"},
        {"$schema": ["x"]},
        {"properties": {"a": {"type": 7}}},
        {"required": "a", "properties": {"a": {}}},
    ],
)
async def test_a_schema_that_is_none_ends_nothing(me: Actor, schema: dict[str, Any]) -> None:
    found = await offered(me, Known(s=[McpTool(name="t", input_schema=schema)]), "direct")
    parameters = found.tools[0].spec.parameters
    assert parameters["type"] == "object"
    assert isinstance(parameters["properties"], dict)
    told = await played(me, found, "s__t", a="x", b=None)
    assert told in (["s", "t", {"a": "x"}], ["s", "t", {"a": "x", "b": None}]) or "tool_call_error" in told


async def test_a_description_is_bounded(me: Actor) -> None:
    found = await offered(me, Known(s=[McpTool(name="t", description="x" * 1_000_000)]), "direct")
    assert len(found.tools[0].spec.description) < 5_000


@pytest.mark.parametrize(
    ("trust", "hints", "effect"),
    [
        ("full", ToolAnnotations(destructive_hint=True), "none"),
        ("hints", None, "none"),
        ("hints", ToolAnnotations(read_only_hint=False), "none"),
        ("hints", ToolAnnotations(destructive_hint=True), "write"),
        ("none", None, "execute"),
        ("none", ToolAnnotations(read_only_hint=True), "execute"),
    ],
)
def test_what_permissions_take_a_tool_for(trust: Any, hints: ToolAnnotations | None, effect: str) -> None:
    assert effect_of(Server(name="s", type="stdio", trust=trust), McpTool(name="t", annotations=hints)) == effect


def _is_made_again(tool: Any) -> bool:
    return not changes(tool) or may_be_repeated(tool)


@pytest.mark.parametrize(
    ("entry", "hints", "again", "remembers"),
    [
        ({}, None, False, "s"),
        ({}, ToolAnnotations(read_only_hint=True), True, ""),
        ({}, ToolAnnotations(idempotent_hint=True), True, "s"),
        ({}, ToolAnnotations(read_only_hint=False, destructive_hint=False), False, "s"),
        ({"trust": "none"}, ToolAnnotations(read_only_hint=True), False, "s"),
        ({"type": "http"}, None, False, ""),
    ],
)
def test_what_a_run_that_goes_on_takes_a_call_of_a_tool_for(
    entry: Any, hints: ToolAnnotations | None, again: bool, remembers: str
) -> None:
    view = view_of(Known(s=some(1)), **entry)
    tool = direct_tool(view, McpTool(name="t", annotations=hints))
    assert (_is_made_again(tool), tool.remembers) == (again, remembers)
    search, describe, invoke = meta_tools(view)
    assert [_is_made_again(each) for each in (search, describe, invoke)] == [True, True, False]


async def test_a_tool_that_its_entry_leaves_out_is_refused_even_if_it_was_offered(me: Actor) -> None:
    view = view_of(Known(s=some(1)), tools=ToolList(deny=("t0",)))
    found = OfferedTools(tools=(direct_tool(view, McpTool(name="t0")),))
    told = await played(me, found, "s__t0")
    assert has_message(told["tool_call_error"], "work.mcp.tools.view.ServerView.call", tool="t0", name="s")


# --- modes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "behind"),
    [(100_000, []), (3_000, ["large"]), (700, ["large", "middle"]), (10, ["large", "middle", "small"])],
)
async def test_auto_puts_the_largest_servers_behind_three_until_the_rest_fits(
    me: Actor, budget: int, behind: list[str]
) -> None:
    known = Known(small=some(3), large=some(20, 1000), middle=some(10, 400))
    found = names(await offered(me, known, "auto", budget))
    assert sorted(name.removeprefix("mcp_search_") for name in found if name.startswith("mcp_search_")) == behind


async def test_a_server_that_can_not_be_asked_is_not_offered_and_says_why(me: Actor) -> None:
    found = await offered(me, Known(bad=McpLost("no such program"), good=some(1)), "auto")
    assert names(found) == ["good__t0"]
    assert (await played(me, found, "mcp_invoke_bad", tool="x"))["tool_call_error"] == "no such program"


async def test_all_servers_are_asked_at_the_same_time(me: Actor) -> None:
    class Together(Known):
        async def catalog(self, server: str, me: Actor) -> ServerCatalog:
            found = await super().catalog(server, me)
            while len(self.asked) < 3:
                await trio.sleep(0)
            return found

    with trio.fail_after(60):
        found = await offered(me, Together(a=some(1), b=some(1), c=some(1)), "direct")
    assert names(found) == ["a__t0", "b__t0", "c__t0"]


async def test_a_pool_that_closes_is_not_a_servers_fault(me: Actor) -> None:
    with pytest.raises(PoolClosed):
        await offered(me, Known(a=PoolClosed("closing"), b=some(1)), "direct")


async def test_single_names_are_direct_whatever_the_mode(me: Actor) -> None:
    known = Known(s=some(3))
    found = await offered(me, known, "meta", whole=False, names=("s__t1", "mcp_search_s", "mcp__invoke_s"))
    assert names(found) == ["s__t1", "mcp_search_s", "mcp_invoke_s"]


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("srv__t", "srv"),
        ("srv__sub__t", "srv__sub"),
        ("mcp_invoke_srv", "srv"),
        ("mcp__search_srv", "srv"),
        ("my_srv__t", "my srv"),
        ("mcp_list_srv", None),
        ("srv", None),
        ("other__t", None),
    ],
)
def test_what_a_name_in_a_node_means(name: str, server: str | None) -> None:
    assert owner_of(name, ["srv", "srv__sub", "my srv"]) == server


def test_the_three_tools_have_schemas_that_providers_take() -> None:
    for tool in meta_tools(view_of(Known(s=[]), description="Knows the time")):
        assert tool.spec.parameters["type"] == "object"
    assert "Knows the time" in meta_tools(view_of(Known(s=[]), description="Knows the time"))[0].spec.description


# --- no servers, no cost -------------------------------------------------------------------------------------

WITHOUT = """
import sys, trio, callboard
from callboard.protocol.agent import Agent
from pathlib import Path
base = Path(sys.argv[1])
(base / "g.yaml").write_text("name: g\\nstart: e\\nnodes:\\n  e: {type: end, output: ok}")
async def main():
    assert (await callboard.run(base / "g.yaml", "p", config_dir=base)).output == "ok"
    outcome = await callboard.run(Agent(name="a"), "p", config_dir=base, model="fake:m")
    assert outcome.error is not None and outcome.error.code == "upstream", outcome
(base / "config.yaml").write_text(
    "clients: [{type: openai-compatible, name: fake, api_base: 'http://127.0.0.1:1/v1', api_key: x, models: [m]}]"
)
trio.run(main)
print(*sys.modules)
"""


def test_graphs_and_agents_without_servers_import_nothing_of_them(tmp_path: Any) -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [name for name in ran.stdout.split() if name.startswith("callboard.actors.work.mcp")] == []


# --- calls -----------------------------------------------------------------------------------------------------


async def test_a_call_leases_its_server_once_and_its_time_begins_when_the_server_is_there(tmp_path: Path) -> None:
    async with Root() as root:
        mcp_processes = McpProcesses(root, tmp_path)
        mcp_processes.build(scripted("s", "--slow-start", "2.5", timeout_seconds=2), serving=True)
        with mcp_processes.scope() as scope:
            view = ServerView(
                talk=ServersView(scope=scope, context=context_of({})), server=mcp_processes.config.servers["s"]
            )
            for _ in range(3):
                await view.call(root.actor, "pid", {}, "s__pid")
            with pytest.raises(ToolFailed, match=says("work.mcp.tools.view.ServerView.call.2", seconds=2)):
                await view.call(root.actor, "slow", {"seconds": 60}, "s__slow")
        counted = mcp_processes.servers.statistics()
    assert (counted.acquire_miss, counted.acquire_active_hit, counted.acquire_idle_hit) == (1, 3, 0)
