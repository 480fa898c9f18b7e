"""What a server that means no good, or is only careless, can't do to us: hold up everybody, or get round a rule."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_mcp_http import INITIALIZED, Legacy, Talk, fake_mcp, result
from support.fake_models import Request
from support.mcp_processes import House, tiny
from support.messages import says
from support.tool_families import context_of
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.io.json_schema import quick, schema_errors
from callboard.actors.work.call_clock import Clock
from callboard.actors.work.mcp.links.link import Caller
from callboard.actors.work.mcp.pool.leases import ROOM_WITHIN
from callboard.actors.work.mcp.tools import view as module
from callboard.actors.work.mcp.tools.direct import direct_tool
from callboard.actors.work.mcp.tools.meta import meta_tools, search
from callboard.actors.work.mcp.tools.view import CallHost, View
from callboard.actors.work.mcp.tools.view import Talk as Conversation
from callboard.actors.work.tools.checking import Checks
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.errors import McpError, McpLost
from callboard.protocol.mcp.config import PoolSettings, Server
from callboard.protocol.mcp.model import Progress, Tool
from callboard.supervisors import Actor, Root

SERVER = Server(name="s", type="stdio", command="x")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with Root() as root:
        house = House(root, tmp_path)
        with root.bus.listen(house.events.append):
            yield house


def view_of(scope: Any = None, server: Server = SERVER) -> View:
    return View(talk=Conversation(scope=scope, context=context_of({})), server=server)


class Catalogued:
    """In place of a scope: one server, whose tools are known."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = tools

    async def catalog(self, _server: str, _me: Actor) -> Catalogued:
        return self


# --- time ----------------------------------------------------------------------------------------------------

FAN = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}, "a" * 40 + "b"),
        ({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": FAN}, 1),
        ({"patternProperties": {"^(a+)+$": {}}, "properties": {}, "additionalProperties": False}, 1),
    ],
)
async def test_a_schema_that_takes_for_ever_to_check_is_left_to_its_server(
    house: House, schema: dict[str, Any], value: Any
) -> None:
    tool = direct_tool(view_of(), Tool(name="t", input_schema=schema))
    checks = Checks()
    assert checks._misfits(tool, {"a": value, "a" * 40 + "b": 1}) == []


async def test_arguments_that_plainly_do_not_fit_are_still_refused_here(house: House) -> None:
    schema = {"properties": {"n": {"type": "integer", "minimum": 1}, "of": {"$ref": "#/$defs/x"}}, "required": ["n"]}
    tool = direct_tool(view_of(), Tool(name="t", input_schema=schema))
    checks = Checks()
    for wrong in ({}, {"n": "1"}, {"n": 0}):
        assert len(checks._misfits(tool, wrong)) == 1
    assert checks._misfits(tool, {"n": 1, "of": 7}) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
SCHEMAS = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "integer", "minimum": 0}, {"enum": ["a", 1]}, {"$ref": "#"}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string"]),
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["a", "."]), inner, max_size=1),
            "additionalProperties": inner | st.booleans(),
            "unevaluatedProperties": st.booleans(),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
            "maxItems": st.integers(0, 2),
        },
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(SCHEMAS, JSON)
def test_what_fits_a_schema_fits_what_is_checked_of_it(schema: dict[str, Any], value: Any) -> None:
    if not schema_errors(value, schema):
        assert schema_errors(value, quick(schema)) == []


def test_a_search_looks_at_so_much_and_no_more() -> None:
    tools = [Tool(name=f"tool_{n}", description="some words " * 1_000) for n in range(10_000)]
    began = time.process_time()
    assert [tool.name for tool in search("7777", "s", tools, 8)] == ["tool_7777"]
    assert time.process_time() - began < 5.0  # all of them would take twenty times as long


async def test_a_near_miss_among_thousands_of_names_is_not_looked_for_for_ever(house: House) -> None:
    scope = Catalogued(*(Tool(name=f"ab{n:05}" * 14) for n in range(10_000)))
    describe = meta_tools(view_of(scope))[1]
    began = time.process_time()
    with pytest.raises(Exception, match=says("work.mcp.tools.meta._named", server="s")):
        await describe.run(house.root.actor, {"tool": "ba00007" * 14})
    assert time.process_time() - began < 5.0  # all of them would take twenty times as long


async def test_a_call_asks_the_model_so_often_and_no_more(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the call stands still meanwhile, so nothing else would end it."""
    monkeypatch.setattr(module, "MOST_SAMPLES", 2)
    host = CallHost(view_of().talk, SERVER, Clock(10))
    for text in ("sampling is off", "sampling is off", says("work.mcp.tools.view.CallHost.sample", MOST_SAMPLES=2)):
        with pytest.raises(McpError, match=text):
            await host.sample(house.root.actor, "s", {})


async def test_progress_without_end_is_told_sparingly(house: House, autojump_clock: MockClock) -> None:
    class Chatty(Catalogued):
        async def call(
            self, _server: str, _tool: str, _arguments: Any, caller: Caller, *, on_open: Callable[[], None]
        ) -> dict[str, Any]:
            on_open()
            assert caller.on_progress is not None
            for number in range(10_000):
                caller.on_progress(Progress(progress_token=1, progress=number))
                if number % 100 == 0:
                    await trio.sleep(0.01)
            return {}

    await view_of(Chatty()).call(house.root.actor, "t", {}, "s__t")
    told = [data.progress for data in house.of("tool.call.progress")]
    assert told[:100] == list(range(100))
    assert 108 <= len(told) <= 112  # a second has gone by


async def test_an_agent_that_has_all_the_room_does_not_wait_for_itself_for_ever(
    house: House, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0
    entries = [tiny(name, name, share="never") for name in "ab"]
    house.build(*entries, pool=PoolSettings(max_servers=1))
    with house.scope() as scope:
        pid = await house.call(scope, "a")

        async def wants() -> None:
            with pytest.raises(
                McpLost, match=says("work.mcp.pool.leases.Leases._in_time", name="b", within=360, max_servers=1)
            ):
                await house.call(scope, "b")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wants)
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(ROOM_WITHIN + 61)
        assert await house.call(scope, "a") == pid


# --- names ---------------------------------------------------------------------------------------------------


async def test_names_that_no_list_should_show_are_left_out_and_that_is_told(
    house: House, nursery: trio.Nursery
) -> None:
    names = ["fine", "", "two\nlines", "\x1b[31mred", "x" * 300, "r\u202eed", "größer als"]
    about = {"name": "n" * 9_000, "version": "v" * 9_000}

    async def answer(request: Request, talk: Talk) -> None:
        method = request.json.get("method")
        if method == "initialize":
            said = {**INITIALIZED, "capabilities": {"tools": {}}, "serverInfo": about, "instructions": "i" * 99_000}
            await talk.json(result(request, said), mcp_session_id="s-1")
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
            await talk.json(result(request, {"tools": tools}))
        else:
            await Legacy()(request, talk)

    house.build(Server(name="web", type="http", url=(await fake_mcp(nursery, answer)).url))
    with house.scope() as scope:
        catalog = await scope.catalog("web", house.root.actor)
        assert [tool.name for tool in catalog.tools] == ["fine", "größer als"]
        assert len(catalog.server.name) == len(catalog.server.version) == 256
        assert len(catalog.instructions or "") == 16_000
        (started,) = house.of("mcp.started")
        assert (len(started.version), started.tools) == (256, 2)
        warnings = [data.message for data in house.of("run.warning") if data.code == "mcp_names"]
        assert warnings == ["tools of MCP server 'web' are left out: 5, for their names"]


async def test_two_servers_whose_names_look_alike_keep_their_three_tools_apart(house: House) -> None:
    first = meta_tools(view_of(server=Server(name="a.b", type="stdio", command="x")))
    second = meta_tools(view_of(server=Server(name="a_b", type="stdio", command="x")), {tool.name for tool in first})
    assert [tool.name for tool in first] == ["mcp_search_a_b", "mcp_describe_a_b", "mcp_invoke_a_b"]
    assert len({tool.name for tool in (*first, *second)}) == 6


@pytest.mark.parametrize("rule", ["my fs__delete.file", "my_fs__delete_file", "my fs__*", "my_fs__*"])
async def test_rules_hold_for_the_names_of_the_server_and_of_the_model(house: House, rule: str) -> None:
    server = Server(name="my fs", type="stdio", command="x")
    tool = Tool(name="delete.file")
    view = view_of(Catalogued(tool), server)
    assert Permissions({rule: "deny"}).verdict(direct_tool(view, tool), {}) == "deny"
    assert Permissions({rule: "deny"}).verdict(direct_tool(view, tool, "my_fs__other_name"), {}) == (
        "allow" if rule == "my_fs__delete_file" else "deny"
    )
    means = meta_tools(view)[2].means
    assert means is not None
    meant, _ = await means(house.root.actor, {"tool": "delete.file"})
    assert Permissions({rule: "deny"}).verdict(meant, {}) == "deny"


async def test_rules_may_spell_the_three_tools_in_either_way(house: House) -> None:
    for tool, verb in zip(meta_tools(view_of()), ("search", "describe", "invoke"), strict=True):
        for name in (f"mcp_{verb}_s", f"mcp__{verb}_s"):
            assert Permissions({name: "deny"}).verdict(tool, {}) == "deny"
        assert Permissions({f"mcp__{verb}_x": "deny"}).verdict(tool, {}) == "allow"


def test_a_name_that_is_allowed_is_allowed_by_either_name_and_no_name_allows_nothing() -> None:
    tool = direct_tool(view_of(server=Server(name="s", type="stdio", command="x", trust="none")), Tool(name="a.b"))
    assert [Permissions(allowed=[name]).verdict(tool, {}) for name in ("s__a_b", "s__a.b", "")] == [
        "allow", "allow", "ask",
    ]  # fmt: skip


# --- what is not begun is made again -------------------------------------------------------------------------


async def test_a_call_that_was_not_begun_is_made_again_for_a_model_as_well(house: House, nursery: trio.Nursery) -> None:
    """Whoever calls keeps the server meanwhile, and must not keep the new one from starting."""
    forget = [True, False]

    async def answer(request: Request, talk: Talk) -> None:
        if forget.pop(0):
            await talk.json("gone", 404)
        else:
            await talk.json(result(request, {"content": [{"type": "text", "text": "done"}]}))

    server = Server(name="web", type="http", url=(await fake_mcp(nursery, Legacy(answer))).url)
    house.build(server)
    with house.scope() as scope, trio.fail_after(60):
        told = await view_of(scope, server).call(house.root.actor, "x", {}, "web__x")
        assert told["content"][0]["text"] == "done"


async def test_tools_with_odd_schemas_and_ids_as_text_do_not_cost_the_server(
    house: House, nursery: trio.Nursery
) -> None:
    odd: list[dict[str, object]] = [{"inputSchema": None}, {"inputSchema": True}, {"inputSchema": "text"}, {}]
    odd += [{"inputSchema": {"type": "object", "properties": None, "required": None}}, {"annotations": None}]

    async def answer(request: Request, talk: Talk) -> None:
        method = request.json.get("method")
        if method == "initialize":
            said = {**INITIALIZED, "capabilities": {"tools": {}}}
            await talk.json(result(request, said), mcp_session_id="s-1")
        elif method == "tools/list":
            tools = [{"name": f"t{number}", "description": None, **each} for number, each in enumerate(odd)]
            tools.append({"name": 7})  # no tool at all
            listed = result(request, {"tools": tools})
            await talk.json({**listed, "id": str(listed["id"])})
        else:
            await Legacy()(request, talk)

    house.build(Server(name="web", type="http", url=(await fake_mcp(nursery, answer)).url))
    with house.scope() as scope:
        catalog = await scope.catalog("web", house.root.actor)
    assert [tool.name for tool in catalog.tools] == [f"t{number}" for number in range(len(odd))]
