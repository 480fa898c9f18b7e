"""Base URLs come and go; their connections too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing
from support.fake_models import FakeModels
from support.gateways import Silent, reaching

from callboard.actors.work.models import gateway
from callboard.actors.work.models.gateway import Endpoints
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.settings import ClientSettings, Settings


def at(number: int) -> tuple[str, str, float]:
    return f"http://127.0.0.1:{number}", "-", 10.0


async def test_connections_to_base_urls_that_are_used_no_more_are_closed(
    serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "MOST_IDLE", 2)
    reply = b'{"choices": [{"message": {"content": "hi"}}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(reply)
    closed: list[int] = []
    over = trio.Event()

    async def answer(stream: trio.abc.Stream, number: int) -> None:
        received = b""
        while b"hello" not in received:
            received += await stream.receive_some()
        await stream.send_all(head + reply)
        assert not await stream.receive_some()
        closed.append(number)
        over.set()

    def server(number: int) -> int:
        return serve(lambda stream: answer(stream, number))

    clients = tuple(
        ClientSettings(type="openai-compatible", name=f"c{number}", api_base=f"http://127.0.0.1:{server(number)}/v1")
        for number in range(3)
    )
    async with reaching(Settings(clients=clients)) as models:
        for number in range(3):
            request = ChatRequest(model=f"c{number}:m", messages=(UserTurn("hello"),))
            assert (await models.chat(Silent(), request)).text == "hi"
        with trio.fail_after(60):
            await over.wait()
        assert closed == [0]


async def test_as_many_endpoints_are_kept_as_are_used_and_a_few_idle_ones() -> None:
    some = Endpoints({})
    with some.lease(*at(1)) as first:
        for number in range(2, 1000):
            with some.lease(*at(number)):
                assert len(some) <= 2 + gateway.MOST_IDLE
        with some.lease(*at(1)) as again:
            assert again is first
    assert len(some) == gateway.MOST_IDLE


async def test_an_endpoint_that_is_idle_for_long_is_let_go(mock_clock: trio.testing.MockClock) -> None:
    some = Endpoints({})
    with some.lease(*at(1)) as first:
        pass
    mock_clock.jump(gateway.IDLE - 1)
    with some.lease(*at(1)) as again:
        assert again is first
    mock_clock.jump(gateway.IDLE)
    with some.lease(*at(2)):
        pass
    assert len(some) == 1


async def test_an_endpoint_is_not_closed_under_a_request(
    fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "MOST_IDLE", 0)
    some = Endpoints({})
    key = fake_model.openai_base, "-", 10.0
    fake_model.script("one", "two")
    headers = {"authorization": "Bearer sk-test"}
    body = b'{"model": "model", "messages": [{"role": "user", "content": "hello"}]}'
    with some.lease(*key) as outer:
        with some.lease(*key) as inner:
            assert b"one" in await inner.post("fake:model", headers, "/chat/completions", body)
        assert b"two" in await outer.post("fake:model", headers, "/chat/completions", body)
    assert len(some) == 0
