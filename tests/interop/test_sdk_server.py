"""The contract between our client and a server on the official SDK: both eras, every transport."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio
from interop.calls import give_up, reach, text_of, words_of
from interop.conftest import Person
from interop.environments import MODERN as INSTALLED
from interop.environments import SDK, listening, needs, sdk
from support.waiting import PATIENCE

from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import McpLost
from callboard.protocol.mcp.config import Server
from callboard.protocol.mcp.model import HANDSHAKE, MODERN, Progress
from callboard.supervisors import Actor

pytestmark = needs("modern")

SIDES = [("stdio", "auto"), ("stdio", "legacy"), ("http", "auto"), ("http", "legacy"), ("sse", "auto")]
OFTEN = (("stdio", "auto"),)
"""Those that are met in every run of the tests."""


def marked(sides: Iterable[tuple[str, str]]) -> list[Any]:
    """The sides, of which most are met in the long repetitions."""
    return [side if side in OFTEN else pytest.param(side, marks=pytest.mark.soak) for side in sides]


NEWEST = [("stdio", "auto"), ("http", "auto")]
UNNAMED = [("stdio", "legacy"), ("sse", "auto")]
"""Where nothing on the wire says which call a question is about."""


@pytest.fixture(scope="module")
def ports() -> Iterator[Callable[[str], int]]:
    """Where a server listens over `http` or `sse`; it is there for all tests that leave it as it is."""
    found: dict[str, int] = {}
    with ExitStack() as stack:

        def port(kind: str) -> int:
            if kind not in found:
                server = subprocess.Popen([INSTALLED / "python", SDK, kind], stdout=subprocess.PIPE)
                stack.enter_context(server)
                stack.callback(server.kill)
                assert server.stdout is not None
                found[kind] = int(server.stdout.readline())
            return found[kind]

        yield port


@pytest.fixture(params=marked(SIDES), ids="-".join)
def side(request: pytest.FixtureRequest, ports: Callable[[str], int]) -> tuple[Server, str]:
    """A server, and the era in which it is met."""
    transport, era = request.param
    return (sdk() if transport == "stdio" else _at(transport, ports(transport))), era


def _at(transport: str, port: int) -> Server:
    path = "mcp" if transport == "http" else "sse"
    return Server(name="sdk", type=transport, url=f"http://127.0.0.1:{port}/{path}")


@pytest.fixture(params=marked(SIDES), ids="-".join)
async def own_side(request: pytest.FixtureRequest, me: Actor) -> AsyncIterator[tuple[Server, str]]:
    """As `side`, with a server that no other test has met."""
    transport, era = request.param
    if transport == "stdio":
        yield sdk(), era
        return
    async with listening(me, transport) as port:
        yield _at(transport, port), era


async def test_it_is_known_listed_and_called(me: Actor, side: tuple[Server, str]) -> None:
    async with reach(me, *side) as client:
        modern = side[1] == "auto" and side[0].type != "sse"
        assert (client.modern, client.version) == ((True, MODERN) if modern else (False, HANDSHAKE[0]))
        assert (client.server.name, client.server.version) == ("sdk", "1.2.3")
        assert client.instructions == "Made to be called."
        tools = {tool.name: tool for tool in await client.tools()}
        assert tools["add"].input_schema["required"] == ["a", "b"]
        annotations = tools["add"].annotations
        assert annotations is not None
        assert annotations.read_only_hint
        result = await client.call_tool("add", {"a": 3, "b": 4})
        assert (text_of(result), result["structuredContent"]) == ("7", {"result": 7})
        failed = await client.call_tool("fail", {"text": "no such order"})
        assert failed["isError"]
        assert "no such order" in words_of(failed)
        await client.ping()


async def test_a_call_tells_its_progress_and_is_cancelled_on_both_sides(
    me: Actor, own_side: tuple[Server, str], progress: list[Progress]
) -> None:
    async with reach(me, *own_side) as client:
        caller = CallOrigin(me=me, on_progress=progress.append)
        assert text_of(await client.call_tool("slow", {"seconds": 0.1}, caller)) == "4 steps"
        assert [(each.progress, each.total) for each in progress] == [(1, 4), (2, 4), (3, 4), (4, 4)]
        assert progress[0].message == "step 1"
        await give_up(client, me, "slow", {"seconds": 3600})
        with trio.fail_after(PATIENCE):
            while text_of(await client.call_tool("cancellations", {})) != "1":
                await trio.sleep(0.01)
        assert client.pending == 0


async def test_its_questions_are_answered(me: Actor, side: tuple[Server, str], person: Person) -> None:
    async with reach(me, *side) as client:
        caller = CallOrigin(me=me, host=person)
        assert text_of(await client.call_tool("ask", {"subject": "tea"}, caller)) == "Ada wants tea 3 times"
        assert text_of(await client.call_tool("think", {"prompt": "6 * 7?"}, caller)) == "deep thinks: 42"
        assert text_of(await client.call_tool("where", {}, caller)) == "file:///srv/work"
        person.action = "decline"
        assert (await client.call_tool("ask", {"subject": "tea"}, caller))["isError"]
        assert [params.get("message") for params in person.asked] == ["Who wants tea?", None, "Who wants tea?"]


@pytest.mark.parametrize("side", marked(side for side in SIDES if side not in UNNAMED), ids="-".join, indirect=True)
async def test_questions_of_concurrent_calls_keep_apart(me: Actor, side: tuple[Server, str]) -> None:
    answers: list[str] = []

    async def ask(name: str) -> None:
        person = Person()
        person.content = {"name": name, "times": 1}
        answers.append(text_of(await client.call_tool("ask", {"subject": name}, CallOrigin(me=me, host=person))))

    async with reach(me, *side) as client, trio.open_nursery() as asking:
        for name in ("Ada", "Alan", "Grace"):
            asking.start_soon(ask, name)
    assert sorted(answers) == [f"{name} wants {name} 1 times" for name in ("Ada", "Alan", "Grace")]


async def test_its_resources_prompts_and_completions_are_read(me: Actor, side: tuple[Server, str]) -> None:
    async with reach(me, *side) as client:
        assert [resource.uri for resource in await client.resources()] == ["notes://first"]
        templates = (await client.request("resources/templates/list", {}))["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["notes://{name}/text"]
        read = await client.request("resources/read", {"uri": "notes://second/text"})
        assert read["contents"][0]["text"] == "a note called second"
        assert [prompt.name for prompt in await client.prompts()] == ["greet"]
        prompt = await client.request("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
        assert prompt["messages"][0]["content"]["text"] == "Say hello to Ada."
        completed = await client.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
        )
        assert completed["completion"]["values"] == ["Ada", "Alan"]


async def test_a_tool_that_it_grows_is_told(me: Actor, own_side: tuple[Server, str]) -> None:
    told = trio.Event()
    async with reach(me, *own_side, on_change=lambda what: told.set() if what == "tools" else None) as client:
        with trio.fail_after(PATIENCE):
            text_of(await client.call_tool("grow", {"name": "grown"}))
            await told.wait()
        assert "grown" in {tool.name for tool in await client.tools()}
        assert text_of(await client.call_tool("grown", {})) == "grown"


@pytest.mark.parametrize("side", NEWEST, ids="-".join, indirect=True)
async def test_a_resource_is_watched_and_logs_are_wanted(me: Actor, side: tuple[Server, str]) -> None:
    told: list[str] = []
    logged: list[object] = []
    async with reach(
        me, *side, on_change=told.append, on_log=lambda message: logged.append((message.level, message.data))
    ) as client:
        await client.subscribe("notes://first")
        with trio.fail_after(PATIENCE):
            while "notes://first" not in told:  # the subscription is on its way
                text_of(await client.call_tool("touch", {"uri": "notes://first"}))
            text_of(await client.call_tool("say", {"text": "nobody wants to hear it"}))
            await client.set_level("info")
            text_of(await client.call_tool("say", {"text": "now somebody does"}))
            while not logged:
                await trio.sleep(0.01)
        assert logged == [("info", "now somebody does")]


async def test_its_death_ends_the_call_with_its_last_words(me: Actor, own_side: tuple[Server, str]) -> None:
    async with reach(me, *own_side) as client:
        words = "these are the last words" if own_side[0].type == "stdio" else None
        with trio.fail_after(PATIENCE), pytest.raises(McpLost, match=words):
            await client.call_tool("die", {"text": "these are the last words"})
        with trio.fail_after(PATIENCE), pytest.raises(McpLost):
            await client.call_tool("add", {"a": 1, "b": 2})


async def test_a_hundred_calls_share_a_connection(me: Actor, side: tuple[Server, str]) -> None:
    results: set[int] = set()

    async def add(number: int) -> None:
        results.add(int(text_of(await client.call_tool("add", {"a": number, "b": 1}))))

    async with reach(me, *side) as client, trio.open_nursery() as calling:
        for number in range(100):
            calling.start_soon(add, number)
    assert results == set(range(1, 101))
