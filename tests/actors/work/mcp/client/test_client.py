"""What the client says and understands, in both eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from support.messages import says
from support.waiting import until

from callboard.actors.work.mcp.client import client as client_module
from callboard.actors.work.mcp.client.connect import OfferedCapabilities
from callboard.actors.work.mcp.client.questions import pages
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import McpError
from callboard.protocol.mcp.model import Progress
from callboard.supervisors import Actor


def text_of(result: dict[str, Any]) -> Any:
    return result["content"][0]["text"]


async def seen_by(client: Any) -> list[dict[str, Any]]:
    return json.loads(text_of(await client.call_tool("seen", {})))


async def test_tools_are_listed_and_called(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        tools = {tool.name: tool for tool in await client.tools()}
        assert tools["add"].input_schema["required"] == ["a", "b"]
        assert tools["die"].annotations.destructive_hint is True
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result["structuredContent"] == {"sum": 3}
        assert client.server.name == "scripted"
        assert client.instructions == "Be kind."
        assert client.pid == int(text_of(await client.call_tool("pid", {})))
        assert client.pending == 0


async def test_a_failed_tool_is_a_result_and_a_refused_call_an_error(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        assert (await client.call_tool("fail", {}))["isError"] is True
        with pytest.raises(
            McpError, match=r"'play' refused tools/call 'refuse': refused on principle \(code -32000\)"
        ) as e:
            await client.call_tool("refuse", {})
        assert e.value.rpc_code == -32000
        assert e.value.data == {"why": "principle"}
        with pytest.raises(McpError, match="Unknown tool: nothing"):
            await client.call_tool("nothing", {})


async def test_every_request_of_the_modern_era_says_who_we_are_and_what_we_can(connector: Any) -> None:
    async with connector.connected("--modern") as client:
        await until(lambda: client.link.waiting)  # the subscription is on its way
        seen = await seen_by(client)
    assert [message["method"] for message in seen] == ["server/discover", "subscriptions/listen", "tools/call"]
    for message in seen:
        meta = message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "callboard"
        assert set(meta["io.modelcontextprotocol/clientCapabilities"]) == {
            "elicitation",
            "sampling",
            "roots",
            "extensions",
        }


async def test_the_old_era_is_told_once(connector: Any) -> None:
    async with connector.connected("--legacy", remembered="2025-11-25") as client:
        seen = await seen_by(client)
    assert [message["method"] for message in seen] == ["initialize", "notifications/initialized", "tools/call"]
    assert "_meta" not in seen[-1]["params"]


async def test_all_pages_are_read(connector: Any, era: str) -> None:
    async with connector.connected(era, "--many", "250") as client:
        names = [tool.name for tool in await client.tools()]
    assert names[-1] == "more_249"
    assert len(names) == len(set(names)) > 250


async def test_a_list_without_end_is_not_read_for_ever(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connector.connected("--many", "250") as client:
        monkeypatch.setattr(client_module, "MAX_PAGES", 2)
        with pytest.raises(McpError, match=says("work.mcp.client.client.McpClient._listed.5", entries=200)):
            await client.tools()
        monkeypatch.setattr(client_module, "MAX_LISTED", 150)
        with pytest.raises(
            McpError,
            match=says("work.mcp.client.client.McpClient._listed.2", what="…lists", MAX_LISTED=150, kind="tools"),
        ):
            await client.tools()


async def test_a_server_without_resources_and_prompts_has_none(connector: Any, era: str) -> None:
    async with connector.connected(era, "--plain") as client:
        assert await client.resources() == await client.prompts() == []


async def test_resources_prompts_and_completions(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        assert [resource.uri for resource in await client.resources()] == ["memo://one"]
        templates = (await client.request("resources/templates/list", {}))["resourceTemplates"]
        assert [template["uriTemplate"] for template in templates] == ["memo://{name}"]
        read = await client.request("resources/read", {"uri": "memo://one"})
        assert read["contents"][0]["text"] == "about memo://one"
        assert (await client.prompts())[0].arguments[0].name == "who"
        prompt = await client.request("prompts/get", {"name": "greet", "arguments": {"who": "Eve"}})
        assert prompt["messages"][0]["content"]["text"] == "Greet Eve."
        done = await client.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "E"}},
        )
        assert done["completion"]["values"] == ["E!"]
        await client.ping()


async def test_progress_reaches_its_own_caller_and_nobody_else(connector: Any, era: str) -> None:
    first: list[Progress] = []
    second: list[Progress] = []
    async with connector.connected(era) as client, trio.open_nursery() as nursery:
        me = connector.owner
        for steps, heard in ((3, first), (2, second)):
            caller = CallOrigin(me=me, on_progress=heard.append)
            nursery.start_soon(client.call_tool, "progress", {"steps": steps}, caller)
        nursery.start_soon(client.call_tool, "progress", {"steps": 9})
    assert [(p.progress, p.total, p.message) for p in first] == [(1, 3, "step 0"), (2, 3, "step 1"), (3, 3, "step 2")]
    assert [p.total for p in second] == [2, 2]


async def test_a_change_of_the_tools_is_told(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        before = len(await client.tools())
        await client.call_tool("change", {})
        await until(lambda: connector.changes == ["tools"])
        assert len(await client.tools()) == before + 1


async def test_lists_count_as_changed_when_a_subscription_is_made_anew(connector: Any) -> None:
    async with connector.connected("--modern") as client:
        assert connector.changes == []
        await client.subscribe("memo://one")  # in the modern era that replaces the subscription to the lists
        await until(lambda: "tools" in connector.changes)


async def test_a_subscription_to_a_resource_is_made(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        await client.subscribe("memo://one")
        await client.subscribe("memo://two")
        with trio.fail_after(60):
            while subscribed(await seen_by(client), era) != [["memo://one", "memo://two"]]:
                await trio.sleep(0.01)


def subscribed(seen: list[dict[str, Any]], era: str) -> list[list[str]]:
    """The resources of each subscription that is open."""
    if era == "--legacy":
        return [[m["params"]["uri"] for m in seen if m["method"] == "resources/subscribe"]]
    listens = {m["id"]: m["params"]["notifications"] for m in seen if m["method"] == "subscriptions/listen"}
    over = [m["params"]["requestId"] for m in seen if m["method"] == "notifications/cancelled"]
    return [wanted.get("resourceSubscriptions", []) for id, wanted in listens.items() if id not in over]


async def test_what_the_server_logs_is_told_and_the_level_asked_for(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        await client.set_level("debug")
        await client.call_tool("log", {"text": "hello"})
        seen = await seen_by(client)
    assert [(message.level, message.data) for message in connector.logged] == [("info", "hello")]
    if era == "--legacy":
        assert any(m["method"] == "logging/setLevel" and m["params"]["level"] == "debug" for m in seen)
    else:
        assert seen[-1]["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "debug"


# --- questions ------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_on_behalf_of_the_call(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:

        async def calling(me: Actor) -> Any:
            return await client.call_tool("ask", {"question": "Colour?"}, CallOrigin(me=me, host=connector.host))

        call = connector.root.actor.spawn(calling, name="call")
        result = await call.result()
    assert json.loads(text_of(result))["content"] == {"answer": "blue"}
    [(server, params)] = connector.host.asked
    assert server == "play"
    assert params["message"] == "Colour?"
    assert connector.host.paths == ["/call/question"]


async def test_an_old_server_s_question_is_answered_while_other_calls_of_the_run_are_under_way(connector: Any) -> None:
    async with connector.connected("--legacy") as client, trio.open_nursery() as nursery:
        caller = CallOrigin(me=connector.root.actor, host=connector.host)
        nursery.start_soon(client.call_tool, "slow", {"seconds": 30}, caller)
        await until(lambda: client.pending == 1)
        result = await client.call_tool("ask", {"question": "which?"}, caller)
        nursery.cancel_scope.cancel()
    assert json.loads(result["content"][0]["text"])["content"] == {"answer": "blue"}
    assert connector.host.paths == ["/owner/question"]


async def test_an_old_server_s_question_is_nobody_s_while_calls_of_several_runs_are_under_way(connector: Any) -> None:
    other = connector.root.bus.open("run-other")
    async with connector.connected("--legacy") as client, trio.open_nursery() as nursery:
        stranger = connector.root.actor.adopt(trio.sleep_forever, (), name="run-other", bond="watched", stream=other)
        nursery.start_soon(client.call_tool, "slow", {"seconds": 30}, CallOrigin(me=stranger, host=connector.host))
        await until(lambda: client.pending == 1)
        caller = CallOrigin(me=connector.root.actor, host=None)
        result = await client.call_tool("ask", {"question": "which?"}, caller)
        nursery.cancel_scope.cancel()
    assert json.loads(result["content"][0]["text"])["content"] == {"answer": "blue"}  # by the connection's own host
    assert connector.host.paths == ["/owner/question"]


async def test_samples_and_roots_are_answered(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        sampled = await client.call_tool("sample", {"text": "hi"}, CallOrigin(me=connector.owner, host=connector.host))
        assert text_of(sampled) == "sampled"
        roots = await client.call_tool("roots", {}, CallOrigin(me=connector.owner))
        assert json.loads(text_of(roots)) == [{"uri": "file:///work"}]


async def test_a_refused_sample_fails_that_call_alone(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        with pytest.raises(McpError, match="not by policy"):
            await client.call_tool("sample", {"text": "never"}, CallOrigin(me=connector.owner, host=connector.host))
        assert text_of(await client.call_tool("echo", {"text": "still here"})) == "still here"


async def test_what_was_not_declared_is_refused(connector: Any, era: str) -> None:
    async with connector.connected(era, abilities=OfferedCapabilities(elicitation=False)) as client:
        for tool, arguments in (("ask", {"question": "?"}), ("sample", {"text": "hi"})):
            with pytest.raises(McpError, match=says("work.mcp.client.questions.ServerQuestions._spawn")):
                await client.call_tool(tool, arguments, CallOrigin(me=connector.owner, host=connector.host))
    assert connector.host.asked == []


async def test_a_question_with_nobody_to_answer_is_cancelled(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        result = await client.call_tool("ask", {"question": "?"}, CallOrigin(me=connector.owner))
    assert json.loads(text_of(result)) == {"action": "cancel"}


async def test_a_question_ends_with_its_call(connector: Any, era: str) -> None:
    connector.host.hold = trio.Event()
    async with connector.connected(era) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    client.call_tool, "ask", {"question": "?"}, CallOrigin(me=connector.owner, host=connector.host)
                )
                await until(lambda: connector.host.asked)
                scope.cancel()
        with trio.fail_after(60):
            await connector.host.cancelled.wait()
        assert text_of(await client.call_tool("echo", {"text": "on"})) == "on"


async def test_a_question_that_the_server_takes_back_is_over_and_gets_no_answer(connector: Any) -> None:
    connector.host.hold = trio.Event()
    async with connector.connected("--legacy") as client:
        assert (
            text_of(await client.call_tool("unask", {}, CallOrigin(me=connector.owner, host=connector.host)))
            == "taken back"
        )
        with trio.fail_after(60):
            await connector.host.cancelled.wait()
        seen = await seen_by(client)
    assert not [message for message in seen if message.get("id") == "unasked"]


async def test_a_server_that_asks_back_for_ever_is_given_up(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ROUNDS", 0)
    async with connector.connected("--modern") as client:
        with pytest.raises(McpError, match=says("work.mcp.client.client.McpClient.request.2", MAX_ROUNDS=0)):
            await client.call_tool("ask", {"question": "?"}, CallOrigin(me=connector.owner, host=connector.host))


# --- many at once ---------------------------------------------------------------------------------------------


async def test_a_thousand_calls_at_once_through_one_connection(connector: Any, era: str) -> None:
    answers: dict[int, str] = {}
    async with connector.connected(era) as client:

        async def call(number: int) -> None:
            answers[number] = text_of(await client.call_tool("echo", {"text": f"n{number}"}))

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(call, number)
    assert answers == {number: f"n{number}" for number in range(1000)}


async def test_calls_beyond_the_bound_wait_their_turn(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_PENDING", 2)
    most = 0
    async with connector.connected("--legacy") as client:

        async def call(number: int) -> None:
            nonlocal most
            assert text_of(await client.call_tool("slow", {"seconds": 0.02})) == "slept"
            most = max(most, len(client.link.waiting), client.pending)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(call, number)
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert client.pending == 2
        assert client.pending == 0
    assert most <= 2


# --- pages to open before a call (2025-11-25) -----------------------------------------------------------------


async def visits(client: Any) -> int:
    return sum(m["method"] == "tools/call" and m["params"]["name"] == "visit" for m in await seen_by(client))


async def test_a_call_that_waits_for_pages_is_made_again_once_they_are_opened(connector: Any) -> None:
    async with connector.connected("--legacy") as client:
        caller = CallOrigin(me=connector.owner, host=connector.host)
        assert text_of(await client.call_tool("visit", {"times": 1}, caller)) == "signed in"
        asked = sorted((server, params["mode"], params["url"]) for server, params in connector.host.asked)
        assert asked == [("play", "url", "https://p1.example/"), ("play", "url", "https://p2.example/")]
        assert all(path.startswith(connector.owner.path) for path in connector.host.paths)
        assert await visits(client) == 2


async def test_a_call_that_waits_for_pages_is_made_again_once_only(connector: Any) -> None:
    async with connector.connected("--legacy") as client:
        with pytest.raises(McpError, match=r"sign in first \(code -32042\)"):
            await client.call_tool("visit", {"times": 5}, CallOrigin(me=connector.owner, host=connector.host))
        assert (await visits(client), len(connector.host.asked)) == (2, 2)


@pytest.mark.parametrize("action", ["decline", "cancel", None])
async def test_a_call_whose_pages_are_not_opened_stays_refused(connector: Any, action: str | None) -> None:
    """Nobody to ask is as good as nobody who opens them."""
    connector.host.answer = {"action": action}
    async with connector.connected("--legacy") as client:
        host = connector.host if action else None
        with pytest.raises(McpError, match="sign in first"):
            await client.call_tool("visit", {"times": 1}, CallOrigin(me=connector.owner, host=host))
        assert await visits(client) == 1


async def test_pages_are_opened_neither_for_the_newer_era_nor_for_a_server_that_may_not_ask(connector: Any) -> None:
    for flag, able in (("--modern", True), ("--legacy", False)):
        async with connector.connected(flag, abilities=OfferedCapabilities(elicitation=able)) as client:
            with pytest.raises(McpError, match="sign in first"):
                await client.call_tool("visit", {"times": 1}, CallOrigin(me=connector.owner, host=connector.host))
            assert await visits(client) == 1
    assert connector.host.asked == []


@pytest.mark.parametrize("data", [None, [], {"elicitations": 3}, {"elicitations": [3, None]}])
def test_a_refusal_may_list_nonsense_where_its_pages_should_be(data: Any) -> None:
    assert pages(McpError("no", rpc_code=-32042, data=data)) == {}
