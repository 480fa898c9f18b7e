"""What a server that means no good, or is only careless, can't do to us: hold up everybody, or get round a rule."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cpu_time import slowness
from support.fake_mcp_http import INITIALIZED, Legacy, Talk, fake_mcp, result, said
from support.fake_models import Request
from support.mcp_processes import McpProcesses, tiny
from support.messages import says
from support.tool_families import context_of
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.io.json_schema import quick, schema_errors
from callboard.actors.work.call_clock import Clock
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.actors.work.mcp.pool.pool import ROOM_WITHIN
from callboard.actors.work.mcp.tools import view as module
from callboard.actors.work.mcp.tools.direct import direct_tool
from callboard.actors.work.mcp.tools.tool_list import meta_tools, search
from callboard.actors.work.mcp.tools.view import CallHost, ServerView
from callboard.actors.work.mcp.tools.view import ServersView as Conversation
from callboard.actors.work.tools.checking import Checks
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.errors import McpError, McpLost, ToolFailed
from callboard.protocol.mcp.config import PoolSettings, Server
from callboard.protocol.mcp.model import McpTool, Progress
from callboard.supervisors import Actor, Root

SERVER = Server(name="s", type="stdio", command="x")


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    async with Root() as root:
        mcp_processes = McpProcesses(root, tmp_path)
        with root.bus.listen(mcp_processes.events.append):
            yield mcp_processes


def view_of(scope: Any = None, server: Server = SERVER) -> ServerView:
    return ServerView(talk=Conversation(scope=scope, context=context_of({})), server=server)


class Catalogued:
    """In place of a scope: one server, whose tools are known."""

    def __init__(self, *tools: McpTool) -> None:
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
    mcp_processes: McpProcesses, schema: dict[str, Any], value: Any
) -> None:
    tool = direct_tool(view_of(), McpTool(name="t", input_schema=schema))
    checks = Checks()
    assert checks._misfits(tool, {"a": value, "a" * 40 + "b": 1}) == []


async def test_arguments_that_plainly_do_not_fit_are_still_refused_here(mcp_processes: McpProcesses) -> None:
    schema = {"properties": {"n": {"type": "integer", "minimum": 1}, "of": {"$ref": "#/$defs/x"}}, "required": ["n"]}
    tool = direct_tool(view_of(), McpTool(name="t", input_schema=schema))
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
    tools = [McpTool(name=f"tool_{n}", description="some words " * 1_000) for n in range(10_000)]
    began = time.process_time()
    assert [tool.name for tool in search("7777", "s", tools, 8)] == ["tool_7777"]
    assert time.process_time() - began < 5.0 * slowness()  # all of them would take twenty times as long


async def test_a_near_miss_among_thousands_of_names_is_not_looked_for_for_ever(mcp_processes: McpProcesses) -> None:
    scope = Catalogued(*(McpTool(name=f"ab{n:05}" * 14) for n in range(10_000)))
    describe = meta_tools(view_of(scope))[1]
    began = time.process_time()
    with pytest.raises(Exception, match=says("work.mcp.tools.tool_list._named", server="s")):
        await describe.run(mcp_processes.root.actor, {"tool": "ba00007" * 14})
    assert time.process_time() - began < 5.0 * slowness()  # all of them would take twenty times as long


async def test_a_call_asks_the_model_so_often_and_no_more(
    mcp_processes: McpProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the call stands still meanwhile, so nothing else would end it."""
    monkeypatch.setattr(module, "MOST_SAMPLES", 2)
    host = CallHost(view_of().talk, SERVER, Clock(10))
    for text in (
        "sampling is turned off",
        "sampling is turned off",
        says("work.mcp.tools.view.CallHost.sample", MOST_SAMPLES=2),
    ):
        with pytest.raises(McpError, match=text):
            await host.sample(mcp_processes.root.actor, "s", {})


async def test_progress_without_end_is_told_sparingly(mcp_processes: McpProcesses, autojump_clock: MockClock) -> None:
    class Chatty(Catalogued):
        async def call(
            self, _server: str, _tool: str, _arguments: Any, caller: CallOrigin, *, on_open: Callable[[], None]
        ) -> dict[str, Any]:
            on_open()
            assert caller.on_progress is not None
            for number in range(10_000):
                caller.on_progress(Progress(progress_token=1, progress=number))
                if number % 100 == 0:
                    await trio.sleep(0.01)
            return {}

    await view_of(Chatty()).call(mcp_processes.root.actor, "t", {}, "s__t")
    told = [data.progress for data in mcp_processes.of("tool.call.progress")]
    assert told[:100] == list(range(100))
    assert 108 <= len(told) <= 112  # a second has gone by


async def test_an_agent_that_has_all_the_room_does_not_wait_for_itself_for_ever(
    mcp_processes: McpProcesses, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0
    entries = [tiny(name, name, share="never") for name in "ab"]
    mcp_processes.build(*entries, pool=PoolSettings(max_servers=1))
    with mcp_processes.scope() as scope:
        pid = await mcp_processes.call(scope, "a")

        async def pass_the_time() -> None:
            while True:  # it may not wait yet
                await wait_all_tasks_blocked(0.05)
                mock_clock.jump(ROOM_WITHIN + 61)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_the_time)
            with pytest.raises(
                McpLost, match=says("work.mcp.pool.pool.Leases._in_time", name="b", within=360, max_servers=1)
            ):
                await mcp_processes.call(scope, "b")
            nursery.cancel_scope.cancel()
        assert await mcp_processes.call(scope, "a") == pid


# --- names ---------------------------------------------------------------------------------------------------


async def test_names_that_no_list_should_show_are_left_out_and_that_is_told(
    mcp_processes: McpProcesses, nursery: trio.Nursery
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

    mcp_processes.build(Server(name="web", type="http", url=(await fake_mcp(nursery, answer)).url))
    with mcp_processes.scope() as scope:
        catalog = await scope.catalog("web", mcp_processes.root.actor)
        assert [tool.name for tool in catalog.tools] == ["fine", "größer als"]
        assert len(catalog.server.name) == len(catalog.server.version) == 256
        assert len(catalog.instructions or "") == 16_000
        (started,) = mcp_processes.of("mcp.started")
        assert (len(started.version), started.tools) == (256, 2)
        warnings = [data.message for data in mcp_processes.of("run.warning") if data.code == "mcp_names"]
        assert warnings == ["5 tools of MCP server 'web' are ignored: their names are not valid"]


async def test_two_servers_whose_names_look_alike_keep_their_three_tools_apart(mcp_processes: McpProcesses) -> None:
    first = meta_tools(view_of(server=Server(name="a.b", type="stdio", command="x")))
    second = meta_tools(view_of(server=Server(name="a_b", type="stdio", command="x")), {tool.name for tool in first})
    assert [tool.name for tool in first] == ["mcp_search_a_b", "mcp_describe_a_b", "mcp_invoke_a_b"]
    assert len({tool.name for tool in (*first, *second)}) == 6


@pytest.mark.parametrize("rule", ["my fs__delete.file", "my_fs__delete_file", "my fs__*", "my_fs__*"])
async def test_rules_hold_for_the_names_of_the_server_and_of_the_model(mcp_processes: McpProcesses, rule: str) -> None:
    server = Server(name="my fs", type="stdio", command="x")
    tool = McpTool(name="delete.file")
    view = view_of(Catalogued(tool), server)
    assert Permissions({rule: "deny"}).verdict(direct_tool(view, tool), {}) == "deny"
    assert Permissions({rule: "deny"}).verdict(direct_tool(view, tool, "my_fs__other_name"), {}) == (
        "allow" if rule == "my_fs__delete_file" else "deny"
    )
    means = meta_tools(view)[2].means
    assert means is not None
    meant, _ = await means(mcp_processes.root.actor, {"tool": "delete.file"})
    assert Permissions({rule: "deny"}).verdict(meant, {}) == "deny"


async def test_rules_may_spell_the_three_tools_in_either_way(mcp_processes: McpProcesses) -> None:
    for tool, verb in zip(meta_tools(view_of()), ("search", "describe", "invoke"), strict=True):
        for name in (f"mcp_{verb}_s", f"mcp__{verb}_s"):
            assert Permissions({name: "deny"}).verdict(tool, {}) == "deny"
        assert Permissions({f"mcp__{verb}_x": "deny"}).verdict(tool, {}) == "allow"


def test_a_name_that_is_allowed_is_allowed_by_either_name_and_no_name_allows_nothing() -> None:
    tool = direct_tool(view_of(server=Server(name="s", type="stdio", command="x", trust="none")), McpTool(name="a.b"))
    assert [Permissions(allowed=[name]).verdict(tool, {}) for name in ("s__a_b", "s__a.b", "")] == [
        "allow", "allow", "ask",
    ]  # fmt: skip


# --- what is not begun is made again -------------------------------------------------------------------------


async def test_a_call_that_was_not_begun_is_made_again_for_a_model_as_well(
    mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    """Whoever calls keeps the server meanwhile, and must not keep the new one from starting."""
    forget = [True, False]

    async def answer(request: Request, talk: Talk) -> None:
        if forget.pop(0):
            await talk.json("gone", 404)
        else:
            await talk.json(result(request, {"content": [{"type": "text", "text": "done"}]}))

    server = Server(name="web", type="http", url=(await fake_mcp(nursery, Legacy(answer))).url)
    mcp_processes.build(server)
    with mcp_processes.scope() as scope, trio.fail_after(60):
        told = await view_of(scope, server).call(mcp_processes.root.actor, "x", {}, "web__x")
        assert told["content"][0]["text"] == "done"


async def test_tools_with_odd_schemas_and_ids_as_text_do_not_cost_the_server(
    mcp_processes: McpProcesses, nursery: trio.Nursery
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

    mcp_processes.build(Server(name="web", type="http", url=(await fake_mcp(nursery, answer)).url))
    with mcp_processes.scope() as scope:
        catalog = await scope.catalog("web", mcp_processes.root.actor)
    assert [tool.name for tool in catalog.tools] == [f"t{number}" for number in range(len(odd))]


def listing(pages: dict[Any, tuple[list[dict[str, Any]], dict[str, Any]]]) -> Callable[[Request, Talk], Any]:
    """A server that lists tools on these pages, by cursor."""

    async def answer(request: Request, talk: Talk) -> None:
        method = request.json.get("method")
        if method == "initialize":
            said = {**INITIALIZED, "capabilities": {"tools": {}}}
            await talk.json(result(request, said), mcp_session_id="s-1")
        elif method == "tools/list":
            tools, more = pages[request.json["params"].get("cursor")]
            await talk.json(result(request, {"tools": tools, **more}))
        else:
            await Legacy()(request, talk)

    return answer


A, B = {"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {}}


@pytest.mark.parametrize(
    "pages",
    [
        {None: ([A, B], {"nextCursor": None})},
        {None: ([A, B], {"nextCursor": ""})},
        {None: ([A], {"nextCursor": 2}), 2: ([B], {})},
        {None: ([A], {"nextCursor": "x"}), "x": ([B], {"nextCursor": "x"})},
        {None: ([A], {"nextCursor": "x"}), "x": ([B], {"nextCursor": "y"}), "y": ([A], {"nextCursor": "x"})},
        {None: ([A], {"nextCursor": "x"}), "x": ([A, B], {})},
        {None: ([A, {"name": None}, B], {})},
    ],
    ids=["null", "empty", "a number", "repeats", "a circle", "a tool twice", "a tool without a name"],
)
async def test_cursors_and_entries_as_servers_have_them_cost_no_tool(
    mcp_processes: McpProcesses, nursery: trio.Nursery, pages: Any
) -> None:
    mcp_processes.build(Server(name="web", type="http", url=(await fake_mcp(nursery, listing(pages))).url))
    with mcp_processes.scope() as scope:
        catalog = await scope.catalog("web", mcp_processes.root.actor)
    assert [tool.name for tool in catalog.tools] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ('{"content": [{"type": "text", "text": "x\\ud83d"}]}', {"content": [{"type": "text", "text": "x\ufffd"}]}),
        ('{"content": [], "structuredContent": {"n": NaN}}', {"content": [], "structuredContent": {"n": None}}),
        ('{"content": [], "structuredContent": {"n": [-Infinity, Infinity, "NaN"]}}',
         {"content": [], "structuredContent": {"n": [None, None, "NaN"]}}),
        ('{"content": [{"type": "text", "text": "NaN \\"NaN\\" \\ud83d\\ude00"}], "x": NaN}',
         {"content": [{"type": "text", "text": 'NaN "NaN" 😀'}], "x": None}),
    ],
    ids=["half a character", "NaN", "infinite", "texts stay"],
)  # fmt: skip
@pytest.mark.parametrize("streams", [False, True])
async def test_results_that_are_no_strict_json_are_read(
    mcp_processes: McpProcesses, nursery: trio.Nursery, body: str, value: Any, streams: bool
) -> None:
    async def answer(request: Request, talk: Talk) -> None:
        message = f'{{"jsonrpc": "2.0", "id": {request.json["id"]}, "result": {body}}}'
        if not streams:
            await talk.whole(message.encode(), content_type="application/json")
            return
        await talk.stream()
        await talk.event(message)
        await talk.end()

    server = Server(name="web", type="http", url=(await fake_mcp(nursery, Legacy(answer))).url)
    mcp_processes.build(server)
    with mcp_processes.scope() as scope, trio.fail_after(60):
        told = await view_of(scope, server).call(mcp_processes.root.actor, "x", {}, "web__x")
    assert told == value


async def test_a_refusal_of_a_revision_that_the_server_has_is_asked_once_more(
    mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    refusals = 0

    async def answer(request: Request, talk: Talk) -> None:
        nonlocal refusals
        if said(request) != "server/discover":
            await talk.json(result(request, {"resultType": "complete"}))
        elif not refusals:
            refusals += 1
            error = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
            await talk.json({"jsonrpc": "2.0", "id": request.json["id"], "error": error}, 400)
        else:
            await talk.json(result(request, {"supportedVersions": ["2026-07-28"], "capabilities": {}}))

    mcp_processes.build(Server(name="web", type="http", url=(await fake_mcp(nursery, answer)).url))
    with mcp_processes.scope() as scope, trio.fail_after(60):
        catalog = await scope.catalog("web", mcp_processes.root.actor)
    assert catalog.version == "2026-07-28"


# --- how servers of others write, over stdio -----------------------------------------------------------------

ODD = """
import json, sys

def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def out(message):
    raw(json.dumps(message, ensure_ascii=False).encode() + b"\\n")

def result():
    return {{"content": [{{"type": "text", "text": "said"}}]}}

{body}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    known = {{
        "initialize": {{
            "protocolVersion": "2025-06-18",
            "capabilities": {{"tools": {{}}}},
            "serverInfo": {{"name": "s", "version": "1"}},
        }},
        "tools/list": {{"tools": [{{"name": "x", "inputSchema": {{"type": "object"}}}}]}},
        "tools/call": result(),
        "ping": {{}},
    }}
    answer = {{"jsonrpc": "2.0", "id": message["id"]}}
    if message["method"] in known:
        out({{**answer, "result": known[message["method"]]}})
    else:
        out({{**answer, "error": {{"code": -32601, "message": "no such method"}}}})
"""

WRITES = {
    "an id that is a text": "answer['id'] = str(answer['id'])",
    "a null beside the result": "answer = {**answer, 'error': None} if 'result' in answer else answer",
    "no version": "answer.pop('jsonrpc')",
    "keys of a request": "answer |= {'params': {}, 'method': None}",
    "a list of one": "answer = [answer]",
    "a banner before it": "raw(b'Server ready!\\n\\n')",
    "JSON that is no message": 'raw(b\'{"level": "info"}\\n[1]\\n3\\n\')',
    "bytes that are no UTF-8": "raw(b'\\xff\\xfe\\n')",
    "a byte order mark": "raw(b'\\xef\\xbb\\xbf')",
    "a mark, and another order of keys": "raw(b'\\xef\\xbb\\xbf'); answer = dict(reversed(answer.items()))",
    "words without a newline": "raw(b'Loading... \\x1b[0m')",
    "CRLF": "raw(json.dumps(answer).encode() + b'\\r\\n'); return",
    "the answer twice": "raw(json.dumps(answer).encode() + b'\\n')",
    "progress of nothing": 'raw(b\'{"jsonrpc": "2.0", "method": "notifications/progress", "params": '
    '{"progressToken": 99, "progress": 1}}\\n\')',
    "an answer to nothing": 'raw(b\'{"jsonrpc": "2.0", "id": 4711, "result": {}}\\n\')',
    "its end behind its answer": "raw(json.dumps(answer).encode() + b'\\n'); "
    "sys.exit(0) if 'content' in answer.get('result', {}) else None; return",
}
"""What a server does to each of its answers, or before it."""


def odd(tmp_path: Path, body: str) -> Server:
    file = tmp_path / "odd.py"
    file.write_text(ODD.format(body=body))
    return Server(name="s", type="stdio", command=sys.executable, args=("-S", str(file)))


@pytest.mark.parametrize("how", WRITES)
async def test_what_servers_write_around_their_answers_costs_none(
    mcp_processes: McpProcesses, tmp_path: Path, how: str
) -> None:
    body = f"plain = out\ndef out(answer):\n    {WRITES[how]}\n    plain(answer)\n"
    server = odd(tmp_path, body)
    mcp_processes.build(server)
    with mcp_processes.scope() as scope, trio.fail_after(60):
        told = await view_of(scope, server).call(mcp_processes.root.actor, "x", {}, "s__x")
    assert told["content"][0]["text"] == "said"


SEPARATED = "a\u2028b\u2029c\u0085d"
RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a link": ({"content": [{"type": "resource_link", "uri": "x:///report.pdf", "name": "report"}]}, "x:///report.pdf"),
    "an embedded text": ({"content": [{"type": "resource", "resource": {"uri": "x://1", "text": "INSIDE"}}]}, "INSIDE"),
    "an embedded file": ({"content": [{"type": "resource", "resource": {"uri": "x://1", "blob": "AAAA"}}]}, "x://1"),
    "an unknown type": ({"content": [{"type": "video", "data": "AA"}, {"type": "text", "text": "INSIDE"}]}, "INSIDE"),
    "null beside structured": ({"content": None, "structuredContent": {"k": "INSIDE"}}, "INSIDE"),
    "structured alone": ({"structuredContent": {"k": "INSIDE"}}, "INSIDE"),
    "a structured list": ({"content": [], "structuredContent": {"result": [1, "INSIDE"]}}, "INSIDE"),
    "separators of lines": ({"content": [{"type": "text", "text": SEPARATED}]}, SEPARATED),
    "no block": ({"content": []}, "returned nothing"),
    "nothing": ({}, "returned nothing"),
}


@pytest.mark.parametrize("kind", RESULTS)
async def test_results_of_every_kind_reach_the_model(mcp_processes: McpProcesses, tmp_path: Path, kind: str) -> None:
    result, expected = RESULTS[kind]
    server = odd(tmp_path, f"def result():\n    return json.loads({json.dumps(result)!r})\n")
    mcp_processes.build(server)
    with mcp_processes.scope() as scope, trio.fail_after(60):
        tool = direct_tool(view_of(scope, server), McpTool(name="x", input_schema={}))
        told = await tool.run(mcp_processes.root.actor, {})
    assert expected in (told if isinstance(told, str) else json.dumps(told, default=str))


@pytest.mark.parametrize(
    "error", [{"isError": True}, {"isError": True, "content": None}, {"isError": True, "content": []}]
)
async def test_an_error_without_words_is_one(
    mcp_processes: McpProcesses, tmp_path: Path, error: dict[str, Any]
) -> None:
    server = odd(tmp_path, f"def result():\n    return {error!r}\n")
    mcp_processes.build(server)
    with mcp_processes.scope() as scope, trio.fail_after(60):
        tool = direct_tool(view_of(scope, server), McpTool(name="x", input_schema={}))
        with pytest.raises(ToolFailed):
            await tool.run(mcp_processes.root.actor, {})
